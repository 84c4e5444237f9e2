"""What networks and clocks do to daemons: packets dropped, late, lost and out of order; clocks of the system that jump.

    faults_lab_test.py PROGRAMS [TESTS]

PROGRAMS is the folder of the daemons. Exits with 77, which means skipped, where no network can be made.
"""

import datetime
import json
import os
import pathlib
import random
import subprocess
import time
import unittest
from collections.abc import Callable

from cases import Case
from cluster import Cluster
from lab_fixture import PROGRAMS, relay_case, run_tests
from measure import MEBI
from network import Network, run
from rough_link import TUN, Frames, RoughLink, Roughness

CONTROLLER = "10.99.0.250"
# Gives programs another time of the system. Other clocks it leaves.
LIBFAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
# libfaketime and jemalloc wait for each other at the start, so the allocator is the C library's.
FALSE_CLOCK = f"{LIBFAKETIME}:libc.so.6:libstdc++.so.6"
HOUR, DAY = 3600, 86400
LOST_WITHIN_S = 25  # a silent worker is lost after 10 s; the machine may be busy
BACK_WITHIN_S = 15


class FaultsTest(unittest.TestCase):
    """The controller is in the network as well: sessions, commands and tensors all go through it."""

    def start(self, case: Case) -> None:
        self.case = case
        self.network = self.enterContext(Network(list(case.hosts), case.racks))
        run(["ip", "-n", self.network.switch, "addr", "add", f"{CONTROLLER}/16", "dev", "core"])

    def start_cluster(self, environment_of: Callable[[str], dict[str, str]] = lambda _: {}) -> None:
        rates = self.network.description(dict.fromkeys(self.network.rates(), 0.95))
        self.cluster = self.enterContext(Cluster(PROGRAMS, self.network, rates, reached_at=f"{CONTROLLER}:7400",
                                                 environment_of=environment_of))
        self.cluster.fill_source(self.case)

    def begin(self, *flags: str) -> subprocess.Popen:
        command = self.cluster.command(*self.cluster.reshard_arguments(self.case, *flags))
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self.enterContext(running)

    def state_of(self, worker: str) -> str:
        listed = self.cluster.crossmesh("worker", "list", "--controller", self.cluster.controller)["workers"]
        [state] = (entry["state"] for entry in listed if entry["name"] == worker)
        return state.removeprefix("WORKER_STATE_")

    def wait_until(self, holds: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), until, "what was waited for did not come")
            time.sleep(0.05)

    def expect_committed(self, operation: dict) -> None:
        self.assertEqual(operation["state"], "OPERATION_STATE_COMMITTED", operation)
        for slot in range(len(self.case.destination.mesh.devices)):
            self.assertIsNone(self.cluster.wrong_element(self.case, slot))

    def expect_nobody_was_lost(self) -> None:
        for host in self.network.hosts:
            self.assertEqual(self.state_of(host), "READY")
            self.assertEqual(len(self.cluster.events(host, "worker_registered")), 1, self.cluster.log(host))


class PartitionTest(FaultsTest):
    def start_and_begin(self) -> subprocess.Popen:
        self.start(relay_case("bc", 1, 8))
        self.start_cluster()
        running = self.begin("--nic-share", "0.05")  # of some 13 s
        self.wait_until(lambda: self.network.counters()["c", 0].received > MEBI, 20)
        return running

    def test_a_worker_that_the_controller_does_not_reach_is_lost_and_serves_again_once_healed(self):
        running = self.start_and_begin()
        self.network.cut_from_switch("c", CONTROLLER)
        self.wait_until(lambda: self.state_of("c") == "LOST", LOST_WITHIN_S)
        operation = json.loads(running.communicate()[0])
        self.assertEqual(operation["state"], "OPERATION_STATE_PARTIAL", operation)
        replicas = {replica["devices"]: replica for replica in operation["replicas"]}
        self.assertEqual(replicas["b.0"]["state"], "REPLICA_STATE_COMMITTED", operation)
        self.assertEqual(replicas["c.0"]["state"], "REPLICA_STATE_FAILED", operation)
        self.assertIn("worker c", replicas["c.0"]["error"])
        self.assertIsNone(self.cluster.wrong_element(self.case, 0))
        # The worker has all bytes by now, perhaps, and yet commits nothing that it was not told to.
        time.sleep(2)
        self.assertEqual(set(self.cluster.storage("c.0", self.cluster.received_name(self.case))[:]), {0})

        self.network.heal_to_switch("c", CONTROLLER)
        self.wait_until(lambda: self.state_of("c") == "READY", BACK_WITHIN_S)
        self.expect_committed(self.cluster.reshard(self.case))

    def test_a_partition_that_is_over_before_anybody_is_lost_harms_nothing(self):
        running = self.start_and_begin()
        self.network.cut_from_switch("c", CONTROLLER)
        time.sleep(2)
        self.network.heal_to_switch("c", CONTROLLER)
        self.expect_committed(json.loads(running.communicate()[0]))
        for host in self.network.hosts:
            self.assertEqual(self.state_of(host), "READY")


