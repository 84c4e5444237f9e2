"""Builds, tests, and says what each phase took. For scripts/test, which installs what is missing first."""

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field

import test_reports

ROOT = pathlib.Path(__file__).resolve().parent.parent
LABELS = ("unit", "allocation", "service", "live", "lab", "gpu", "install", "python", "lint")


@dataclass(frozen=True)
class Build:
    """A preset, the targets of it that are built (all, if none is named), and the labels of the tests that run."""

    preset: str
    targets: tuple[str, ...]
    labels: tuple[str, ...]

    def report(self, label: str) -> pathlib.Path:
        return pathlib.Path("build", self.preset, f"junit-{label}.xml")


# What continuous integration builds: nothing is compiled or run twice without need. What runs in one process does so under
# sanitizers, unless it counts allocations, and what starts the daemons does so with those that users run.
CI = (
    Build("asan", ("unit_tests", "service_tests"), ("unit", "service")),
    Build("release", ("programs", "allocation_tests", "live_tests", "lab_tests", "gpu_tests", "install_tests",
                      "python_tests", "lint_tests"),
          ("allocation", "live", "lab", "gpu", "install", "python", "lint")),
    Build("tsan", ("unit_tests",), ("unit",)),
)


@dataclass(frozen=True)
class Phase:
    name: str
    wall_seconds: float
    processor_seconds: float


def processor_seconds() -> float:
    """Of all commands that have ended, and what they started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclass
class Phases:
    done: list[Phase] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def run(self, name: str, *command: str) -> bool:
        print(f"=== {name}: {' '.join(command)}", flush=True)
        wall, processor = time.monotonic(), processor_seconds()
        succeeded = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
        self.done.append(Phase(name, time.monotonic() - wall, processor_seconds() - processor))
        if not succeeded:
            self.failed.append(name)
        return succeeded

    def show(self) -> None:
        rows = [*self.done, Phase("all", sum(phase.wall_seconds for phase in self.done),
                                  sum(phase.processor_seconds for phase in self.done))]
        width = max(len(row.name) for row in rows)
        print(f"\n{'PHASE':{width}}  {'TIME':>8}  PROCESSOR")
        for row in rows:
            print(f"{row.name:{width}}  {row.wall_seconds:6.0f} s  {row.processor_seconds:7.0f} s")
        # A build may fail and its tests not run, so both are told and both count.
        for name in self.failed:
            print(f"FAILED {name}")


def run(build: Build, phases: Phases) -> None:
    for label in build.labels:
        test_reports.clear(ROOT / build.report(label))
    targets = ("--target", *build.targets) if build.targets else ()
    if not phases.run(f"{build.preset}: configure", "cmake", "--preset", build.preset):
        return
    if not phases.run(f"{build.preset}: build", "cmake", "--build", f"build/{build.preset}", *targets):
        return
    for label in build.labels:
        phases.run(f"{build.preset}: {label} tests", "ctest", "--preset", build.preset,
                   "--label-regex", f"^{label}$", "--output-junit", str(ROOT / build.report(label)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test", description="Builds and tests Crossmesh.")
    parser.add_argument("labels", nargs="*", metavar="LABEL",
                        help=f"of the tests to build and run: {', '.join(LABELS)}; all, if none is named")
    parser.add_argument("--preset", default="test", help="what to build (test)")
    parser.add_argument("--ci", action="store_true", help="what continuous integration runs: .ci/run")
    parser.add_argument("--setup-seconds", type=float, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.labels) - set(LABELS):
        parser.error(f"no such label: {' '.join(sorted(unknown))}; there are {' '.join(LABELS)}")

    os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count()))
    # One more than there are processors, since some tests wait.
    os.environ.setdefault("CTEST_PARALLEL_LEVEL", str(os.cpu_count() + 1))
    labels = tuple(arguments.labels)
    one = Build(arguments.preset, tuple(f"{label}_tests" for label in labels), labels or LABELS)
    builds = CI if arguments.ci else (one,)

    phases = Phases([Phase("setup", arguments.setup_seconds, 0)])
    for build in builds:
        run(build, phases)
    if arguments.ci:
        phases.run("clang-tidy", "scripts/tidy")
    phases.show()
    passed = test_reports.summarize([build.report(label) for build in builds for label in build.labels])
    return 0 if passed and not phases.failed else 1


if __name__ == "__main__":
    sys.exit(main())
