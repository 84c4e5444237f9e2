"""The last result of each row, as a page."""

import os
import re
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass

from programs import ROOT

PAGE = ROOT / "docs" / "reliability" / "last-run.md"

TEXT = """# The last run of what takes long

Of each row of `tests/reliability/run` the last result that was written down: the [targets](targets.md) that it shows,
its length, what was reached. Lengths are parameters of the command, `--list` has those of a whole run. Load is how many
processes were ready to run beside it when it began: rows whose targets are times miss them on a machine that others
use.

    tests/reliability/run --build-dir build/release --write

{rows}"""


def item(text: str) -> str:
    return textwrap.fill(f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


@dataclass(frozen=True)
class Result:
    name: str
    targets: str
    length: str
    seconds: float
    load: float
    told: Sequence[str]
    failures: Sequence[str]

    def __str__(self) -> str:
        lines = [f"## {self.name}\n",
                 f"{self.targets}: {self.length}, {self.seconds:.0f} s, {time.strftime('%Y-%m-%d')}, "
                 f"{os.cpu_count()} processors, load {self.load:.1f}.\n",
                 *(item(line) for line in self.told),
                 # Where the programs have written more is of no use to others.
                 *(item(f"**missed**: {line.partition(', see ')[0]}") for line in self.failures)]
        return "\n".join(lines) + "\n"


def write(results: Sequence[Result], order: Sequence[str]) -> None:
    page = PAGE.read_text() if PAGE.exists() else ""
    found = {section.partition("\n")[0]: f"## {section}" for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]}
    for result in results:
        found[result.name] = str(result)
    PAGE.write_text(TEXT.format(rows="\n".join(found[name].strip() + "\n" for name in order if name in found)))
    print(f"wrote {PAGE.relative_to(ROOT)}")
