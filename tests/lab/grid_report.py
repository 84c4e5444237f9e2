"""The lab's grids as a Markdown document."""

import datetime
import os
import statistics
import textwrap

from grid_cases import RATE, tunes
from grid_runs import ITERATIONS, GridResults, GridRun
from network import FAIR_QUEUE_BYTES
from raw_stream import RawStream
from report import aligned, machine, percent
from targets import Verdict

STEP_ERROR_MAX = 0.05
SETTINGS_SHARE = 0.8
GAIN_SHARE = 0.9
BYTES_ERROR_MAX = 0.02
FAMILY_ERROR_MAX = 0.05
FIRST = 3
TUNED_SHARE = 0.9
TUNE_MEDIAN_MAX, TUNE_WORST_MAX = 0.05, 0.15


def measured(runs: list[GridRun]) -> list[GridRun]:
    return [run for run in runs if run.measured]


def setting_targets(results: GridResults) -> list[Verdict]:
    runs = measured(results.settings)
    close = sum(abs(run.error()) <= STEP_ERROR_MAX for run in runs)
    return [Verdict("Settings whose exposed communication is as predicted within 5 % of the step", "8 of 10",
                    f"{close} of {len(runs)}", bool(runs) and close >= SETTINGS_SHARE * len(runs))] if runs else []


def bytes_targets(results: GridResults) -> list[Verdict]:
    runs = measured(results.runs())
    if not runs:
        return []
    worst = max(runs, key=lambda run: abs(run.bytes_error()))
    return [Verdict("Bytes that the kernel counts on a NIC in a step against the equations, furthest off",
                    "within 2 %", f"{worst.bytes_error():+.2%} ({worst.name})",
                    abs(worst.bytes_error()) <= BYTES_ERROR_MAX)]


def gain(pair: tuple[GridRun, GridRun]) -> float:
    """What overlaps save, measured, over what they save as predicted."""
    off, on = pair
    return (off.seconds() - on.seconds()) / (off.predicted - on.predicted)


def gain_targets(results: GridResults) -> list[Verdict]:
    return [Verdict(f"Overlaps, {pair[0].name.removesuffix(', off')}: seconds saved, measured over predicted",
                    f"at least {GAIN_SHARE}", f"{gain(pair):.3f}", gain(pair) >= GAIN_SHARE)
            for pair in results.pairs if len(measured(list(pair))) == 2]


def derived_of(run: GridRun) -> float:
    return run.derived + run.beside


def family_targets(results: GridResults) -> list[Verdict]:
    runs = {run.name: run for run in measured(results.families)}
    cube, found = runs.pop("3-D", None), []
    for run in runs.values() if cube else ():
        derived, ratio = derived_of(run) / derived_of(cube), run.waited() / cube.waited()
        found.append(Verdict(f"{run.name} over the cube: time of communication against the derived ratio of volumes",
                             f"{derived:.3f} within 5 %", f"{ratio:.3f}, {ratio / derived - 1:+.1%}",
                             abs(ratio / derived - 1) <= FAMILY_ERROR_MAX))
    return found


def place_of_best(grids: list[dict], predicted: str) -> int:
    """Of the grid that was measured to be the fastest, by a prediction, from 1."""
    best = min(grids, key=lambda grid: grid["measured_seconds"])
    return 1 + sum(grid[predicted] < best[predicted] for grid in grids)


def tuned(results: GridResults) -> dict[str, list[dict]]:
    found = {name: [grid for grid in grids if "error" not in grid] for name, grids in results.tunes.items()}
    return {name: grids for name, grids in found.items() if grids}


def tune_errors(grids: list[dict], predicted: str) -> list[float]:
    return [grid[predicted] / grid["measured_seconds"] - 1 for grid in grids]


def tune_targets(results: GridResults) -> list[Verdict]:
    clusters, found = tuned(results), []
    if not clusters:
        return []
    failed = sum("error" in grid for grids in results.tunes.values() for grid in grids)
    found.append(Verdict("`tune`: grids that could not be rehearsed", "none", f"{failed}", failed == 0))
    for predicted, what in (("predicted_seconds", "simulated program"), ("cost_model_seconds", "cost model")):
        first = sum(place_of_best(grids, predicted) <= FIRST for grids in clusters.values())
        found.append(Verdict(f"`tune`, {what}: clusters whose measured best grid is among its first three",
                             "9 of 10", f"{first} of {len(clusters)}", first >= TUNED_SHARE * len(clusters)))
        errors = [abs(error) for grids in clusters.values() for error in tune_errors(grids, predicted)]
        median, worst = statistics.median(errors), max(errors)
        found.append(Verdict(f"`tune`, {what}: error of a step's time, median", "5 %", f"{median:.1%}",
                             median <= TUNE_MEDIAN_MAX))
        found.append(Verdict("the same, worst", "15 %", f"{worst:.1%}", worst <= TUNE_WORST_MAX))
    return found


def verdicts(results: GridResults) -> list[Verdict]:
    errors = [f"{run.name}: {error}" for run in results.runs() for error in run.errors]
    ended = [Verdict("Rehearsals that end, of steps on named grids", "all", "; ".join(errors) or "all", not errors)]
    return [*ended, *setting_targets(results), *gain_targets(results), *bytes_targets(results),
            *family_targets(results), *tune_targets(results)]


