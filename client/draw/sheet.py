"""What all kinds of pictures are made of: figures measured in points, shapes, and quantities in words."""

import logging
from collections.abc import Sequence

import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from matplotlib.ticker import EngFormatter, MaxNLocator

INK, MUTED, FRAME, GRID, ROW = "#1f2933", "#616e7c", "#9aa5b1", "#e1e5ea", "#f1f3f5"
SMALL, TEXT, HEAD = 9.5, 10.5, 14
PLAIN = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # behind text that a grid would cross
MARGIN = 18
POINTS = 72  # in an inch

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # x, y, width, height

# A picture depends on its description alone: neither on the settings of a user nor on the day.
matplotlib.rcdefaults()
logging.getLogger("matplotlib").setLevel(logging.ERROR)  # of fonts that are for other machines
matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "crossmesh", "pdf.fonttype": 42, "path.simplify": False,
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": TEXT, "text.color": INK, "text.parse_math": False})
METADATA = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width / POINTS, height / POINTS), dpi=2 * POINTS, facecolor="white")


def save(figure: Figure, path: str) -> None:
    """In the format that the ending of the path says; SVG where it says none. OSError."""
    ending = path.rpartition(".")[2].lower()
    form = ending if ending in METADATA else "svg"
    figure.savefig(path, format=form, metadata=METADATA[form])


def add_axes(figure: Figure, box: Box, most: float | None = None) -> Axes:
    """A part of a figure, in points, as y always is; x is points as well, or a quantity up to `most`."""
    width, height = figure.get_size_inches() * POINTS
    left, top, across, down = box
    axes = figure.add_axes((left / width, 1 - (top + down) / height, across / width, down / height))
    axes.set(xlim=(0, across if most is None else most), ylim=(down, 0), facecolor="none")
    axes.spines[:].set_visible(False)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=SMALL, labelcolor=MUTED)
    axes.tick_params(axis="y", labelcolor=INK, pad=6)
    if most is None:
        axes.set_axis_off()
    return axes


def show_time(axes: Axes, has_unit: bool = True) -> None:
    show_scale(axes, "s" if has_unit else None)
    axes.set_xlabel("time", color=MUTED, size=SMALL)


def show_scale(axes: Axes, unit: str | None) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
    if unit is not None:
        axes.xaxis.set_major_formatter(EngFormatter(unit))
    axes.grid(axis="x", color=GRID, linewidth=0.8)


def write(axes: Axes, at: Point, text: str, **style) -> None:
    """Left of at[0] = 0, and right of 1, is what is beside axes that show a quantity; at[1] is the middle of the line."""
    transform = axes.transData if style.pop("in_plot", True) else axes.get_yaxis_transform()
    axes.text(*at, printable(text), transform=transform, va="center_baseline", **style)


def draw_boxes(axes: Axes, boxes: Sequence[Box], color: str, name: str | None = None) -> None:
    """As one shape, with this id in an SVG file, which keeps files small."""
    corners = [((x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y))
               for x, y, width, height in boxes]
    axes.add_artist(PathPatch(_joined(corners), facecolor=color, linewidth=0, clip_on=False, gid=name))


def draw_lines(axes: Axes, lines: Sequence[Sequence[Point]], color: str, width: float, name: str | None = None,
               style: str | tuple = "solid") -> None:
    axes.add_artist(PathPatch(_joined(lines), fill=False, edgecolor=color, linewidth=width, linestyle=style,
                              clip_on=False, gid=name))


def _joined(lines: Sequence[Sequence[Point]]) -> Path:
    codes = [code for line in lines for code in [Path.MOVETO] + [Path.LINETO] * (len(line) - 1)]
    return Path([point for line in lines for point in line], codes) if codes else Path([(0, 0)])


def _legend_columns(entries: Sequence[tuple[str, str, str]], width: float) -> int:
    """As many as there is room for."""
    widths = [width_of(text, SMALL) + 44 for *_, text in entries]
    fitting = (columns for columns in range(len(entries), 1, -1)
               if sum(map(max, numpy.array_split(widths, columns))) <= width - 2 * MARGIN)
    return next(fitting, 1)


def legend_height(entries: Sequence[tuple[str, str, str]], width: float) -> float:
    return 16 * -(-len(entries) // _legend_columns(entries, width)) + 8


def add_legend(figure: Figure, entries: Sequence[tuple[str, str, str]], top: float) -> None:
    """Entries are (form, colour, text); the form is "box", or the style of a line."""
    width, height = figure.get_size_inches() * POINTS
    handles = [Patch(facecolor=color) if form == "box" else Line2D([], [], color=color, linestyle=form, linewidth=1.5)
               for form, color, _ in entries]
    figure.legend(handles, [printable(text) for *_, text in entries], loc="upper left", frameon=False, fontsize=SMALL,
                  ncols=_legend_columns(entries, width), bbox_to_anchor=(MARGIN / width, 1 - top / height),
                  borderaxespad=0, borderpad=0, handlelength=1.5, columnspacing=1.6, labelcolor=MUTED)


def printable(text: str) -> str:
    """Without what XML cannot hold."""
    return "".join(character if character.isprintable() else "?" for character in text)


def width_of(text: str, size: float, weight: str = "normal") -> float:
    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size, weight=weight), False)[0]


def fitted(text: str, width: float, size: float = TEXT, weight: str = "normal") -> str:
    """The text, or its beginning and end around dots where it is wider."""
    text, kept = printable(text), len(text)
    short = text
    while kept > 2 and width_of(short, size, weight) > width:
        kept -= 1
        short = f"{text[:(kept + 1) // 2]}…{text[len(text) - kept // 2:]}"
    return short


def bytes_text(count: float) -> str:
    return EngFormatter("B", places=0 if count < 999.5 else 1)(count)


def seconds_text(seconds: float) -> str:
    return EngFormatter("s", places=2)(seconds) if seconds < 600 else f"{seconds / 60:.0f} min"
