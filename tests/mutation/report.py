"""What became of the mutants: tables, survivors, and all of it as JSON."""

import dataclasses
import json
import sys
import time
from dataclasses import dataclass
from typing import Any, Iterator, Optional

import planting
from mutants import OPERATORS, Mutant
from planting import Outcome, Result


def share_found(results: list[Result]) -> Optional[float]:
    """Of those that count; none if there are none."""
    counted = [result for result in results if result.outcome in planting.COUNTED]
    survived = sum(result.outcome == Outcome.SURVIVED for result in counted)
    return 1 - survived / len(counted) if counted else None


def described(mutant: Mutant) -> str:
    return f"{mutant.id}  in {mutant.function}\n    {mutant.diff}"


def rows(title: str, names: list[str], by_name: dict[str, list[Result]]) -> Iterator[str]:
    """A table with a line for each name that has results."""
    width = max(len(name) for name in (title, "all", *names))
    yield f"{title:{width}}  {'PLANTED':>7}  {'FOUND':>6}  {'HANGING':>7}  {'SURVIVED':>8}  SHARE FOUND"
    everything = [result for name in names for result in by_name.get(name, [])]
    for name, results in [*((name, by_name.get(name, [])) for name in names), ("all", everything)]:
        counts = {outcome: sum(result.outcome == outcome for result in results) for outcome in planting.COUNTED}
        share = share_found(results)
        if share is not None:
            yield (f"{name:{width}}  {sum(counts.values()):7}  {counts[Outcome.FOUND]:6}  {counts[Outcome.HANGING]:7}  "
                   f"{counts[Outcome.SURVIVED]:8}  {100 * share:9.1f} %")


@dataclass
class Report:
    """Of one run. `known`: how many mutants the list of equivalent ones left out."""

    seed: int
    known: int
    results: list[Result] = dataclasses.field(default_factory=list)

    def of(self, outcome: Outcome) -> list[Result]:
        return sorted((result for result in self.results if result.outcome == outcome),
                      key=lambda result: (result.mutant.path, result.mutant.line, result.mutant.column))

    def text(self) -> str:
        by_module: dict[str, list[Result]] = {}
        by_operator: dict[str, list[Result]] = {}
        for result in self.results:
            by_module.setdefault(result.module, []).append(result)
            by_operator.setdefault(result.mutant.operator, []).append(result)
        lines = [*rows("MODULE", sorted(by_module), by_module), "", *rows("OPERATOR", list(OPERATORS), by_operator), "",
                 f"Not counted: {len(self.of(Outcome.NO_PROGRAM))} not a program, "
                 f"{len(self.of(Outcome.SAME_PROGRAM))} the same program; "
                 f"{self.known} on the list of equivalent ones were left out. Seed {self.seed}."]
        lines += self._listed("Survivors", Outcome.SURVIVED, "passed")
        lines += self._listed("Found by hanging alone", Outcome.HANGING, "ran")
        return "\n".join(lines) + "\n"

    def _listed(self, title: str, outcome: Outcome, verb: str) -> Iterator[str]:
        if listed := self.of(outcome):
            yield f"\n{title}"
            for result in listed:
                yield f"{described(result.mutant)}\n    {verb}: {', '.join(result.suites)}"

    def json(self) -> str:
        results: list[dict[str, Any]] = [
            {"id": result.mutant.id, "module": result.module, "outcome": result.outcome.value,
             "suites": result.suites, "seconds": round(result.seconds, 2), **dataclasses.asdict(result.mutant)}
            for result in self.results]
        return json.dumps({"seed": self.seed, "equivalent": self.known, "share_found": share_found(self.results),
                           "results": results}, indent=1) + "\n"


class Progress:
    """A line that says how far a run is and when it will end; on a terminal it is written over."""

    def __init__(self, count: int, seconds_max: Optional[float]) -> None:
        self._count, self._begin = count, time.time()
        self._last_end = self._begin + seconds_max if seconds_max is not None else None

    def is_over(self) -> bool:
        return self._last_end is not None and time.time() >= self._last_end

    def line(self, results: list[Result]) -> str:
        counts = [f"{sum(result.outcome == outcome for result in results)} {outcome.value}" for outcome in Outcome]
        end = time.time() + (time.time() - self._begin) / max(1, len(results)) * (self._count - len(results))
        end = min(end, self._last_end) if self._last_end is not None else end
        clock = time.strftime("%H:%M", time.localtime(end))
        return f"{len(results)}/{self._count}: {', '.join(counts)}; ends at {clock}"

    def show(self, results: list[Result]) -> None:
        """After each mutant. A survivor is told at once."""
        is_terminal = sys.stdout.isatty()
        before, after = ("\r\033[K", "") if is_terminal else ("", "\n")
        if results and results[-1].outcome == Outcome.SURVIVED:
            print(f"{before}survived {described(results[-1].mutant)}")
        print(before + self.line(results), end=after, flush=True)

    def end(self) -> None:
        if sys.stdout.isatty():
            print()