class RoughLinkTest(FaultsTest):
    def setUp(self):
        if not TUN.exists():
            self.skipTest(f"no {TUN}")

    def expect_the_same_results(self, roughness: Roughness, mebibytes: int) -> tuple[Frames, float]:
        """What the link of host b did to frames, and the seconds of the transfer."""
        seed = int(os.environ.get("CROSSMESH_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"CROSSMESH_TEST_SEED={seed}")
        self.start(relay_case("bc", 1, mebibytes))
        link = RoughLink(self.network, "b", roughness, seed)
        self.start_cluster()
        operation = self.cluster.reshard(self.case)
        self.expect_committed(operation)
        self.expect_nobody_was_lost()
        frames = link.end()
        self.assertGreater(frames.came, mebibytes * MEBI / 1500, "tensors did not go through the link")
        return frames, operation["report"]["transfer_seconds"]

    def test_200_ms_of_delay_make_it_slow_and_nothing_else(self):
        delay = 0.2
        _, seconds = self.expect_the_same_results(Roughness(delay_seconds=delay), 1)
        self.assertGreater(seconds, 2 * delay)

    def test_a_loss_of_5_percent_makes_it_slow_and_nothing_else(self):
        frames, _ = self.expect_the_same_results(Roughness(loss=0.05), 2)
        self.assertGreater(frames.lost, 0.02 * frames.came)

    def test_frames_out_of_order_make_it_slow_and_nothing_else(self):
        frames, _ = self.expect_the_same_results(Roughness(jitter_seconds=0.02), 1)
        self.assertGreater(frames.overtaken, 0.1 * frames.came)


class ClockTest(FaultsTest):
    def setUp(self):
        if not LIBFAKETIME.exists():
            self.skipTest("no libfaketime")
        tried = subprocess.run([PROGRAMS / "crossmesh-controller", "--version"], capture_output=True, check=False,
                               env=os.environ | {"LD_PRELOAD": FALSE_CLOCK})
        if tried.returncode != 0:
            self.skipTest("a sanitizer, which libfaketime is in the way of")

    def environment_of(self, daemon: str) -> dict[str, str]:
        self.jump(daemon, 0)
        return {"LD_PRELOAD": FALSE_CLOCK, "FAKETIME_TIMESTAMP_FILE": str(self.clock(daemon)),
                "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def clock(self, daemon: str) -> pathlib.Path:
        return self.network.folder / f"{daemon}.clock"

    def jump(self, daemon: str, seconds: int) -> None:
        """Its clock is ahead by so much from now on."""
        next_one = self.clock(daemon).with_suffix(".next")
        next_one.write_text(f"{seconds:+d}\n")
        next_one.rename(self.clock(daemon))

    def seconds_ahead(self, daemon: str) -> float:
        """By its last log line, which is one of the last seconds."""
        time_of_last = datetime.datetime.fromisoformat(self.cluster.entries(daemon)[-1]["time"])
        return (time_of_last - datetime.datetime.now(datetime.timezone.utc)).total_seconds()

    def test_clocks_that_jump_while_an_operation_runs_change_nothing(self):
        self.start(relay_case("bc", 1, 8))
        self.start_cluster(self.environment_of)
        running = self.begin("--nic-share", "0.05", "--request-id", "once", "--deadline", "120s")  # of some 13 s
        self.wait_until(lambda: self.network.counters()["c", 0].received > MEBI, 20)
        for ahead in ((HOUR, -HOUR, DAY, 0), (-DAY, DAY, -HOUR, HOUR), (DAY, 0, -DAY, -HOUR)):
            for daemon, seconds in zip(("controller", *self.network.hosts), ahead):
                self.jump(daemon, seconds)
            time.sleep(3)  # a heartbeat at least
        operation = json.loads(running.communicate()[0])
        self.expect_committed(operation)
        self.assertAlmostEqual(self.seconds_ahead("controller"), DAY, delta=60)
        self.assertAlmostEqual(self.seconds_ahead("b"), -DAY, delta=60)
        self.expect_nobody_was_lost()
        again = self.cluster.reshard(self.case, "--nic-share", "0.05", "--request-id", "once", "--deadline", "120s")
        self.assertEqual(again["id"], operation["id"])


if __name__ == "__main__":
    run_tests()
