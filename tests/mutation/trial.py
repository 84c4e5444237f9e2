"""One run from the choice of mutants to the report."""

import pathlib
import random
from dataclasses import dataclass
from typing import Optional

import report
import suites
from modules import Module
from mutants import OPERATORS, Mutant
from planting import Planting
from report import Report
from suites import Base, Project

Candidate = tuple[Module, Mutant]


@dataclass(frozen=True)
class Choice:
    """Which mutants are planted. No count: all that there are."""

    seed: int
    count: Optional[int] = None
    operators: tuple[str, ...] = OPERATORS

    def of(self, found: list[Candidate]) -> list[Candidate]:
        """At random, in the order in which they are planted."""
        fitting = [(module, mutant) for module, mutant in found if mutant.operator in self.operators]
        random.Random(self.seed).shuffle(fitting)
        return fitting[:self.count]


@dataclass(frozen=True)
class Terms:
    """After how many minutes no other mutant is planted, where results go, and what share of mutants is to be found."""

    minutes: Optional[float] = None
    json: Optional[pathlib.Path] = None
    share_min: Optional[float] = None

    def are_met(self, done: Report) -> bool:
        share = report.share_found(done.results)
        return self.share_min is None or share is None or share >= self.share_min


def suites_of(found: list[Candidate]) -> list[str]:
    """Each once, in the order in which they are needed."""
    return list(dict.fromkeys(suite for module, _ in found for suite in module.suites))


def measured(project: Project, names: list[str]) -> dict[str, Base]:
    """All suites without a bug. Raises Failure."""
    bases = {}
    for name in names:
        print(f"{name}: building and running it without a bug", flush=True)
        bases[name] = suites.measure(project, name)
    return bases


def try_all(planting: Planting, found: list[Candidate], minutes: Optional[float], done: Report) -> bool:
    """Into `done`. Whether nothing ended it before its end: Ctrl-C does."""
    progress = report.Progress(len(found), 60 * minutes if minutes is not None else None)
    try:
        for module, mutant in found:
            if progress.is_over():
                break
            done.results.append(planting.outcome(module.folder, mutant, module.suites))
            progress.show(done.results)
    except KeyboardInterrupt:
        return False
    finally:
        progress.end()
    return True


def judge(project: Project, found: list[Candidate], terms: Terms, done: Report) -> int:
    """The exit status. Raises Failure if suites do not pass without a bug, before the first one or after the last."""
    names = suites_of(found)
    planting = Planting(project, measured(project, names))
    is_whole = try_all(planting, found, terms.minutes, done)
    print("\n" + done.text(), end="", flush=True)
    if terms.json:
        terms.json.write_text(done.json())
    if not is_whole:
        return 130
    # What was planted must be gone.
    measured(project, names)
    return 0 if terms.are_met(done) else 1
