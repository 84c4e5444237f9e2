"""Pictures: of layouts, drawn here, and of plans with their runs, by matplotlib where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from crossmesh._core import Layout, Mesh
from crossmesh.errors import FailedPreconditionError, InvalidArgumentError

if TYPE_CHECKING:
    from crossmesh.planning import Plan, Timeline

_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_SIDE, _GAP, _TEXT = 96, 16, 14  # pixels
_SLOTS_MAX = 64


class Picture:
    """An SVG document, which notebooks show."""

    def __init__(self, svg: str):
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture of {len(self.svg)} bytes>"


def draw(
    what: Layout | Plan | Timeline, *, mesh: Mesh | None = None, shape: Sequence[int] | None = None
) -> Picture:
    """A picture of a layout, for which `mesh` and `shape` are needed, or of a plan with its simulated run.

    Of a layout: the part of the tensor that every slot holds, of its first two dimensions. Plans need matplotlib.
    """
    if isinstance(what, Layout):
        if mesh is None or shape is None:
            raise InvalidArgumentError(
                "draw: expected mesh and shape with a layout, found none",
                "draw", "mesh and shape with a layout", "none")
        return Picture(svg_of_layout(what, mesh, shape))
    from crossmesh.planning import Plan

    timeline = what.simulate() if isinstance(what, Plan) else what
    return Picture(svg_of_picture(timeline.picture()))


def svg_of_layout(layout: Layout, mesh: Mesh, shape: Sequence[int]) -> str:
    tiles = layout.tiles(mesh, shape)
    lengths = [*shape, 1, 1][:2]  # rows down, columns across
    shown = tiles[:_SLOTS_MAX]
    columns = min(len(shown), max([*(size for _, size in mesh.axes[-1:]), 1]), 8)
    parts = []
    for slot, tile in enumerate(shown):
        row, column = divmod(slot, columns)
        x, y = _GAP + column * (_SIDE + _GAP), _GAP + row * (_SIDE + 2 * _TEXT + _GAP)
        at = ", ".join(f"{axis} {value}" for axis, value in mesh.coordinates(slot).items())
        parts.append(f'<text x="{x}" y="{y + _TEXT}" class="t">{escape(mesh.devices[slot])} {escape(at)}</text>')
        y += 2 * _TEXT - 6
        parts.append(f'<rect x="{x}" y="{y}" width="{_SIDE}" height="{_SIDE}" class="w"/>')
        for box in tile:
            parts.append(_rectangle(box, lengths, (x, y), _COLOURS[slot % len(_COLOURS)]))
    rows = -(-len(shown) // columns)
    width, height = _GAP + columns * (_SIDE + _GAP), _GAP + rows * (_SIDE + 2 * _TEXT + _GAP) + 2 * _TEXT
    left = f", {len(tiles) - len(shown)} more slots" if len(tiles) > len(shown) else ""
    caption = f"{layout} of {list(shape)} over {mesh}{left}"
    text = caption if len(caption) <= 200 else caption[:197] + "..."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        "<style>.t{font:10px sans-serif}.w{fill:none;stroke:#999}</style>"
        f'{"".join(parts)}<text x="{_GAP}" y="{height - _TEXT}" class="t">{escape(text)}</text></svg>')


def _rectangle(box: Sequence[slice], lengths: Sequence[int], corner: tuple[int, int], colour: str) -> str:
    (top, bottom), (left, right) = (
        ((box[d].start, box[d].stop) if d < len(box) else (0, 1)) for d in range(2))
    down, across = _SIDE / max(lengths[0], 1), _SIDE / max(lengths[1], 1)
    return (f'<rect x="{corner[0] + left * across:.2f}" y="{corner[1] + top * down:.2f}" '
            f'width="{(right - left) * across:.2f}" height="{(bottom - top) * down:.2f}" fill="{colour}"/>')


def has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def svg_of_picture(picture: dict[str, Any]) -> str:
    """By the program that the command line draws with, in a process of its own."""
    from crossmesh import programs

    if not has_matplotlib():
        raise FailedPreconditionError(
            "picture: expected matplotlib, which draws plans, found none; pip install matplotlib",
            "picture", "matplotlib, which draws plans", "none")
    done = subprocess.run(
        [sys.executable, "-B", str(programs.share() / "draw" / "draw.py"), "/dev/stdout"],
        input=json.dumps(picture), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FailedPreconditionError(f"picture: {done.stderr.strip()}", "picture")
    return done.stdout
