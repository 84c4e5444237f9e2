"""How the programs of a row are run, and what is read from what they print."""

import json
import os
import pathlib
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Setting:
    build_dir: pathlib.Path
    logs: pathlib.Path  # a file for what each program prints
    seed: int
    end: float  # by the monotonic clock: nothing runs longer
    writes: bool = False  # pages
    release_before: pathlib.Path | None = None  # the folder with its programs


@dataclass
class Outcome:
    told: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


Run = Callable[[Setting, int], Outcome]


@dataclass(frozen=True)
class Printed:
    text: str
    failure: str | None  # why it did not end as it should


def execute(setting: Setting, name: str, arguments: Sequence[str | pathlib.Path],
            environment: Mapping[str, str]) -> Printed:
    if not pathlib.Path(arguments[0]).exists() and "/" in str(arguments[0]):
        return Printed("", f"{name}: there is no {arguments[0]}, expected all targets to be built")
    log = setting.logs / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".log")
    with log.open("w") as output:
        process = subprocess.Popen(arguments, cwd=ROOT, env=os.environ | dict(environment), stdout=output,
                                   stderr=subprocess.STDOUT)
        try:
            status = process.wait(max(setting.end - time.monotonic(), 1))
            failure = None if status == 0 else f"{name}: exit status {status}, see {log}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            failure = f"{name}: was not done when the time was over, see {log}"
    return Printed(log.read_text(errors="replace"), failure)


@dataclass(frozen=True)
class InTurn:
    runs: tuple[Run, ...]

    def __call__(self, setting: Setting, length: int) -> Outcome:
        outcomes = [run(setting, length) for run in self.runs]
        return Outcome([line for outcome in outcomes for line in outcome.told],
                       [failure for outcome in outcomes for failure in outcome.failures])


@dataclass(frozen=True)
class Tests:
    """Tests of one program of GoogleTest. The length is a variable of the environment, or how often they run."""
    program: str  # below the build folder
    names: tuple[str, ...]
    variable: str | None = "CROSSMESH_CASES"  # None: they are repeated
    environment: Mapping[str, str] = field(default_factory=dict)
    tells: str | None = None  # lines with this are told
    measures: str | None = None  # "failed # ms later": of lines with this, in which # is a number, the largest is told
    setting: str = ""  # in which they run, where that is not always the same

    def __call__(self, setting: Setting, length: int) -> Outcome:
        arguments = [(setting.build_dir / self.program).resolve(), f"--gtest_filter={':'.join(self.names)}"]
        environment = {"CROSSMESH_TEST_SEED": str(setting.seed)} | dict(self.environment)
        if self.variable is None:
            arguments.append(f"--gtest_repeat={length}")
        else:
            environment[self.variable] = str(length)
        name = f"{self.program.rpartition('/')[2]} {self.names[0]} {self.setting}".strip()
        printed = execute(setting, name, arguments, environment)
        passed = sum(int(count) for count in re.findall(r"^\[  PASSED  \] (\d+) test", printed.text, re.MULTILINE))
        skipped = re.findall(r"^\[  SKIPPED \] (\S+) \(", printed.text, re.MULTILINE)
        where = f"{self.setting}: " if self.setting else ""
        outcome = Outcome([f"{where}{passed} tests passed"], [f"{where}{name} was skipped" for name in skipped])
        if self.tells is not None:
            outcome.told += [line for line in printed.text.splitlines() if self.tells in line]
        if self.measures is not None:
            outcome.told += self.largest(printed.text)
        if printed.failure is not None:
            outcome.failures.append(printed.failure)
        elif passed < len(self.names):
            outcome.failures.append(f"{passed} tests passed, expected at least {len(self.names)}: {self.names}")
        return outcome

    def largest(self, text: str) -> list[str]:
        found = [int(number) for number in re.findall(re.escape(self.measures).replace(r"\#", r"(\d+)"), text)]
        return [f"{self.measures.replace('#', str(max(found)))}: the most of {len(found)}"] if found else []


@dataclass(frozen=True)
class Script:
    """A test in Python that skips with status 77."""
    path: str
    arguments: tuple[str, ...] = ()

    def __call__(self, setting: Setting, length: int) -> Outcome:
        name = " ".join((self.path.rpartition("/")[2], *self.arguments))
        outcome = Outcome()
        for _ in range(length):
            printed = execute(setting, name, ["python3", "-B", ROOT / self.path, (setting.build_dir / "bin").resolve(),
                                              *self.arguments], {})
            if printed.failure is not None:
                outcome.failures.append(printed.failure)
                return outcome
        outcome.told.append(f"{name} passed")
        return outcome


@dataclass(frozen=True)
class Figure:
    """What a case of a benchmark must reach, if anything; of several lines of a case the worst counts."""
    case: str
    field: str  # "a.b" is b of a
    most: float | None = None
    least: float | None = None
    store: str | None = None

    def judge(self, lines: Sequence[Mapping]) -> tuple[str, bool]:
        """In words, and whether it is reached."""
        values = [value for line in lines if line.get("case") == self.case and self.store in (None, line.get("store"))
                  if (value := self.value_of(line)) is not None]
        if not values:
            return f"{self.case}, {self.field}: nothing, expected a figure", False
        worst = min(values) if self.least is not None else max(values)
        told = f"{self.case}: {self.field} {worst:.4g}"
        if self.most is not None:
            return f"{told}, expected at most {self.most:g}", worst <= self.most
        if self.least is not None:
            return f"{told}, expected at least {self.least:g}", worst >= self.least
        return told, True

    def value_of(self, line: Mapping) -> float | None:
        value = line
        for name in self.field.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


@dataclass(frozen=True)
class Benchmark:
    """A program that prints a line of JSON for each case."""
    program: str
    arguments: Callable[[Setting, int], Sequence[str]]
    figures: tuple[Figure, ...]
    derive: Callable[[Sequence[Mapping]], Sequence[Mapping]] = lambda lines: ()

    def __call__(self, setting: Setting, length: int) -> Outcome:
        arguments = [(setting.build_dir / "bin" / self.program).resolve(), *self.arguments(setting, length)]
        printed = execute(setting, f"{self.program} {self.figures[0].case}", arguments, {})
        lines = [json.loads(line) for line in printed.text.splitlines() if line.startswith("{")]
        lines += self.derive(lines)
        outcome = Outcome(failures=[printed.failure] if printed.failure is not None else [])
        for figure in self.figures:
            text, reached = figure.judge(lines)
            (outcome.told if reached else outcome.failures).append(text)
        return outcome
