"""Runs of a pipeline, one below the other on one scale of time: a row for each rank, a line for each transfer."""

import collections
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from matplotlib.figure import Figure

from sheet import (HEAD, INK, MARGIN, MUTED, PLAIN, ROW, SMALL, Box, add_axes, add_legend, draw_boxes, draw_lines,
                   fitted, new_figure, seconds_text, show_time, width_of, write)

LEGEND, TITLE, PERIOD, AXIS, NOTE = 24, 34, 30, 44, 16
NUMBER_SIZES = (9, 8, 7, 6)
TRANSFERS_MAX = 3000
KINDS = {"F": "forward", "B": "backward", "I": "gradient of the input", "W": "gradient of the weights"}
# Of a rank's stages every second one is lighter.
COLORS = {"F": ("#4575b4", "#a9c4e4"), "B": ("#3a8f66", "#a5d3ba"), "I": ("#3a8f66", "#a5d3ba"),
          "W": ("#d98c21", "#f2d0a0")}
WAYS = {"F": "activations", "B": "gradients"}


@dataclass(frozen=True)
class Bar:
    """An op, or several that cannot be told apart, which have no microbatch."""

    begin: float
    end: float
    kind: str
    shade: int
    microbatch: int = -1
    stage: int = -1


class Run:
    """A run of a schedule, planned and perhaps measured as well, and where its rows are."""

    def __init__(self, document: dict, top: float):
        self.document, self.top = document, top
        self.ranks: int = document["ranks"]
        self.stage_ranks: list[int] = document["stage_ranks"]
        self.forms = [form for form in ("planned", "measured") if form in document]
        self.bars = [self._bars(document[form]["ops"]) for form in self.forms]
        # Numbers and transfers have room between few ranks only.
        self.row, self.gap = (18, 15) if self.ranks <= 16 else (11, 5) if self.ranks <= 32 else (6, 2)
        self.shows_transfers = self.ranks <= 16 and len(document["transfers"]) <= TRANSFERS_MAX
        self.bottom = self.top_of(self.ranks) + PERIOD

    def _bars(self, ops: list[list]) -> list[list[Bar]]:
        """By rank, in the order of time."""
        shades = [self.stage_ranks[:stage].count(rank) % 2 for stage, rank in enumerate(self.stage_ranks)]
        rows: list[list[Bar]] = [[] for _ in range(self.ranks)]
        for name, begin, end in ops:
            stage, kind, microbatch = re.split("([FBIW])", name)
            bar = Bar(begin, end, kind, shades[int(stage)], int(microbatch), int(stage))
            rows[self.stage_ranks[bar.stage]].append(bar)
        return [sorted(row, key=lambda bar: bar.begin) for row in rows]

    def top_of(self, rank: int, form: int = 0) -> float:
        return self.top + TITLE + rank * (len(self.forms) * self.row + self.gap) + form * self.row

    def bottom_of(self, rank: int) -> float:
        return self.top_of(rank, len(self.forms))

    def seconds(self) -> list[float]:
        return [self.document[form]["seconds"] for form in self.forms]

    def end(self) -> float:
        return max([*self.seconds(), *(end for *_, end in self.document["transfers"])])

    def bubble(self) -> float:
        """The part of the ranks' time in which they compute nothing."""
        work = sum(bar.end - bar.begin for row in self.bars[0] for bar in row)
        return 1 - work / (self.ranks * (self.seconds()[0] or 1))


def merged(bars: Sequence[Bar], pixel: float) -> list[Bar]:
    """Bars of whole pixels: in each the kind and shade that takes most of it; none where it is mostly idle."""
    edges = numpy.arange(numpy.ceil(bars[-1].end / pixel) + 2) * pixel
    kinds = sorted({(bar.kind, bar.shade) for bar in bars})
    busy = []
    for kind in kinds:
        mine = [bar for bar in bars if (bar.kind, bar.shade) == kind]
        times = [time for bar in mine for time in (bar.begin, bar.end)]
        done = numpy.cumsum([length for bar in mine for length in (0, bar.end - bar.begin)])
        busy.append(numpy.diff(numpy.interp(edges, times, done)))
    most = numpy.where(numpy.sum(busy, axis=0) >= pixel / 2, numpy.argmax(busy, axis=0), len(kinds))
    borders = [0, *(numpy.flatnonzero(numpy.diff(most)) + 1), len(most)]
    return [Bar(edges[first], edges[last], *kinds[most[first]])
            for first, last in zip(borders, borders[1:]) if most[first] < len(kinds)]


