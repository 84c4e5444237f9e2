"""Pictures of a mesh, of a layout, of what passes the ports of a plan, for which nothing but Python is needed.

Notebooks put them into their page as they are, so that they have no styles, which would be the page's as well, and a
ground of their own, since the page's may be dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from crossmesh._core import Layout, Mesh
    from crossmesh.planning import Port, Timeline

_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_INK, _PALE = "#222222", "#999999"
_SIDE, _GAP, _LINE = 96, 16, 14  # pixels
_LETTER = 6  # pixels that a letter is wide at most, nearly always
_COLUMNS_MAX = 8
_SLOTS_MAX = 64
_PORTS_MAX = 32
_BAR = 400  # pixels of the longest bar
_LETTERS_MAX = 200


class _Drawing:
    """Rectangles, lines and texts, on a ground that is as large as they need."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._width, self._height = 0.0, 0.0

    def _reach(self, x: float, y: float) -> None:
        self._width, self._height = max(self._width, x), max(self._height, y)

    def text(self, x: float, y: float, text: str) -> None:
        """Its base line is at y. A long one is cut."""
        shown = text if len(text) <= _LETTERS_MAX else text[:_LETTERS_MAX - 3] + "..."
        self._parts.append(
            f'<text x="{x:.2f}" y="{y:.2f}" font-family="sans-serif" font-size="10" fill="{_INK}">'
            f"{escape(shown)}</text>")
        self._reach(x + _LETTER * len(shown), y)

    def rectangle(
        self, corner: tuple[float, float], size: tuple[float, float], fill: str, stroke: str = "none"
    ) -> None:
        (x, y), (width, height) = corner, size
        self._parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{fill}" '
            f'stroke="{stroke}"/>')
        self._reach(x + width, y + height)

    def upright(self, x: float, y: float, length: float, dashes: str = "none") -> None:
        self._parts.append(
            f'<line x1="{x:.2f}" y1="{y:.2f}" x2="{x:.2f}" y2="{y + length:.2f}" stroke="{_INK}" '
            f'stroke-dasharray="{dashes}"/>')
        self._reach(x, y + length)

    def svg(self) -> str:
        width, height = self._width + _GAP, self._height + _GAP
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}"><rect width="100%" height="100%" fill="white"/>{"".join(self._parts)}</svg>')


