"""Plants one bug at a time and asks the suites whether they see it."""

import enum
import time
from dataclasses import dataclass
from typing import Optional

import suites
from mutants import Mutant
from suites import Base, Project


class Outcome(enum.Enum):
    """What became of a mutant."""

    FOUND = "found"
    HANGING = "found by hanging"  # weak: no test says what is wrong
    SURVIVED = "survived"
    NO_PROGRAM = "not a program"  # the compiler finds it, or one of its warnings does
    SAME_PROGRAM = "same program"  # the compiler makes the same of both


# Those by which tests are judged.
COUNTED = (Outcome.FOUND, Outcome.HANGING, Outcome.SURVIVED)


@dataclass(frozen=True)
class Result:
    """`suites`: those that were asked, in order; the last one is the one that found it, if any did."""

    module: str
    mutant: Mutant
    outcome: Outcome
    suites: tuple[str, ...]
    seconds: float


class Planting:
    """A project, and its suites as they are without a bug."""

    def __init__(self, project: Project, bases: dict[str, Base]) -> None:
        self._project, self._bases = project, bases
        self._objects = {path: suites.digest(made) for path, made in project.objects.items() if made.exists()}

    def plant(self, mutant: Mutant) -> bytes:
        """Returns what the file was before."""
        path = self._project.root / mutant.path
        before = path.read_bytes()
        path.write_bytes(mutant.planted_in(before))
        return before

    def outcome(self, module: str, mutant: Mutant, asked: tuple[str, ...]) -> Result:
        """Whatever happens, the file is restored; its time is a new one, so that it is compiled again."""
        begin = time.monotonic()
        before = self.plant(mutant)
        try:
            outcome, count = self._ask(mutant, asked)
        finally:
            (self._project.root / mutant.path).write_bytes(before)
        return Result(module, mutant, outcome, asked[:count], time.monotonic() - begin)

    def _ask(self, mutant: Mutant, asked: tuple[str, ...]) -> tuple[Outcome, int]:
        """And how many suites were built."""
        are_same = True
        for count, suite in enumerate(asked, 1):
            if not suites.build(self._project, suite):
                return Outcome.NO_PROGRAM, count
            if suites.digest(self._project.programs[suite]) == self._bases[suite].digest:
                continue
            are_same = False
            if seen := self._seen_by(suite):
                return seen, count
        if are_same and self._is_same_object(mutant):
            return Outcome.SAME_PROGRAM, len(asked)
        return Outcome.SURVIVED, len(asked)

    def _seen_by(self, suite: str) -> Optional[Outcome]:
        status = suites.test(self._project, suite, self._project.limits.seconds(self._bases[suite].seconds))
        if status is None:
            return Outcome.HANGING
        return None if status == 0 else Outcome.FOUND

    def _is_same_object(self, mutant: Mutant) -> bool:
        """A program may be the same because it has nothing of the source. Of a header only programs can tell."""
        made = self._project.objects.get(mutant.path)
        return made is None or suites.digest(made) == self._objects.get(mutant.path)
