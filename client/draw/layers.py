"""Steps of layer programs, one below the other on one scale of time: what each rank computes and what moves beside it."""

import collections

from matplotlib.figure import Figure

from sheet import (HEAD, MARGIN, PLAIN, ROW, Box, add_axes, add_legend, draw_boxes, fitted, legend_height, new_figure,
                   seconds_text, show_time, width_of, write)

TITLE, AXIS, COMPUTE, LANE, GAP = 34, 44, 20, 13, 4
PLOT = 900
PRODUCTS = {"F": ("#4575b4", "forward products"), "I": ("#3a8f66", "gradients of inputs"),
            "W": ("#d98c21", "gradients of weights"), "": ("#9aa5b1", "all else that is computed")}
MOVES = "#8c510a"


class Row:
    """A line of boxes by colour, with a name."""

    def __init__(self, name: str, height: float, boxes: list[tuple[str, float, float]]):
        self.name, self.height, self.boxes = name, height, boxes


class Step:
    def __init__(self, document: dict, top: float):
        self.document, self.top = document, top
        self.rows: list[Row] = []
        ranks = document["ranks"]
        for number, rank in enumerate(ranks):
            name = "computes" if len(ranks) == 1 else f"rank {number} computes"
            self.rows.append(Row(name, COMPUTE, [(PRODUCTS[kind][0], begin, end) for kind, begin, end in rank["ops"]]))
            for lane in rank["lanes"]:
                exposed = seconds_text(lane["exposed"])
                self.rows.append(Row(f"{lane['name']}, {exposed} exposed", LANE,
                                     [(MOVES, begin, end) for begin, end in lane["spans"]]))
        self.bottom = top + TITLE + sum(row.height + GAP for row in self.rows)

    def end(self) -> float:
        return max([self.document["seconds"], *(end for row in self.rows for *_, end in row.boxes)])


class Picture:
    def __init__(self, document: dict):
        self.steps: list[Step] = []
        for step in document["steps"]:
            self.steps.append(Step(step, self.steps[-1].bottom if self.steps else 0))
        self.whole = max(step.end() for step in self.steps) or 1
        labels = 20 + max(width_of(row.name, 10) for step in self.steps for row in step.rows)
        width = MARGIN + labels + PLOT + MARGIN
        legend = legend_height(self.legend(), width)
        bottom = self.steps[-1].bottom
        self.figure = new_figure(width, MARGIN + legend + bottom + AXIS)
        self.axes = add_axes(self.figure, (MARGIN + labels, MARGIN + legend, PLOT, bottom), self.whole)
        self.left = -labels / PLOT

    def legend(self) -> list[tuple[str, str, str]]:
        found = {color for step in self.steps for row in step.rows for color, *_ in row.boxes}
        entries = [("box", color, text) for color, text in PRODUCTS.values() if color in found]
        return entries + [("box", MOVES, "on its way")] * (MOVES in found)

    def draw(self) -> Figure:
        show_time(self.axes)
        add_legend(self.figure, self.legend(), MARGIN)
        ticks: dict[float, str] = {}
        for number, step in enumerate(self.steps):
            self.draw_step(step, f"step-{number}", ticks)
        self.axes.set_yticks([*ticks], [*ticks.values()])
        return self.figure

    def draw_step(self, step: Step, name: str, ticks: dict[float, str]) -> None:
        title = (f"{fitted(step.document['title'], 500, HEAD, 'bold')}: {seconds_text(step.document['seconds'])}, "
                 f"{seconds_text(step.document['exposed'])} of it exposed")
        write(self.axes, (self.left, step.top + 18), title, in_plot=False, size=HEAD, weight="bold", bbox=PLAIN)
        y = step.top + TITLE
        for number, row in enumerate(step.rows):
            ticks[y + row.height / 2] = row.name
            draw_boxes(self.axes, [(0, y, self.whole, row.height)], ROW)
            shapes: dict[str, list[Box]] = collections.defaultdict(list)
            for color, begin, end in row.boxes:
                shapes[color].append((begin, y, end - begin, row.height))
            for color, boxes in sorted(shapes.items()):
                draw_boxes(self.axes, boxes, color, f"{name}-row-{number}-{color[1:]}")
            y += row.height + GAP


def draw(document: dict) -> Figure:
    return Picture(document).draw()