def run_rows(runs: list[GridRun]) -> list[list[str]]:
    return [[run.name, run.grid, f"{run.predicted:.3f}", f"{run.exposed:.3f}", f"{run.seconds():.3f}",
             "-" if run.has_stages else f"{run.waited():.3f}", percent(run.error()), f"{run.bytes_error():+.2%}",
             f"{run.beside / (run.sent + run.beside):.0%}"] for run in measured(runs)]


RUN_HEADER = ["Setting", "Grid", "Predicted, s", "of it exposed", "Measured, s", "of it beside ops", "Prediction",
              "Counted/equations", "Not in equations"]


def family_rows(runs: list[GridRun]) -> list[list[str]]:
    found = measured(runs)
    cube = found[-1]
    return [[run.name, run.grid, f"{derived_of(run) / 1e6:.1f}", f"{derived_of(run) / derived_of(cube):.3f}",
             f"{run.waited():.3f}", f"{run.waited() / cube.waited():.3f}", f"{run.seconds():.3f}",
             f"{run.bytes_error():+.2%}"] for run in found]


def tune_section(results: GridResults) -> str:
    titles = {case.name: case.title for case in tunes()}
    rows = [[name, titles[name], str(len(grids)), min(grids, key=lambda grid: grid["measured_seconds"])["grid"],
             str(place_of_best(grids, "predicted_seconds")), str(place_of_best(grids, "cost_model_seconds")),
             f"{statistics.median(map(abs, tune_errors(grids, 'predicted_seconds'))):.1%}",
             f"{max(tune_errors(grids, 'predicted_seconds'), key=abs):+.1%}",
             f"{max(tune_errors(grids, 'cost_model_seconds'), key=abs):+.1%}"]
            for name, grids in tuned(results).items()]
    if not rows:
        return ""
    text = "\n## `grid tune`: every grid of a cluster\n\n" + aligned(
        ["Cluster", "What it is", "Grids", "Fastest", "Place, program", "Place, cost model", "Error, median", "Worst",
         "Worst, cost model"], rows)
    for name, grids in tuned(results).items():
        text += f"\n{name}:\n\n" + aligned(
            ["Grid", "Cost model, s", "Predicted, s", "Measured, s", "Prediction"],
            [[grid["grid"], f"{grid['cost_model_seconds']:.3f}", f"{grid['predicted_seconds']:.3f}",
              f"{grid['measured_seconds']:.3f}", percent(grid["predicted_seconds"] / grid["measured_seconds"] - 1)]
             for grid in sorted(grids, key=lambda grid: grid["measured_seconds"])])
    return text


def opening(command: str, rounds: int, streams: dict[int, RawStream]) -> str:
    load = os.getloadavg()[2]
    text = (f"By `{command}`, {datetime.date.today()}, on {machine()}, with a load of {load:.0f} in the last quarter of "
            f"an hour. Hosts are network namespaces of one machine with NICs of {RATE} Mbit/s and less, of which payloads "
            f"get {streams[RATE].rate_share:.1%}. Ports keep a queue of {FAIR_QUEUE_BYTES >> 10} KiB for each peer, since "
            "the planner's ports are shared max-min fairly: in exchanges of eight hosts that are as short as these, TCP "
            "takes much longer over ports with one queue for all. Tensors are real and checksummed; ops only take their "
            f"time. Processes run at nice -19, before all else that the machine does. {rounds} rounds in turns of {ITERATIONS} steps each (`tune`: grid after grid, {ITERATIONS} steps), "
            "medians of all steps. What is cut how, and the overlaps: [grids.md](../grids.md).")
    return textwrap.fill(text, 120, break_on_hyphens=False)


def document(results: GridResults, command: str, rounds: int, streams: dict[int, RawStream]) -> str:
    text = f"# Grids in the network lab\n\n{opening(command, rounds, streams)}\n\n## Targets\n\n"
    text += aligned(["Target", "Wished", "Measured", ""],
                    [[verdict.what, verdict.target, verdict.measured, "met" if verdict.met else "**missed**"]
                     for verdict in verdicts(results)])
    if rows := run_rows(results.settings):
        text += f"\n## Settings\n\n{aligned(RUN_HEADER, rows)}\n"
        text += textwrap.fill("**Beside ops**: the step less the ops' times; with stages, which wait for each other, it "
                              "says nothing. **Prediction**: (predicted - measured) / measured; as ops take what is "
                              "predicted, all of it is of what is exposed. **Counted/equations**: the NIC that is "
                              "furthest off (with stages: all NICs), in bytes over what a raw stream adds. The equations "
                              "are of blocks: what logits, vectors, norms and the loss send is added as planned; its part "
                              "is the last column.", 120) + "\n"
    if rows := run_rows([run for pair in results.pairs for run in pair]):
        text += f"\n## Overlaps on and off\n\n{aligned(RUN_HEADER, rows)}\n"
        text += "The ratio is that of communication to computation, as the cost model has them without overlaps.\n"
    if len(measured(results.families)) == 3:
        text += "\n## The cube against 1-D and 2-D\n\n" + aligned(
            ["Form", "Grid", "Derived, MB", "over the cube", "Communication, s", "over the cube", "Step, s",
             "Counted/equations"], family_rows(results.families)) + "\n"
        text += textwrap.fill("Derived: 2 m ((c-1) n + (r-1) k) / (c r z) elements of activations of each matrix, with "
                              "m = 4 h, and twice (z-1) k n / (c r z) of weights, gathered once, and what logits and "
                              "vectors send. Eight devices have no square, and Crossmesh has no SUMMA: 2-D is the grid of "
                              "two axes. Nothing overlaps.", 120) + "\n"
    return text + tune_section(results)
