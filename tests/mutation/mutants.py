"""What a mutant is: one small change of one file, with a name that stays the same from run to run."""

import bisect
import re
from dataclasses import dataclass
from typing import Optional

# In the order of tables. What each does is in operators.py.
OPERATORS = ("comparison", "negated", "unchecked", "left_dropped", "right_dropped", "statement_dropped", "plus_one",
             "minus_one", "swapped", "error_ignored")


@dataclass(frozen=True)
class Mutant:
    """The bytes [begin, end) of file `path` become `replacement`. `function` is the one around it."""

    path: str
    line: int
    column: int
    operator: str
    function: str
    begin: int
    end: int
    replacement: str
    diff: str

    @property
    def id(self) -> str:
        return f"{self.path}:{self.line}:{self.column}:{self.operator}"

    def planted_in(self, source: bytes) -> bytes:
        return source[:self.begin] + self.replacement.encode() + source[self.end:]


@dataclass(frozen=True)
class Edit:
    """A change of a source, and the offset by which its mutant is named: `at`, or where the change begins."""

    begin: int
    end: int
    replacement: str
    at: Optional[int] = None


def on_one_line(text: bytes) -> str:
    return re.sub(r"\s+", " ", text.decode())


def added(text: str) -> str:
    return f"{{+{text}+}}" if text else ""


class Source:
    """A file, by the offsets of its bytes."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path, self.content = path, content
        self._line_begins = [0, *(match.end() for match in re.finditer(b"\n", content))]

    def text(self, begin: int, end: int) -> str:
        return self.content[begin:end].decode()

    def next_character(self, offset: int) -> str:
        """The first one from `offset` on that is no white space."""
        match = re.compile(rb"\s*(.?)", re.DOTALL).match(self.content, offset)
        return match[1].decode() if match else ""

    def diff(self, edit: Edit) -> str:
        """The lines that change, as one: `if (a [-<-]{+<=+} b) return;`, as `git diff --word-diff` shows it."""
        first = self.content.rfind(b"\n", 0, edit.begin) + 1
        last = self.content.find(b"\n", edit.end)
        last = last if last >= 0 else len(self.content)
        old = on_one_line(self.content[edit.begin:edit.end])
        new = on_one_line(edit.replacement.encode())
        if old and new and old in new:
            put_before, put_after = new.split(old, 1)
            change = added(put_before) + old + added(put_after)
        else:
            change = (f"[-{old}-]" if old else "") + added(new)
        before, after = on_one_line(self.content[first:edit.begin]), on_one_line(self.content[edit.end:last])
        return (before + change + after).strip()

    def mutant(self, operator: str, function: str, edit: Edit) -> Mutant:
        at = edit.begin if edit.at is None else edit.at
        line = bisect.bisect_right(self._line_begins, at)
        return Mutant(self.path, line, at - self._line_begins[line - 1] + 1, operator, function, edit.begin, edit.end,
                      edit.replacement, self.diff(edit))
