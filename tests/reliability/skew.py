"""Daemons and command lines of the release before beside those of this build, as docs/releasing.md promises it."""

import pathlib
from dataclasses import dataclass

from programs import InTurn, Outcome, Setting, Tests

# Which daemons are of the release before; the others are of this build. A reshard goes from node-0 to the others.
MIXES = ("node-0,node-1,node-2", "node-0", "node-1", "controller", "controller,node-0", "controller,node-1")
# What both releases do, and how it fails.
LIVE = ("LossTest.*", "*LostReplicaTest.*", "CancelTest.*")
# With workers of one release: each rehearses with bytes of its own.
REHEARSALS = ("PipelineTest.ARehearsalIsMeasured", "PipelineTest.BlockingTransfersRunAsPlanned",
              "PipelineTest.AKilledWorkerFailsTheIterationAndTheNextOneRuns",
              "PipelineTest.AWorkerThatStandsStillFailsTheIterationAndTheNextOneRuns",
              "PipelineTest.ARunIsStoppedInTheMiddle")
ALIKE = ("node-0,node-1,node-2", "controller")


@dataclass(frozen=True)
class Skew:
    def runs(self, release_before: pathlib.Path) -> tuple[Tests, ...]:
        folder = {"CROSSMESH_RELEASE_BEFORE": str(release_before)}
        mixes = [Tests(program, names, variable=None, environment=folder | {"CROSSMESH_OLD_DAEMONS": mix},
                       setting=f"older: {mix}")
                 for mix in MIXES
                 for program, names in (("tests/reliability/tests_reliability_test", ("SkewTest.*",)),
                                        ("tests/live/tests_live_test", LIVE + (REHEARSALS if mix in ALIKE else ())))]
        return (*mixes, Tests("tests/reliability/tests_reliability_test", ("RollingUpgradeTest.*",), variable=None,
                              environment=folder, tells="upgrade, "))

    def __call__(self, setting: Setting, times: int) -> Outcome:
        if setting.release_before is None:
            return Outcome(failures=["expected --release-before FOLDER with the programs of the release before, found "
                                     "none; docs/releasing.md says how they are made"])
        return InTurn(self.runs(setting.release_before.resolve()))(setting, times)
