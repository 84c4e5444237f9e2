"""What the lab's figures must be: the targets of the project, each with what was measured."""

import statistics
from dataclasses import dataclass

from cases import SINGLE_SENDER
from measure import LARGE_BYTES, MEBI, CaseResult

OURS = "relay"
COUNTER_ERROR_MAX = 0.02
OTHER_BYTES_MAX = 2 * MEBI
# Case, the strategy and case compared with, and how many times as long it must take. A published broadcast goes over one
# NIC of a host; our workers would give it all.
FASTER = (("single_4x2", "send_recv", "single_4x2", 7.0), ("striping", "broadcast_greedy", "striping", 1.25),
          ("two_nics", "broadcast_greedy", "one_of_two", 1.85))
FASTER_THAN_GLOO = ("replicas_4x2", 1.9)


@dataclass(frozen=True)
class Verdict:
    what: str
    target: str
    measured: str
    met: bool


def all_but(what: str, failed: list[str], count: int) -> Verdict:
    measured = f"{count - len(failed)} of {count}" + (f" (not {', '.join(failed)})" if failed else "")
    return Verdict(what, "all", measured, not failed)


def commit_targets(results: list[CaseResult]) -> list[Verdict]:
    runs = [(result.name, run) for result in results for run in result.runs]
    failed = [f"{run.strategy} on {name}" for name, run in runs if not run.committed()]
    return [all_but("Runs that commit, all strategies and cases", failed, len(runs))]


def element_targets(results: list[CaseResult]) -> list[Verdict]:
    runs = [(result.name, run) for result in results for run in result.runs if run.wrong is not None]
    wrong = [f"{run.strategy} on {name}: {run.wrong[0]}" for name, run in runs if run.wrong]
    return [all_but("Of these, runs after which every element is right", wrong, len(runs))] if runs else []


def ratio_targets(results: list[CaseResult]) -> list[Verdict]:
    found = []
    for single, most, what in ((True, 1.03, "the single-sender suite"), (False, 1.05, "every other case")):
        ratios = {result.name: result.ratio(OURS) for result in results
                  if (result.group == SINGLE_SENDER) == single and result.busiest_bytes >= LARGE_BYTES}
        for name in [name for name, ratio in ratios.items() if ratio is None]:
            found.append(Verdict(f"`{OURS}` on {name}", "ends", "failed", False))
            del ratios[name]
        if ratios:
            worst = max(ratios, key=ratios.get)
            found.append(Verdict(f"`{OURS}` on {what}: time / bound", f"at most {most}",
                                 f"{ratios[worst]:.3f} ({worst})", ratios[worst] <= most))
    return found


def counter_targets(results: list[CaseResult]) -> list[Verdict]:
    runs = [(result.name, run) for result in results for run in result.of(OURS)]
    large = [(name, run.large_error()) for name, run in runs if run.large_error() is not None]
    small = [(name, run.small_excess()) for name, run in runs]
    found = []
    if large:
        name, error = max(large, key=lambda entry: abs(entry[1]))
        found.append(Verdict(f"Bytes that the kernel counts against bytes planned, `{OURS}`, "
                             "directions with at least 64 MiB", "within 2 %", f"{error:+.2%} ({name})",
                             abs(error) <= COUNTER_ERROR_MAX))
    if small:
        name, excess = max(small, key=lambda entry: entry[1])
        found.append(Verdict(f"Bytes over the plan in other directions, `{OURS}`", "under 2 MiB",
                             f"{excess / MEBI:.2f} MiB ({name})", excess < OTHER_BYTES_MAX))
    return found


def comparison_targets(results: list[CaseResult]) -> list[Verdict]:
    found = []
    by_name = {result.name: result for result in results}
    for name, other, other_name, least in FASTER:
        result, compared = by_name.get(name), by_name.get(other_name)
        if result and compared and result.seconds(OURS) and compared.seconds(other):
            ratio = compared.seconds(other) / result.seconds(OURS)
            ours = f"`{OURS}`" if other_name == name else f"`{OURS}` on {name}"
            found.append(Verdict(f"`{other}` on {other_name}: time / {ours}", f"at least {least}", f"{ratio:.2f}",
                                 ratio >= least))
    name, least = FASTER_THAN_GLOO
    result = by_name.get(name)
    if result and result.gloo and result.seconds(OURS):
        way = min(result.gloo, key=result.gloo_ratio)
        ratio = result.gloo_ratio(way) / result.ratio(OURS)
        found.append(Verdict(f"Gloo's best way on {name}: time / `{OURS}`", f"at least {least}",
                             f"{ratio:.2f} ({way}, which takes {result.gloo_ratio(way):.2f} x bound)", ratio >= least))
    return found


def prediction_targets(results: list[CaseResult]) -> list[Verdict]:
    errors = {(result.name, strategy): abs(error) for result in results for strategy in result.strategies()
              if (error := result.prediction_error(strategy)) is not None}
    if not errors:
        return []
    median, worst = statistics.median(errors.values()), max(errors, key=errors.get)
    return [Verdict("Predicted against measured, all strategies and cases: median error", "5 %", f"{median:.1%}",
                    median <= 0.05),
            Verdict("The same, worst", "15 %", f"{errors[worst]:.1%} ({worst[1]} on {worst[0]})",
                    errors[worst] <= 0.15)]


def outcome_verdicts(results: list[CaseResult]) -> list[Verdict]:
    """For runs of which neither times nor counters mean anything."""
    return [*commit_targets(results), *element_targets(results)]


def all_verdicts(results: list[CaseResult]) -> list[Verdict]:
    """All that are measured."""
    return [*outcome_verdicts(results), *ratio_targets(results), *counter_targets(results),
            *comparison_targets(results), *prediction_targets(results)]
