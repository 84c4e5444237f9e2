"""Draws the lab's redistributions: a row per plan, with what was predicted, and what was measured in each round."""

import pathlib

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402, the backend is chosen before

from redistribution_cases import COLLECTIVES, PAIRS
from redistribution_report import timed_ways
from redistribution_runs import RedistributionResult


def draw(results: list[RedistributionResult], paths: list[pathlib.Path]) -> None:
    pyplot.rcParams.update({"svg.hashsalt": "lab", "font.size": 9})
    rows = [(result, way) for kind in (PAIRS, COLLECTIVES) for result, way in timed_ways(results, kind)]
    if not rows:
        return
    figure, axes = pyplot.subplots(figsize=(9, 1.4 + 0.24 * len(rows)), layout="constrained")
    for row, (_, way) in enumerate(rows):
        axes.plot([0, way.predicted()], [row, row], color="tab:blue", linewidth=5, alpha=0.35, solid_capstyle="butt",
                  label="predicted" if row == 0 else None)
        axes.scatter(way.measured, [row] * len(way.measured), color="black", s=14, zorder=3, linewidths=0,
                     label="measured" if row == 0 else None)
    axes.set_yticks(range(len(rows)), [f"{result.case}, {way.names[0]}" if len(result.ways) > 1 else result.case
                                       for result, way in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds")
    axes.grid(axis="x", color="0.9", zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", frameon=False)
    for path in paths:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
    pyplot.close(figure)