class _Slots:
    """Where the slots of a mesh are drawn: row by row, with the last axis from left to right as far as it fits."""

    def __init__(self, mesh: Mesh, height: int):
        self.shown = min(mesh.slots, _SLOTS_MAX)
        self.labels = [
            (mesh.devices[slot], ", ".join(f"{axis} {value}" for axis, value in mesh.coordinates(slot).items()))
            for slot in range(self.shown)]
        self.left_out = f", {mesh.slots - self.shown} more slots" if mesh.slots > self.shown else ""
        self._columns = max(1, min(self.shown, _COLUMNS_MAX, *(size for _, size in mesh.axes[-1:])))
        longest = max((len(word) for label in self.labels for word in label), default=0)
        self.width = max(_SIDE, _LETTER * longest)
        self._height = height

    def corner(self, slot: int) -> tuple[int, int]:
        row, column = divmod(slot, self._columns)
        return _GAP + column * (self.width + _GAP), _GAP + row * (self._height + _GAP)

    @property
    def end(self) -> int:
        """Below all of them."""
        return _GAP + -(-self.shown // self._columns) * (self._height + _GAP)


def svg_of_mesh(mesh: Mesh) -> str:
    """Every slot with its device and where it is on each axis; the devices of a host have one colour."""
    drawing = _Drawing()
    slots = _Slots(mesh, 3 * _LINE)
    hosts = list(dict.fromkeys(device.rpartition(".")[0] for device in mesh.devices))
    colours = {host: _COLOURS[i % len(_COLOURS)] for i, host in enumerate(hosts)}
    for slot, (device, at) in enumerate(slots.labels):
        x, y = slots.corner(slot)
        drawing.rectangle((x, y), (slots.width, 4), colours[device.rpartition(".")[0]])
        drawing.rectangle((x, y), (slots.width, 3 * _LINE), "none", _PALE)
        drawing.text(x + 4, y + _LINE + 4, device)
        drawing.text(x + 4, y + 2 * _LINE + 4, at)
    count = f"{mesh.slots} slots on {len(hosts)} host{'s' if len(hosts) != 1 else ''}"
    drawing.text(_GAP, slots.end + _LINE, f"{mesh}: {count}{slots.left_out}")
    return drawing.svg()


def svg_of_layout(layout: Layout, mesh: Mesh, shape: Sequence[int]) -> str:
    """The part of a tensor that every slot holds, of its first two dimensions: rows down, columns across."""
    tiles = layout.tiles(mesh, shape)
    drawing = _Drawing()
    slots = _Slots(mesh, _SIDE + 2 * _LINE)
    down, across = (_SIDE / max(length, 1) for length in [*shape, 1, 1][:2])
    for slot, (device, at) in enumerate(slots.labels):
        x, y = slots.corner(slot)
        drawing.text(x, y + 10, device)
        drawing.text(x, y + _LINE + 8, at)
        y += 2 * _LINE
        for box in tiles[slot]:
            (top, bottom), (left, right) = (
                ((box[d].start, box[d].stop) if d < len(box) else (0, 1)) for d in range(2))
            drawing.rectangle(
                (x + left * across, y + top * down), ((right - left) * across, (bottom - top) * down),
                _COLOURS[slot % len(_COLOURS)])
        drawing.rectangle((x, y), (_SIDE, _SIDE), "none", _PALE)
    drawing.text(_GAP, slots.end + _LINE, f"{layout} of {list(shape)} over {mesh}{slots.left_out}")
    return drawing.svg()


def svg_of_ports(timeline: Timeline) -> str:
    """How long each port is busy at its full rate, beside the bound of the plan and the end of the run."""
    drawing = _Drawing()
    plan, ports = timeline.plan, [port for port in timeline.ports if port.bytes > 0]
    busiest = sorted(ports, key=_busy_seconds, reverse=True)[:_PORTS_MAX]
    shown = [port for port in ports if port in busiest]
    labels = [f"{port.name} {port.kind.rpartition('_')[2]}" for port in shown]
    start = 2 * _GAP + _LETTER * max(map(len, labels), default=0)
    scale = _BAR / max(timeline.seconds, 1e-12)
    drawing.text(_GAP, _GAP + 10, f"Plan {plan.id[:8]} by {plan.strategy}: {bytes_text(plan.destination_bytes)} in "
                 f"{seconds_text(timeline.seconds)}, through NICs {bytes_text(plan.network_bytes)}")
    y = 2 * _GAP + _LINE
    for port, label in zip(shown, labels, strict=True):
        drawing.text(_GAP, y + 10, label)
        sends = port.kind.endswith(("out", "up"))
        drawing.rectangle((start, y), (_busy_seconds(port) * scale, _LINE - 2), _COLOURS[0 if sends else 1])
        drawing.text(start + _BAR + _GAP, y + 10, f"{bytes_text(port.bytes)}, {seconds_text(_busy_seconds(port))}")
        y += _LINE + 2
    bound = plan.bound.seconds
    drawing.upright(start + bound * scale, 2 * _GAP + _LINE - 4, y - 2 * _GAP - _LINE + 4)
    drawing.upright(start + _BAR, 2 * _GAP + _LINE - 4, y - 2 * _GAP - _LINE + 4, "4 3")
    assumed = ", on assumed rates" if plan.bound.assumed_rates else ""
    left_out = f"; {len(ports) - len(shown)} ports that are less busy are left out" if len(ports) > len(shown) else ""
    drawing.text(_GAP, y + _LINE, f"Bars: the port at its full rate. Line: the bound, {seconds_text(bound)}{assumed}; "
                 f"dashed: the end of the run, simulated{left_out}.")
    return drawing.svg()


_RULES = {
    "exact": "Lengths that the parts do not divide are refused.",
    "chunk": "Where parts are not equal, all but the last have ceil(length / parts), as torch.chunk gives them.",
    "nested_chunk": "Where parts are not equal, axis by axis, each cuts what the one before left as torch.chunk does.",
    "balanced": "Where parts are not equal, the first ones have one element more.",
}


def html_of_layout(layout: Layout) -> str:
    """Which axes cut each dimension. The parts themselves need a mesh and a shape: crossmesh.draw."""
    dimensions = layout.dimensions
    if dimensions is None or layout.uneven is None:
        return f"<p><code>{escape(str(layout))}</code>: explicit tiles, slot by slot</p>"
    rows = "".join(
        f"<tr><td>{i}</td><td>{escape(', then '.join(axes)) or 'no axis: whole'}</td></tr>"
        for i, axes in enumerate(dimensions))
    rule = _RULES[layout.uneven] if any(dimensions) else "Every slot has all of it."
    return (f"<table><caption><code>{escape(str(layout))}</code></caption>"
            f"<tr><th>dimension</th><th>cut by axis</th></tr>{rows}</table><p>{rule}</p>")


def _busy_seconds(port: Port) -> float:
    return port.bytes / port.bytes_per_second


def seconds_text(seconds: float) -> str:
    """Of three digits, with its unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def bytes_text(count: float) -> str:
    """Of three digits, with its unit, by powers of 1,000."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.3g} bytes"
