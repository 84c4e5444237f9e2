"""Pictures that are asked for: of meshes and layouts, and of plans with their runs, by matplotlib."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crossmesh import _arguments, _pictures
from crossmesh._core import Layout, Mesh
from crossmesh.errors import FailedPreconditionError, InvalidArgumentError

if TYPE_CHECKING:
    from crossmesh.planning import Plan, Timeline

__all__ = ["Picture", "draw"]


@_arguments.checked
class Picture:
    """An SVG document, by draw(), which notebooks show. `svg` is its text."""

    def __init__(self, svg: str):
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to the file `path`."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture of {len(self.svg)} bytes>"


@_arguments.checked
def draw(
    what: Mesh | Layout | Plan | Timeline, *, mesh: Mesh | None = None, shape: Sequence[int] | None = None
) -> Picture:
    """A picture of `what`: a mesh, a layout, for which `mesh` and `shape` are needed, or a plan with its simulated run.

    Of a layout: the part of a tensor of this shape that every slot holds, of its first two dimensions. Of a plan:
    hosts, routes and chunks over time, by matplotlib. Raises InvalidArgumentError for a layout that does not fit mesh
    and shape, or is without them; FailedPreconditionError where matplotlib is not installed.
    """
    if isinstance(what, Mesh):
        return Picture(_pictures.svg_of_mesh(what))
    if isinstance(what, Layout):
        if mesh is None or shape is None:
            raise InvalidArgumentError(
                "draw: expected mesh and shape with a layout, found none",
                "draw", "mesh and shape with a layout", "none")
        return Picture(_pictures.svg_of_layout(what, mesh, shape))
    from crossmesh.planning import Plan

    timeline = what.simulate() if isinstance(what, Plan) else what
    return Picture(svg_of_picture(timeline.picture()))


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
