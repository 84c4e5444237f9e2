"""Draws the lab's results: time divided by the bound, a row per case, a mark per strategy."""

import pathlib

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402, the backend is chosen before

from measure import CaseResult
from targets import OURS

MARKS = "osD^v<>PX*p"
GREY = "0.55"
ROW_SHARE = 0.8  # of its row that a case's marks take


def series(results: list[CaseResult]) -> dict[str, dict[str, float]]:
    """Ratios by name of a strategy or way, then of a case; ours last, so that it lies on top."""
    found: dict[str, dict[str, float]] = {}
    for result in results:
        for strategy in result.strategies():
            if (ratio := result.ratio(strategy)) is not None:
                found.setdefault(strategy, {})[result.name] = ratio
        for way in result.gloo:
            found.setdefault(f"Gloo, {way.replace('_', ' ')}", {})[result.name] = result.gloo_ratio(way)
    if OURS in found:
        found[OURS] = found.pop(OURS)
    return found


def draw(results: list[CaseResult], paths: list[pathlib.Path]) -> None:
    pyplot.rcParams.update({"svg.hashsalt": "lab", "font.size": 9})
    names = [result.name for result in results]
    figure, axes = pyplot.subplots(figsize=(9, 1.6 + 0.42 * len(names)), layout="constrained")
    drawn = series(results)
    colors = pyplot.get_cmap("tab10")
    for number, (name, ratios) in enumerate(drawn.items()):
        ours = name == OURS
        # One below the other inside a case's row, so that none hides another.
        shift = ROW_SHARE * ((number + 0.5) / len(drawn) - 0.5)
        axes.scatter(ratios.values(), [names.index(case) + shift for case in ratios], label=name,
                     marker="o" if ours else MARKS[1 + number % (len(MARKS) - 1)],
                     color="black" if ours else colors(number % 10),
                     s=34 if ours else 26, alpha=1 if ours else 0.75, zorder=3 if ours else 2, linewidths=0)
    axes.axvline(1, color=GREY, linewidth=1, zorder=1)
    axes.set_xscale("log")
    highest = max((ratio for ratios in drawn.values() for ratio in ratios.values()), default=1)
    ticks = [tick for tick in (1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20) if tick <= 1.2 * highest]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("time / bound")
    axes.set_yticks(range(len(names)), names)
    axes.grid(axis="x", color="0.9", zorder=0)
    for row in range(0, len(names), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="0.96", zorder=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=4, frameon=False)
    for path in paths:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
    pyplot.close(figure)
