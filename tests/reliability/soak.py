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
delete a mesh. The first third of the time is for warming up. What daemons hold is read while they have nothing to do,
four times in each third: the most of the second third, and then the least of the last one. A process that leaks has
more then.

It fails when a daemon has more descriptors or threads than before, or 32 MB more memory, when a call fails, when an
operation ends otherwise than it should, or when anything has not ended within 30 s.

    tests/reliability/run --build-dir {build_dir} --only soak --length soak={minutes} --seed {seed} --write

Minutes: {minutes}. Violations: none.

| Daemon | Descriptors | Threads | Memory, MB | MB an hour |
|---|---|---|---|---|
{daemons}

The last column is the slope of the line nearest to eight samples of memory; of few minutes it says little, since what
an allocator keeps moves by some MB. The store grows, and with it what the controller knows of it, until it keeps
100,000 commits, or 256 MiB of them, for those who follow: at such a load for half an hour.

| Beside that | What there was |
|---|---|
| store, bytes, 64 MiB of them its reserve | {store} |
| the slowest call in a hundred | {p99} |
{rows}

Measured {date}, on {processors} processors.
"""

DAEMON = re.compile(r"^daemon ([^,]+), descriptors (.*?), threads (.*?), MB (.*?), (\S+) MB an hour$", re.MULTILINE)


def soak(setting: Setting, minutes: int) -> Outcome:
    printed = execute(setting, "soak",
                      [(setting.build_dir / "tests" / "reliability" / "tests_reliability_test").resolve(),
                       "--gtest_filter=SoakTest.WhatDaemonsHoldStaysAsItIs"],
                      {"CROSSMESH_SOAK_SECONDS": str(60 * minutes), "CROSSMESH_SEED": str(setting.seed)})
    daemons = DAEMON.findall(printed.text)
    if printed.failure is not None or not daemons:
        return Outcome(failures=[printed.failure or "soak: it did not say what daemons held"])
    told = dict(re.findall(r"^([^:\n]+): (.*)$", printed.text, re.MULTILINE))
    loads = [(name, what) for name, what in told.items() if name.startswith("load ")]
    if setting.writes:
        PAGE.write_text(TEXT.format(
            build_dir=setting.build_dir, minutes=minutes, seed=setting.seed,
            daemons="\n".join(f"| {' | '.join(row)} |" for row in daemons),
            store=told["store"].removeprefix("bytes "), p99=told["p99 of calls"],
            rows="\n".join(f"| {name} | {what} |" for name, what in loads),
            date=time.strftime("%Y-%m-%d"), processors=os.cpu_count()))
    return Outcome(told=[*(f"{name}: {descriptors} descriptors, {threads} threads, {megabytes} MB"
                           for name, descriptors, threads, megabytes, _ in daemons),
                         *(f"{name}: {what}" for name, what in loads)])
