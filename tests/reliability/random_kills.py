"""Daemons killed at random under load, and the page that says what came of it."""

import os
import re
import time

from programs import ROOT, Outcome, Setting, execute

PAGE = ROOT / "docs" / "reliability" / "random-kills.md"
LARGE_BYTES = 32 << 20  # of the large reshards

TEXT = """# Random kills

A controller with `--state-dir` and three workers. Clients ask for work again and again: reshards of a new version of
the source each time, small and large, into shadows and in place; redistributions that sum what three workers have;
runs of pipelines; meshes that are registered and deleted. Every 0 to 400 ms one daemon is killed by SIGKILL and started
again: a worker three times in five, else the controller.

It fails when an operation or a run that a client was told of is unknown or ends otherwise later, when one request
begins two, when a replica that committed has another version than the one that was asked for, when one that failed has
neither that nor the one before and, in place, is not marked as dirty either, when a sum counts a summand twice or not,
when an iteration that was complete is told as failed or comes again, when an acknowledged mesh is gone or a deleted one
is there, or when anything has not ended within 30 s.

    tests/reliability/run --build-dir {build_dir} --only kills --length kills={kills} --seed {seed} --write

Killed: {controllers} controllers, {workers} workers, in {seconds:.0f} s. Violations: none.

| Load | What became of it |
|---|---|
{rows}

Measured {date}, on {processors} processors.
"""


def random_kills(setting: Setting, kills: int) -> Outcome:
    begin = time.monotonic()
    printed = execute(setting, "random kills",
                      [(setting.build_dir / "tests" / "reliability" / "tests_reliability_test").resolve(),
                       "--gtest_filter=RandomKillsTest.NothingIsLostDoneTwiceOrMixed"],
                      {"CROSSMESH_KILLS": str(kills), "CROSSMESH_SEED": str(setting.seed),
                       "CROSSMESH_LARGE_BYTES": str(LARGE_BYTES)})
    killed = re.search(r"^killed: controllers (\d+), workers (\d+)$", printed.text, re.MULTILINE)
    loads = re.findall(r"^load ([^:]+): (.*)$", printed.text, re.MULTILINE)
    if printed.failure is not None or killed is None:
        return Outcome(failures=[printed.failure or "random kills: it did not say how many were killed"])
    # Of the last failure the page keeps no example: its words differ from run to run.
    ended = [(name, outcome.partition(", the last that failed")[0]) for name, outcome in loads]
    if setting.writes:
        PAGE.write_text(TEXT.format(
            build_dir=setting.build_dir, kills=kills, seed=setting.seed, seconds=time.monotonic() - begin,
            controllers=killed[1], workers=killed[2],
            rows="\n".join(f"| {name} | {outcome} |" for name, outcome in ended),
            date=time.strftime("%Y-%m-%d"), processors=os.cpu_count()))
    return Outcome(told=[f"{killed[1]} controllers and {killed[2]} workers were killed",
                         *(f"{name}: {outcome}" for name, outcome in ended)])
