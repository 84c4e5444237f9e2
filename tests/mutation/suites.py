"""Building and running test suites, within limits of time and memory."""

import hashlib
import os
import pathlib
import resource
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Optional

from failure import Failure

# Random tests are to find a bug again that they found once.
ENVIRONMENT = {"CROSSMESH_TEST_SEED": "1"}
# Of which a bug may take all that it gets.
MEMORY_BYTES_MAX = 8 << 30


@dataclass(frozen=True)
class Limits:
    """A suite hangs when it takes `factor` times as long as without a bug, but never before `seconds_min`."""

    factor: float = 5
    seconds_min: float = 10
    build_seconds: float = 1800

    def seconds(self, base_seconds: float) -> float:
        return max(self.seconds_min, self.factor * base_seconds)


@dataclass(frozen=True)
class Project:
    """What is built and tested. `build`: a command that lacks its target; `objects`: what becomes of a source alone."""

    root: pathlib.Path
    logs: pathlib.Path
    build: tuple[str, ...]
    programs: dict[str, pathlib.Path]
    objects: dict[str, pathlib.Path] = field(default_factory=dict)
    limits: Limits = Limits()


def set_limits() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


def run(command: list[str], folder: pathlib.Path, seconds: float, log: Optional[pathlib.Path] = None) -> Optional[int]:
    """The exit status, or none if the command was ended after `seconds`, with all that it had started."""
    with open(log or os.devnull, "wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=os.environ | ENVIRONMENT, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=set_limits)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def build(project: Project, target: str, log: Optional[pathlib.Path] = None) -> bool:
    return run([*project.build, target], project.root, project.limits.build_seconds, log) == 0


def test(project: Project, suite: str, seconds: float, log: Optional[pathlib.Path] = None) -> Optional[int]:
    command = [str(project.programs[suite]), "--gtest_fail_fast", "--gtest_brief=1"]
    return run(command, project.root, seconds, log)


def digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Base:
    """A suite without a bug: how long it takes, and what its program is."""

    seconds: float
    digest: str


def measure(project: Project, suite: str) -> Base:
    """Builds and runs a suite without a bug. Raises Failure."""
    log = project.logs / f"{suite}.log"
    if not build(project, suite, log):
        raise Failure(f"{suite} cannot be built without a bug: {log}")
    begin = time.monotonic()
    status = test(project, suite, project.limits.build_seconds, log)
    if status != 0:
        raise Failure(f"{suite} does not pass without a bug: {log}")
    return Base(time.monotonic() - begin, digest(project.programs[suite]))
