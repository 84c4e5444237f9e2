"""The list of mutants that change no behaviour, in a form that outlives the moving of lines.

Paragraphs of five lines, each a name and what it is; `diff` is as the report prints it:

    file      common/plan/proof.cc
    function  ProveMemory
    operator  comparison
    diff      if (total [-<=-]{+<+} proof.peak_device_bytes) continue;
    why       Of two devices with the same peak either may be named.

Lines that begin with # are comments.
"""

import pathlib
from dataclasses import dataclass

from failure import Failure
from mutants import OPERATORS, Mutant

LIST = pathlib.Path(__file__).resolve().parent / "equivalent.txt"
NAMES = ["file", "function", "operator", "diff", "why"]


@dataclass(frozen=True)
class Equivalent:
    file: str
    function: str
    operator: str
    diff: str
    why: str

    def is_of(self, mutant: Mutant) -> bool:
        return (self.file, self.function, self.operator, self.diff) == (
            mutant.path, mutant.function, mutant.operator, mutant.diff)


def entry(paragraph: list[str]) -> Equivalent:
    words = [line.split(None, 1) for line in paragraph]
    if [word[0] for word in words] != NAMES or any(len(word) == 1 for word in words):
        raise Failure(f"{LIST.name}: expected the lines {', '.join(NAMES)}, found:\n" + "\n".join(paragraph))
    found = Equivalent(*(word[1].strip() for word in words))
    if found.operator not in OPERATORS:
        raise Failure(f"{LIST.name}: no operator {found.operator}; there are {', '.join(OPERATORS)}")
    return found


def parse(text: str) -> list[Equivalent]:
    """Raises Failure where a paragraph is not as above."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    paragraphs = "\n".join(lines).split("\n\n")
    return [entry(paragraph.strip().splitlines()) for paragraph in paragraphs if paragraph.strip()]


@dataclass(frozen=True)
class Sorted:
    """Mutants without those on the list, how many those were, and the entries that are of no mutant any more."""

    mutants: list[Mutant]
    known: int
    stale: list[Equivalent]


def sort_out(mutants: list[Mutant], entries: list[Equivalent]) -> Sorted:
    """An entry of a file that has no mutants at all here is not stale: its module may not be among those tried."""
    kept = [mutant for mutant in mutants if not any(entry.is_of(mutant) for entry in entries)]
    files = {mutant.path for mutant in mutants}
    stale = [entry for entry in entries
             if entry.file in files and not any(entry.is_of(mutant) for mutant in mutants)]
    return Sorted(kept, len(mutants) - len(kept), stale)