class Picture:
    def __init__(self, document: dict):
        self.has_unit: bool = document["has_unit"]
        self.runs: list[Run] = []
        for run in document["runs"]:
            self.runs.append(Run(run, self.runs[-1].bottom if self.runs else 0))
        self.whole = max(run.end() for run in self.runs) or 1
        ops = max(len(row) for run in self.runs for rows in run.bars for row in rows)
        labels = 108 if any(len(run.forms) > 1 for run in self.runs) else 58
        plot = min(max(780.0, 34.0 * ops), 1250.0)
        self.pixel = self.whole / plot
        self.note = self._note()
        bottom = self.runs[-1].bottom
        self.figure = new_figure(MARGIN + labels + plot + MARGIN,
                                 MARGIN + LEGEND + bottom + AXIS + NOTE * bool(self.note))
        self.axes = add_axes(self.figure, (MARGIN + labels, MARGIN + LEGEND, plot, bottom), self.whole)
        self.left = -labels / plot

    def draw(self) -> Figure:
        show_time(self.axes, self.has_unit)
        add_legend(self.figure, self.legend(), MARGIN)
        ticks: dict[float, str] = {}
        for number, run in enumerate(self.runs):
            ticks |= self.labels(run)
            self.draw_run(run, f"run-{number}")
        self.axes.set_yticks([*ticks], [*ticks.values()])
        write(self.axes, (self.left, self.runs[-1].bottom + AXIS + 2), self.note, in_plot=False, size=SMALL,
              color=MUTED)
        return self.figure

    def legend(self) -> list[tuple[str, str, str]]:
        found = {(bar.kind, bar.shade) for run in self.runs for row in run.bars[0] for bar in row}
        entries = [("box", COLORS[kind][0], text) for kind, text in KINDS.items() if {(kind, 0), (kind, 1)} & found]
        if any(shade for _, shade in found):
            entries.append(("box", COLORS["F"][1], "lighter: every second stage of a rank"))
        if any(run.shows_transfers and run.document["transfers"] for run in self.runs):
            entries += [("solid", COLORS[way][0], f"{text} on their way") for way, text in WAYS.items()]
        return entries

    def _note(self) -> str:
        is_fine = any(self.is_fine(row) for run in self.runs for rows in run.bars for row in rows)
        hides_some = not all(run.shows_transfers for run in self.runs)
        return ("Where ops are narrower than a pixel, the kind is drawn that takes most of it. " * is_fine
                + "Transfers are left out: there are too many to be told apart." * hides_some)

    def is_fine(self, bars: Sequence[Bar]) -> bool:
        """Whether ops take less than a pixel each in the mean."""
        return sum(bar.end - bar.begin for bar in bars) < len(bars) * self.pixel

    def labels(self, run: Run) -> dict[float, str]:
        """Of rows, by the y coordinates of their middles."""
        if len(run.forms) > 1 and run.row > 10:
            return {run.top_of(rank, form) + run.row / 2: (f"rank {rank}, planned", "measured")[form]
                    for rank in range(run.ranks) for form in (0, 1)}
        step = 1 if run.row > 10 else 8
        return {(run.top_of(rank) + run.bottom_of(rank)) / 2: f"rank {rank}" for rank in range(0, run.ranks, step)}

    def time_text(self, seconds: float) -> str:
        return seconds_text(seconds) if self.has_unit else f"{seconds:.4g}"

    def draw_run(self, run: Run, name: str) -> None:
        times = [self.time_text(seconds) for seconds in run.seconds()]
        title = f"{fitted(run.document['title'], 400, HEAD, 'bold')}: {times[0]}, bubble {100 * run.bubble():.1f} %"
        title += "".join(f"; measured {time}" for time in times[1:])
        write(self.axes, (self.left, run.top + 18), title, in_plot=False, size=HEAD, weight="bold", bbox=PLAIN)
        draw_boxes(self.axes, [(0, run.top_of(rank), self.whole, run.bottom_of(rank) - run.top_of(rank))
                               for rank in range(run.ranks)], ROW)
        # Transfers may pass ranks between their ends: above the rows, and below the ops.
        if run.shows_transfers:
            self.draw_transfers(run, name)
        sizes = self.number_sizes(run)
        for rank in range(run.ranks):
            for number, form in enumerate(run.forms):
                place = (run.top_of(rank, number), run.row - 1)
                self.draw_bars(run.bars[number][rank], place, f"{name}-rank-{rank}-{form}")
                self.write_numbers(run.bars[number][rank], place, sizes)
        self.draw_period(run)

    def draw_bars(self, bars: Sequence[Bar], place: tuple[float, float], name: str) -> None:
        if self.is_fine(bars):
            bars = merged(bars, self.pixel)
        shapes: dict[tuple[str, int], list[Box]] = collections.defaultdict(list)
        for bar in bars:
            # A hair of the row between two ops of one colour.
            gap = 0.8 * self.pixel if bar.microbatch >= 0 and bar.end - bar.begin > 3 * self.pixel else 0
            shapes[bar.kind, bar.shade].append((bar.begin, place[0], bar.end - bar.begin - gap, place[1]))
        for (kind, shade), boxes in sorted(shapes.items()):
            draw_boxes(self.axes, boxes, COLORS[kind][shade], f"{name}-{kind}{shade}")

    def number_sizes(self, run: Run) -> dict[str, float]:
        """Of the kinds whose ops all have room for their number."""
        digits = len(str(run.document["microbatches"] - 1))
        sizes = {}
        for kind in KINDS:
            lengths = [bar.end - bar.begin for row in run.bars[0] for bar in row if bar.kind == kind]
            room = min(lengths, default=0) / self.pixel - 2
            fitting = [size for size in NUMBER_SIZES if size + 2 < run.row and digits * width_of("0", size) <= room]
            sizes |= {kind: size for size in fitting[:1]}
        return {kind: min(sizes.values()) for kind in sizes}

    def write_numbers(self, bars: Sequence[Bar], place: tuple[float, float], sizes: dict[str, float]) -> None:
        for bar in bars:
            if bar.kind in sizes:
                write(self.axes, ((bar.begin + bar.end) / 2, place[0] + place[1] / 2), str(bar.microbatch), ha="center",
                      size=sizes[bar.kind], color=INK if bar.shade else "white")

    def draw_transfers(self, run: Run, name: str) -> None:
        """From the row of the sender to that of the receiver."""
        for way in WAYS:
            lines = [((begin, run.bottom_of(sender) if receiver > sender else run.top_of(sender)),
                      (end, run.top_of(receiver) if receiver > sender else run.bottom_of(receiver)))
                     for its_way, sender, receiver, begin, end in run.document["transfers"] if its_way == way]
            draw_lines(self.axes, lines, COLORS[way][0], 1.1, f"{name}-transfers-{way}")

    def draw_period(self, run: Run) -> None:
        """What a microbatch takes: between backward ops of the first stage that have forward ops around them."""
        first, last = run.document["microbatches"] // 4, run.document["microbatches"] // 2
        if last - first < 2:
            return
        begins = {bar.microbatch: bar.begin for bar in run.bars[0][run.stage_ranks[0]]
                  if bar.stage == 0 and bar.kind in "BI"}
        left, right, y = begins[first], begins[last], run.bottom_of(run.ranks - 1) + 9
        draw_lines(self.axes, [((left, y), (right, y)), *(((x, y - 4), (x, y + 4)) for x in (left, right))], MUTED, 1)
        each = self.time_text((right - left) / (last - first))
        text = f"{last - first} microbatches on rank {run.stage_ranks[0]}: {each} each"
        middle = max((left + right) / 2, width_of(text, SMALL) / 2 * self.pixel)
        write(self.axes, (middle, y + 12), text, size=SMALL, color=MUTED, ha="center", bbox=PLAIN)


def draw(document: dict) -> Figure:
    return Picture(document).draw()
