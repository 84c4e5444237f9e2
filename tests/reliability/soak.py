"""A cluster at half load for some minutes, and the page that says what its daemons held."""

import os
import re
import time

from programs import ROOT, Outcome, Setting, execute

PAGE = ROOT / "docs" / "reliability" / "soak.md"

TEXT = """# A soak

A controller with `--state-dir` and three workers, at half load: bursts of at most two seconds, after each of which
clients rest as long as it lasted. Clients ask for reshards, into shadows and in place; for reshards that are cancelled
at a random moment; for redistributions that sum what three workers have; for runs of pipelines; and register, read and
delete a mesh. The controller remembers ids of requests for a minute (`--request-ids-for 1m`), where it is a day by
default, and keeps plans of 1 MiB for further requests (`--plan-memory-max 1M`), where it is 512 MiB.

The first third of the time is for warming up, and long enough if by then all is there that is kept up to a bound: ids
of requests, plans, and of commits, ended operations and lines of a log the last thousand. What daemons hold is read
while they have nothing to do, after each burst: the most of the second third, and then the least of the last one. A
process that leaks has more then.

It fails when a daemon has more descriptors or threads than before, or 32 MB more memory; when what its allocator has
given out grows by more than 1 MB an hour, with more than two standard errors; when a call fails, when an operation ends
otherwise than it should, or when anything has not ended within 30 s. The test that runs with all others takes seconds:
too short to be warm it says nothing of an hour, and may have three threads more, which pools get as there is more to do
at a time.

    tests/reliability/run --build-dir {build_dir} --only soak --length soak={minutes} --seed {seed} --write

Minutes: {minutes}. Violations: none.

| Daemon | Descriptors | Threads | Memory, MB |
|---|---|---|---|
{daemons}

Below is how memory grows after the warm-up: the slope of the line nearest to {samples} samples, and its standard error.
The true slope is within two of these, 19 times in 20. *Allocated* is what a daemon's allocator has given out
(`process_allocated_memory_bytes`); *resident* what the system has given the daemon, with what the allocator keeps for
later.

*Resident* rises and falls in a controller, which keeps what it frees and gives all of it back every half hour ([ADR
58](../adr/0058-jemalloc.md)): its slope says how the hour lay to that, and what stays is the least in the first table.

| Daemon | Allocated, MB | MB an hour | Resident, MB an hour |
|---|---|---|---|
{slopes}

| Beside that | What there was |
|---|---|
| store, bytes, 64 MiB of them its reserve | {store} |
| commits that it keeps | {kept} |
| the slowest call in a hundred | {p99} |
{rows}

Measured {date}, on {processors} processors.
"""

DAEMON = re.compile(r"^daemon ([^,]+), descriptors (.*?), threads (.*?), MB (.*?), allocated MB (.*?), "
                    r"allocated an hour (.*?), resident an hour (.*)$", re.MULTILINE)


def soak(setting: Setting, minutes: int) -> Outcome:
    printed = execute(setting, "soak",
                      [(setting.build_dir / "tests" / "reliability" / "tests_reliability_test").resolve(),
                       "--gtest_filter=SoakTest.WhatDaemonsHoldStaysAsItIs"],
                      {"CROSSMESH_SOAK_SECONDS": str(60 * minutes), "CROSSMESH_SEED": str(setting.seed)})
    daemons = DAEMON.findall(printed.text)
    if printed.failure is not None or not daemons:
        return Outcome(failures=[printed.failure or "soak: it did not say what daemons held"])
    told = dict(re.findall(r"^([^:\n]+): (.*)$", printed.text, re.MULTILINE))
    if told["warm"] != "yes":
        return Outcome(failures=["soak: the first third was too short for all that is kept up to a bound; say more "
                                 "minutes"])
    loads = [(name, what) for name, what in told.items() if name.startswith("load ")]
    if setting.writes:
        PAGE.write_text(TEXT.format(
            build_dir=setting.build_dir, minutes=minutes, seed=setting.seed,
            samples=told["samples of memory"],
            daemons="\n".join(f"| {' | '.join(row[:4])} |" for row in daemons),
            slopes="\n".join(f"| {' | '.join((row[0], *row[4:]))} |" for row in daemons),
            store=told["store"].removeprefix("bytes "), kept=told["commits kept"], p99=told["p99 of calls"],
            rows="\n".join(f"| {name} | {what} |" for name, what in loads),
            date=time.strftime("%Y-%m-%d"), processors=os.cpu_count()))
    return Outcome(told=[*(f"{name}: {descriptors} descriptors, {threads} threads, {megabytes} MB, "
                           f"{allocated} MB an hour allocated"
                           for name, descriptors, threads, megabytes, _, allocated, _ in daemons),
                         *(f"{name}: {what}" for name, what in loads)])
