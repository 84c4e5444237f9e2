"""A derivation beside those of other methods: its types in a row, then what each method takes: time, bytes, memory; then
its memory over time, of devices that have as much together."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sheet import (HEAD, INK, MARGIN, MUTED, ROW, SMALL, TEXT, add_axes, add_legend, bytes_text, draw_boxes, draw_lines,
                   fitted, legend_height, new_figure, seconds_text, show_scale, width_of, write)

WIDTH, TITLE, LINE, HEADING, BAR, AXIS, VALUES = 1000, 30, 19, 24, 20, 32, 84
STRIP, STRIPS_MAX = 54, 4
COLORS = {"slice": "#9aa5b1", "all_gather": "#4575b4", "all_to_all": "#3a8f66", "permute": "#d98c21",
          "reduce_scatter": "#7b5aa6", "all_reduce": "#b05a8c", "relay": "#8c6d46"}
LIMIT, DASHES = "#c0392b", (0, (4, 2))


@dataclass(frozen=True)
class Chart:
    """One quantity of all methods: of steps one after the other, or, of memory, of the step that takes most."""

    title: str
    unit: str
    field: str
    limit: float = 0  # 0: none
    is_peak: bool = False

    def parts(self, method: dict) -> list[tuple[str, float, float]]:
        """Kind of a step, where it begins and how long it is."""
        steps = method["steps"]
        if self.is_peak:
            most = max(steps, key=lambda step: step[self.field], default=None)
            return [(most["kind"], 0, most[self.field])] if most else []
        ends = list(itertools.accumulate((step[self.field] for step in steps), initial=0))
        return [(step["kind"], begin, step[self.field]) for step, begin in zip(steps, ends)]

    def whole(self, methods: Sequence[dict]) -> float:
        ends = [begin + length for method in methods for _, begin, length in self.parts(method)]
        return max([self.limit, *ends]) or 1


class Picture:
    def __init__(self, document: dict):
        self.document = document
        others = {name: method for name, method in document.get("baselines", {}).items() if "steps" in method}
        self.methods = {"search": document} | others
        self.refusals = [name for name in document.get("baselines", {}) if name not in others]
        cap = document.get("cap_bytes", 0)
        self.charts = [Chart("Time", "s", "seconds"),
                       Chart("Received by the busiest device", "B", "received_bytes", document["bound_bytes"]),
                       Chart("Live on the fullest device", "B", "live_bytes", cap, is_peak=True)]
        self.label_width = max(width_of(name, SMALL) for name in self.methods) + 14
        self.memory = document.get("memory", [])[:STRIPS_MAX] if document["steps"] else []
        kinds = {step["kind"] for method in self.methods.values() for step in method["steps"]}
        self.legend = [("box", color, kind) for kind, color in COLORS.items() if kind in kinds]
        limits = f"least of any plan: {bytes_text(document['bound_bytes'])}" + f"; cap: {bytes_text(cap)}" * bool(cap)
        self.legend.append((DASHES, LIMIT, limits))

    def draw(self) -> Figure:
        first = MARGIN + TITLE + LINE * (len(self.document["steps"]) + 1) + 6
        pitch = HEADING + BAR * len(self.methods) + AXIS
        strips = first + pitch * len(self.charts)
        end = strips + (HEADING + STRIP * len(self.memory) + AXIS) * bool(self.memory)
        notes = [f"No answer: {', '.join(self.refusals)}."] * bool(self.refusals)
        figure = new_figure(WIDTH, end + legend_height(self.legend, WIDTH) + LINE * len(notes) + MARGIN)
        page = add_axes(figure, (MARGIN, MARGIN, WIDTH - 2 * MARGIN, end))
        self._write_types(page)
        for number, chart in enumerate(self.charts):
            self._draw_chart(figure, chart, first + number * pitch)
        if self.memory:
            self._draw_memory(figure, strips)
        add_legend(figure, self.legend, end)
        for note in notes:
            write(page, (0, end - MARGIN + legend_height(self.legend, WIDTH) + LINE / 2), note, size=SMALL, color=MUTED)
        return figure

    def _write_types(self, page: Axes) -> None:
        document = self.document
        title = f"{document['source']} to {document['destination']}"
        write(page, (0, 8), fitted(title, WIDTH - 2 * MARGIN, HEAD, "bold"), size=HEAD, weight="bold")
        left = max([width_of(f"{step['kind']} {step['axes']}", TEXT) for step in document["steps"]], default=0) + 40
        rows = [("source", "", document["source"])]
        rows += [(step["kind"], step["axes"], step["type"]) for step in document["steps"]]
        for number, (kind, axes, local_type) in enumerate(rows):
            y = TITLE + LINE * (number + 0.5)
            if kind in COLORS:
                draw_boxes(page, [(0, y - 5, 10, 10)], COLORS[kind], f"step-{number - 1}")
            write(page, (18, y), f"{kind} {axes}", color=INK if kind in COLORS else MUTED)
            write(page, (left, y), fitted(local_type, WIDTH - 2 * MARGIN - left), family="monospace", size=SMALL)

    def _draw_chart(self, figure: Figure, chart: Chart, top: float) -> None:
        left = MARGIN + self.label_width
        whole, height = chart.whole(list(self.methods.values())), BAR * len(self.methods)
        axes = add_axes(figure, (left, top + HEADING, WIDTH - left - MARGIN - VALUES, height), whole)
        show_scale(axes, chart.unit)
        axes.set_yticks([BAR * (number + 0.4) for number in range(len(self.methods))], list(self.methods))
        axes.tick_params(axis="y", labelsize=SMALL)
        write(axes, (-self.label_width / (WIDTH - left - MARGIN - VALUES), -HEADING / 2), chart.title, in_plot=False,
              weight="bold")
        for number, (name, method) in enumerate(self.methods.items()):
            self._draw_bar(axes, chart, (f"{chart.field}-{name}", chart.parts(method)), number)
        if chart.limit:
            draw_lines(axes, [((chart.limit, -5), (chart.limit, height))], LIMIT, 1.4, style=DASHES)

    def _draw_memory(self, figure: Figure, top: float) -> None:
        """What is live over time: a strip for devices that have as much, the fullest ones first."""
        times = self.charts[0].parts(self.document)
        left, whole = MARGIN + self.label_width, self.charts[0].whole([self.document])
        most = max([self.document.get("cap_bytes", 0), *(live for of in self.memory for live in of["live_bytes"])]) or 1
        height = STRIP * len(self.memory)
        axes = add_axes(figure, (left, top + HEADING, WIDTH - left - MARGIN - VALUES, height), whole)
        show_scale(axes, "s")
        axes.set_yticks([STRIP * (number + 0.5) for number in range(len(self.memory))],
                        [f"{of['devices']} device" + "s" * (of["devices"] > 1) for of in self.memory])
        axes.tick_params(axis="y", labelsize=SMALL)
        write(axes, (-self.label_width / (WIDTH - left - MARGIN - VALUES), -HEADING / 2), "Live over time",
              in_plot=False, weight="bold")
        for number, of in enumerate(self.memory):
            bottom, scale = STRIP * (number + 1) - 4, (STRIP - 10) / most
            draw_boxes(axes, [(0, bottom - scale * most, whole, scale * most)], ROW)
            for step, ((kind, begin, length), live) in enumerate(zip(times, of["live_bytes"])):
                draw_boxes(axes, [(begin, bottom - scale * live, length, scale * live)], COLORS[kind],
                           f"memory-{number}-{step}")
            if cap := self.document.get("cap_bytes", 0):
                draw_lines(axes, [((0, bottom - scale * cap), (whole, bottom - scale * cap))], LIMIT, 1.4, style=DASHES)
            write(axes, (1.012, STRIP * (number + 0.5)), bytes_text(max(of["live_bytes"])), in_plot=False, size=SMALL,
                  color=MUTED)

    def _draw_bar(self, axes: Axes, chart: Chart, bar: tuple[str, list[tuple[str, float, float]]],
                  number: int) -> None:
        name, parts = bar
        top, whole = BAR * number, axes.get_xlim()[1]
        draw_boxes(axes, [(0, top, whole, 0.8 * BAR)], ROW)
        for step, (kind, begin, length) in enumerate(parts):
            # A hair of the row between two steps.
            gap = 0.002 * whole if length > 0.01 * whole and step + 1 < len(parts) else 0
            draw_boxes(axes, [(begin, top, length - gap, 0.8 * BAR)], COLORS[kind], f"{name}-{step}")
        total = sum(length for *_, length in parts)
        text = seconds_text(total) if chart.unit == "s" else bytes_text(total)
        write(axes, (1.012, top + 0.4 * BAR), text, in_plot=False, size=SMALL, color=MUTED)


def draw(document: dict) -> Figure:
    return Picture(document).draw()
