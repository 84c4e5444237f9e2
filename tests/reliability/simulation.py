"""Simulated histories, one process for each processor, and the planted bugs."""

import os
import re
import resource
import time
from concurrent.futures import ThreadPoolExecutor

from programs import Outcome, Setting, execute

HISTORIES = "Simulation.NothingThatMustNeverBeHappens"
HISTORY_S = 540
CALM_HISTORIES = "Simulation.CalmHistoriesHaveNoViolation"
CALM_HISTORIES_WITH_FAULTS = "Simulation.CalmHistoriesWithFaultsHaveNoViolation"
CALM_SEEDS = 2  # with an etcd, and with a disk
# Seconds between two reshards, 300 of those who refresh weights, and between two faults.
CALM_PAUSES_S = ((300, None), (10, None), (300, 60), (60, 60), (60, 30))
RATE = 10_000  # times as fast as real time


def processor_time_s() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def histories(setting: Setting, seeds: int) -> Outcome:
    program = (setting.build_dir / "tests" / "simulation" / "tests_simulation_test").resolve()
    processors = min(os.cpu_count() or 1, seeds)
    begin, began = time.monotonic(), processor_time_s()

    def share(number: int) -> str | None:
        first = 1 + number * seeds // processors
        count = 1 + (number + 1) * seeds // processors - first
        return execute(setting, f"histories {first}", [program, f"--gtest_filter={HISTORIES}"],
                       {"CROSSMESH_TEST_SEED": str(first), "CROSSMESH_CASES": str(count)}).failure

    with ThreadPoolExecutor(processors) as pool:
        failures = [failure for failure in pool.map(share, range(processors)) if failure is not None]
    taken, used = time.monotonic() - begin, processor_time_s() - began
    by_clock, by_processor = seeds * HISTORY_S / taken, seeds * HISTORY_S / used
    told = (f"{seeds} histories of {HISTORY_S} s took {taken:.0f} s, {used:.0f} s of a processor: {by_clock:,.0f} and "
            f"{by_processor:,.0f} times as fast as real time")
    if by_processor < RATE:
        failures.append(f"{by_processor:,.0f} times as fast as real time, expected {RATE:,}")
    same = execute(setting, "histories again", [program, f"--gtest_filter=-{HISTORIES}"],
                   {"CROSSMESH_CASES": str(min(seeds, 50))})
    return Outcome([told], failures + ([same.failure] if same.failure is not None else []))


def calm_histories(setting: Setting, hours: int) -> Outcome:
    """How fast simulated time goes follows from what happens in it: here as much as in a cluster that is used."""
    outcome = Outcome()
    for reshard_s, fault_s in CALM_PAUSES_S:
        one = calm_history(setting, hours, reshard_s, fault_s)
        outcome.told += one.told
        outcome.failures += one.failures
    return outcome


def calm_history(setting: Setting, hours: int, reshard_s: int, fault_s: int | None) -> Outcome:
    program = (setting.build_dir / "tests" / "simulation" / "tests_simulation_test").resolve()
    test, what = CALM_HISTORIES, f"a reshard every {reshard_s} s"
    variables = {"CROSSMESH_CALM_MINUTES": str(60 * hours), "CROSSMESH_CALM_PAUSE_SECONDS": str(reshard_s)}
    if fault_s is not None:
        test, what = CALM_HISTORIES_WITH_FAULTS, f"{what} and a fault every {fault_s} s"
        variables["CROSSMESH_CALM_FAULT_SECONDS"] = str(fault_s)
    began = processor_time_s()
    printed = execute(setting, what, [program, f"--gtest_filter={test}"], variables)
    rate = CALM_SEEDS * 3600 * hours / (processor_time_s() - began)
    told = f"{hours} h with {what}: {rate:,.0f} times as fast as real time"
    outcome = Outcome([told]) if rate >= RATE else Outcome([], [f"{told}, expected {RATE:,}"])
    if printed.failure is not None:
        outcome.failures.append(printed.failure)
    elif "[  PASSED  ] 1 test" not in printed.text:
        outcome.failures.append(f"{test} did not run, expected all targets to be built")
    return outcome


def planted_bugs(setting: Setting, seeds: int) -> Outcome:
    program = setting.build_dir / "tests" / "simulation" / "tests_simulation_planted_bugs_test"
    printed = execute(setting, "planted bugs", [program.resolve()],
                      {"CROSSMESH_SIMULATION_SEEDS": str(seeds)})
    found = [int(seed) for seed in re.findall(r"^bug \w+: seed (\d+)", printed.text, re.MULTILINE)]
    told = [f"{len(found)} bugs are found, the last one by seed {max(found)}"] if found else []
    crashes = re.findall(r"^crashes: \w+: seed \d+", printed.text, re.MULTILINE)
    if crashes:
        told.append(f"{len(crashes)} are found by a crash before some effect, too")
    return Outcome(told, [printed.failure] if printed.failure is not None else [])
