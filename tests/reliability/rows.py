"""What `run` runs: for each row the targets that it shows, how long it is, and the programs that show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from programs import Benchmark, Figure, InTurn, Run, Script, Setting, Tests
from random_kills import random_kills
from simulation import calm_histories, histories, planted_bugs
from skew import Skew
from soak import soak


@dataclass(frozen=True)
class Row:
    name: str
    targets: str  # as docs/reliability/targets.md has them
    length: int
    unit: str  # of the length
    run: Run


STORE = "controller/store/sqlite/controller_store_sqlite_test"
CONTROLLERS = "tests/live/tests_live_controllers_test"
CONFORMANCE = ("*StoreConformance.WhatClientsFindAtTheSameTimeIsLinearisable*",
               "*StoreConformance.OneWhoFollowsWhileOthersWriteMissesNothingAndHearsNothingTwice*",
               "*StoreConformance.OneWhoComesTooLateIsToldFromWhereAllIsKept*")
TAKEOVERS = ("LeaderElectionTest.WhenALeaderResignsTheNextOneLeadsInASecond",
             "LeaderElectionTest.WhenALeaderIsKilledTheNextOneLeadsWhenItsLeaseEnds",
             "LeaderElectionTest.ALeaderThatIsCutOffStepsDownBeforeTheNextOneLeads")

CUT_OFF = ("CutOffLeaderTest.StepsDownBeforeTheNextOneLeadsWhomClientsAndWorkersFollow",)
LOSSES = ("LossTest.AKilledSourceFailsTheOperationWithItsName",
          "*LostReplicaTest.FailsWithTheNameOfTheKilledWorkerAndTheOtherCommits*")
HANDOVERS = ("SeveralControllersTest.WhenTheOneThatServesIsKilledTheNextOneHasAllThatItAcknowledged",
             "SeveralControllersTest.OneThatIsStoppedForTooLongEndsWhenItGoesOn",
             "SeveralControllersTest.OneThatIsAskedToStopHandsOverInASecond")


def cost_of_the_store(lines: Sequence[Mapping]) -> list[Mapping]:
    """Of an operation with a store on disk, beyond one with a store in memory."""
    cost = {line["store"]: line["p50_ms"] for line in lines if line.get("case") == "operation"}
    return [{"case": "an operation on disk", "more_ms": cost["sqlite"] - cost["memory"]}] if len(cost) == 2 else []


def service_arguments(setting: Setting, seconds: int) -> list[str]:
    return ["--folder", str(setting.logs / "service-benchmark"), "--seconds", str(seconds)]


def store_arguments(setting: Setting, objects: int) -> list[str]:
    return ["--folder", str(setting.logs / "store-benchmark"), "--objects", str(objects), "--threads", "64"]


SERVICE = Benchmark("service_benchmark", service_arguments, derive=cost_of_the_store, figures=(
    Figure("an operation on disk", "more_ms", most=1.5),
    Figure("dispatch", "p99_ms", most=250),
    Figure("an idle thread wakes up late", "p99_ms"),
    Figure("cached plans", "per_second", least=5000),
    Figure("one new plan, without the planner's time", "p99_ms", most=3),
    Figure("overload by new plans", "of_peak", least=0.8),
    Figure("overload by new plans", "refused_after.p99_ms", most=5),
    Figure("overload by larger new plans", "of_peak", least=0.8),
    Figure("overload by larger new plans", "refused_after.p99_ms", most=5),
    Figure("after the overload", "of_peak", least=0.8)))
HEARTBEATS = Benchmark(
    "session_benchmark",
    lambda setting, seconds: ("--sessions", "4096", "--seconds", str(seconds), "--restarts", "0", "--one-core"),
    (Figure("heartbeats", "p99_ms", most=20), Figure("heartbeats", "not_ready", most=0)))
RETURN = Benchmark("session_benchmark",
                   lambda setting, seconds: ("--sessions", "3000", "--seconds", "1", "--restarts", "3"),
                   (Figure("restart", "seconds", most=10),))
OBJECTS = Benchmark("store_benchmark", store_arguments,
                    (Figure("commits of 64", "per_second", least=3000, store="sqlite"),
                     Figure("open", "seconds", most=2)))

ROWS = (
    Row("kills", "R1, R5, R6", 300, "SIGKILLs", random_kills),
    Row("store-kills", "R1", 200, "SIGKILLs and losses of power",
        Tests(STORE, ("StoreKillTest.NothingAcknowledgedIsLostWhenTheProcessIsKilled",
                      "StoreFaults.NothingAcknowledgedIsLostAndNothingIsHalfWhenThePowerGoes"))),
    Row("crashes", "R1", 20, "short histories, each with a crash before every effect",
        Tests("tests/simulation/tests_simulation_test", ("CrashesBeforeEffects.LoseNothingThatWasAcknowledged",),
              variable="CROSSMESH_SIMULATION_SEEDS", tells="crashes:")),
    Row("stores", "R2", 40, "histories of each store",
        InTurn(tuple(Tests(program, CONFORMANCE)
                     for program in ("controller/store/controller_store_test", STORE,
                                     "controller/store/etcd/controller_store_etcd_test")))),
    Row("simulation", "R3, R17", 2000, "seeds", histories),
    Row("calm-simulation", "R3", 24, "simulated hours of each load", calm_histories),
    Row("planted-bugs", "R4", 50, "seeds for each bug", planted_bugs),
    Row("worker-deaths", "R5, R9", 8, "trials by each strategy",
        Tests("tests/live/tests_live_test", LOSSES, variable=None, environment={"CROSSMESH_LOSS_MAX_MS": "1000"},
              measures="the replica failed # ms after signal 9")),
    Row("restarts", "R6", 20, "trials",
        Tests("controller/controller_test", ("ControllerRecoveryTest.AnOperationThatRanIsTakenUpWhereItRuns",
                                             "PipelineRecoveryTest.ARunGoesOnWithTheNextIteration"), variable=None)),
    Row("takeovers", "R7", 9, "takeovers of each kind",
        InTurn((Tests("controller/leadership/etcd/controller_leadership_etcd_test", TAKEOVERS,
                      variable="CROSSMESH_TAKEOVERS", environment={"CROSSMESH_LEASE_SECONDS": "5"},
                      tells="takeovers with a lease"),
                Tests(CONTROLLERS, HANDOVERS, variable=None, tells="after the other one was"),
                Tests(CONTROLLERS, CUT_OFF, variable=None, environment={"CROSSMESH_TAKEOVER_MAX_MS": "6000"},
                      measures="leads # ms after the other one was cut off")))),
    Row("writers", "R8", 60, "runs",
        InTurn((Tests("controller/store/etcd/controller_store_etcd_test",
                      ("EtcdFaultTest.WhileLeadersChangeNoCommitOfASupersededEpochIsAccepted",)),
                Tests("controller/leadership/controller_leadership_test",
                      ("ElectionSimulation.NeverDoTwoLeadAndSoonAfterTheLastFaultOneDoes",))))),
    Row("links", "R10, R17", 1, "run",
        InTurn(tuple(Script("tests/lab/faults_lab_test.py", (name,))
                     for name in ("PartitionTest", "RoughLinkTest", "ClockTest")))),
    Row("bit-flips", "R12", 1000, "flips", Tests(STORE, ("StoreWithFlips.NoFlippedBitIsSilent",))),
    Row("backups", "R13", 1, "run",
        Tests("controller/controller_store_commands_test",
              ("StoreCommandsTest.AStoreIsBackedUpWhileItsControllerRunsAndRestored",), variable=None)),
    Row("rolling-restarts", "P13", 3, "times",
        Tests(CONTROLLERS, ("RollingRestartTest.OfTwoControllersAndTheWorkersNoCallFails",
                            "RollingRestartTest.OfAControllerWithAStoreNoCallFails"), variable=None)),
    Row("skew", "P14", 1, "time", Skew()),
    Row("service", "R18, L4, L7", 60, "seconds of each load", SERVICE),
    Row("sessions", "L8", 60, "seconds of heartbeats", InTurn((HEARTBEATS, RETURN))),
    Row("objects", "L3, L9", 100_000, "objects", OBJECTS),
    Row("soak", "R16, L10", 10, "minutes", soak),
)
