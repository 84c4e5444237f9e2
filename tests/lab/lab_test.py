"""Small cases of the network lab, some seconds each: right bytes, links that break. Nothing here is timed closely.

    lab_test.py PROGRAMS [TESTS]

PROGRAMS is the folder of the daemons. Exits with 77, which means skipped, where no network can be made.
"""

import json
import pathlib
import signal
import subprocess
import sys
import time
import unittest
from collections.abc import Callable

import contents
import network
import raw_stream
from cases import Case, all_cases, everywhere, hosts, mesh, one_tensor
from cluster import Cluster
from lab_fixture import NICS, PROGRAMS, RATE, relay_case, run_tests
from layouts import Box, Placement, Tensor, box_of, spelled_out
from measure import MEBI
from network import Host, Network, Nic

STALL_SECONDS = 2
HERE = pathlib.Path(__file__).resolve().parent


def box_text(box: Box) -> str:
    return f"[{', '.join(f'{begin}:{end}' for begin, end in box)}]"


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise AssertionError("what was waited for did not come")
        time.sleep(0.01)


def left_of(process: int) -> list[str]:
    return [path.name for path in (*network.NAMESPACES.glob("*"), *network.FOLDERS.glob("*"))
            if path.name.startswith(f"{network.PREFIX}{process}")]


class NetworkTest(unittest.TestCase):
    def test_a_port_lets_no_more_through_than_its_rate(self):
        with Network([Host("a", NICS), Host("b", NICS)]) as made:
            stream = raw_stream.measure(made, "a", "b", 4 * MEBI)
            self.assertLess(stream.rate_share, 1.05)  # with what its buckets hold
            self.assertAlmostEqual(stream.counted_share, 1, delta=0.1)

    def test_every_nic_of_a_host_carries_its_own_traffic(self):
        with Network([Host("a", NICS * 2), Host("b", NICS * 2)]) as made:
            raw_stream.measure(made, "a", "b", 2 * MEBI, nic=1)
            counters = made.counters()
        self.assertGreater(counters["a", 1].sent, 2 * MEBI)
        self.assertGreater(counters["b", 1].received, 2 * MEBI)
        self.assertLess(counters["a", 0].sent + counters["b", 0].received, 1 << 16)

    def test_a_network_goes_with_an_interrupted_maker_and_is_cleaned_after_a_killed_one(self):
        for number in (signal.SIGINT, signal.SIGKILL):
            text = ("import os, signal\nfrom network import Host, Network, Nic\n"
                    f"with Network([Host('a', (Nic(100, 100),))]):\n    os.kill(os.getpid(), {int(number)})\n")
            with subprocess.Popen([sys.executable, "-B", "-c", text], cwd=HERE, stderr=subprocess.DEVNULL) as maker:
                pass
            self.assertEqual(bool(left_of(maker.pid)), number == signal.SIGKILL)
            network.remove_stale()
            self.assertEqual(left_of(maker.pid), [])


class LayoutsTest(unittest.TestCase):
    def test_boxes_are_those_of_crossmesh(self):
        asked = {(side.mesh, spelled_out(side.layout(tensor.name), len(tensor.shape)), tensor.shape)
                 for case in all_cases() for side in (case.source, case.destination) for tensor in case.tensors}
        for where, layout, shape in asked:
            command = [PROGRAMS / "crossmesh", "layout", "show", "--mesh", where.text(), "--layout", layout, "--shape",
                       str(list(shape)), "--json"]
            shown = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            self.assertEqual([slot["boxes"] for slot in shown["slots"]],
                             [[box_text(box_of(where, layout, shape, slot))] for slot in range(len(where.devices))],
                             (where.text(), layout, shape))


class ContentsTest(unittest.TestCase):
    TENSOR = Tensor("t", (5, 6, 7), "BF16")

    def test_a_tile_has_the_elements_of_its_box_in_order(self):
        whole = contents.tensor_bytes(self.TENSOR, 1)
        for box in (((0, 5), (0, 6), (0, 7)), ((1, 3), (0, 6), (0, 7)), ((1, 3), (2, 5), (0, 7)),
                    ((0, 5), (0, 6), (3, 4)), ((2, 2), (0, 6), (0, 7))):
            places = [(x * 6 + y) * 7 + z for x in range(*box[0]) for y in range(*box[1]) for z in range(*box[2])]
            self.assertEqual(contents.tile_bytes(self.TENSOR, box, 1),
                             b"".join(whole[2 * place:2 * place + 2] for place in places), box)

    def test_the_first_wrong_element_of_a_slot_is_named(self):
        look = (Placement(mesh("x=2", "ab", 1), everywhere("[x, -, -]")), (Tensor("first", (2, 1, 1)), self.TENSOR), 1)
        memory = bytearray(64 + 256)  # a tile of one F32, which takes an alignment, and one of 2 x 6 x 7 BF16
        contents.fill(memoryview(memory), *look, 1)
        self.assertIsNone(contents.wrong_element(memoryview(memory), *look, 1))
        for element in (40, 50):
            memory[64 + 2 * element] ^= 1
        self.assertIn("b.0, element 40 of its tile of t:", contents.wrong_element(memoryview(memory), *look, 1))
        self.assertIn("b.0, element 0 of its tile of first:", contents.wrong_element(memoryview(memory), *look, 2))


class ClusterTest(unittest.TestCase):
    """A network and its cluster, removed after each test."""

    def start(self, case: Case) -> None:
        self.case = case
        self.network = self.enterContext(Network(list(case.hosts), case.racks))
        shares = dict.fromkeys(self.network.rates(), 0.95)
        self.cluster = self.enterContext(Cluster(PROGRAMS, self.network, self.network.description(shares)))
        self.cluster.fill_source(case)

    def expect_bytes(self, device: str) -> None:
        slot = self.case.destination.mesh.devices.index(device)
        self.assertIsNone(self.cluster.wrong_element(self.case, slot))

    def begin(self, *flags: str) -> subprocess.Popen:
        command = self.cluster.command(*self.cluster.reshard_arguments(self.case, *flags))
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self.enterContext(running)

    def wait_for_bytes(self, host: str, count: int) -> None:
        wait_until(lambda: self.network.counters()[host, 0].received > count)


class RelayTest(ClusterTest):
    def test_one_to_many_brings_every_byte_once_through_every_nic(self):
        self.start(relay_case("bc", 2, 8))
        before = self.network.counters()
        operation = self.cluster.reshard(self.case, "--chunk-bytes", "65536")
        after = self.network.counters()
        self.assertEqual(operation["state"], "OPERATION_STATE_COMMITTED", operation)
        for device in self.case.destination.mesh.devices:
            self.expect_bytes(device)
        planned = self.cluster.planned_bytes(self.case, "--chunk-bytes", "65536")
        for (host, nic), counters in after.items():
            used = counters - before[host, nic]
            for direction, counted in (("out", used.sent), ("in", used.received)):
                expected = planned.get((host, nic, direction), 0)
                self.assertAlmostEqual(counted, expected, delta=0.1 * expected + MEBI, msg=f"{host} {direction}")

    def test_an_operation_keeps_to_its_share_of_the_nics(self):
        self.start(relay_case("b", 1, 4))
        whole = self.cluster.reshard(self.case)
        quarter = self.cluster.reshard(self.case, "--nic-share", "0.25")
        self.assertEqual(quarter["state"], "OPERATION_STATE_COMMITTED", quarter)
        self.assertAlmostEqual(quarter["report"]["bound_seconds"], 4 * whole["report"]["bound_seconds"], places=3)
        self.assertGreater(quarter["report"]["transfer_seconds"], 0.9 * quarter["report"]["bound_seconds"])
        self.expect_bytes("b.0")

    def test_a_link_that_drops_to_a_tenth_of_its_rate_finishes_and_is_named(self):
        self.start(relay_case("bc", 1, 4))
        running = self.begin()
        self.wait_for_bytes("c", MEBI)
        self.network.set_rate("b", Nic(RATE // 10, RATE // 10))
        operation = json.loads(running.communicate()[0])
        self.assertEqual(operation["state"], "OPERATION_STATE_COMMITTED", operation)
        self.expect_bytes("c.0")
        slow = [(link["from"], link["to"]) for link in operation["report"].get("slow_links", [])]
        self.assertTrue(slow and all("b" in link for link in slow), operation["report"])


class CutLinkTest(ClusterTest):
    def expect_partial(self, cut: str, reached: str) -> None:
        running = self.begin("--stall-limit", f"{STALL_SECONDS}s")
        self.wait_for_bytes("c", 2 * MEBI)
        self.network.cut(cut)
        begin = time.monotonic()
        operation = json.loads(running.communicate()[0])
        # One stall limit to notice, and as much again to bring what is left another way.
        self.assertLess(time.monotonic() - begin, 3 * STALL_SECONDS + 3)
        self.assertEqual(operation["state"], "OPERATION_STATE_PARTIAL", operation)
        states = {replica["devices"]: replica for replica in operation["replicas"]}
        self.assertEqual(states[f"{reached}.0"]["state"], "REPLICA_STATE_COMMITTED", operation)
        self.assertEqual(states[f"{cut}.0"]["state"], "REPLICA_STATE_FAILED", operation)
        self.assertIn(cut, states[f"{cut}.0"]["error"])
        self.expect_bytes(f"{reached}.0")

    def test_the_end_of_a_chain_is_cut_the_rest_commits_and_all_of_it_once_healed(self):
        self.start(relay_case("bc", 1, 16))
        self.expect_partial("c", "b")
        self.network.heal("c")
        # Not at once: the silence of a connection from before the cut may still fail what runs when it is noticed.
        wait_until(lambda: self.cluster.reshard(self.case)["state"] == "OPERATION_STATE_COMMITTED")
        self.expect_bytes("c.0")

    def test_a_link_between_two_hosts_alone_is_gone_around_within_the_operation(self):
        self.start(Case("relay", "test", "two to one", hosts("abc", NICS), one_tensor(16 * MEBI // 4),
                        Placement(mesh("x=2", "ac", 1), everywhere("[-]")),
                        Placement(mesh("x=1", "b", 1), everywhere("[-]"))))
        running = self.begin("--stall-limit", f"{STALL_SECONDS}s")
        self.wait_for_bytes("b", 2 * MEBI)
        self.network.cut_pair("a", "b")
        begin = time.monotonic()
        operation = json.loads(running.communicate()[0])
        # One stall limit to notice, a second for both ends to say so, and what is left comes from c.
        self.assertLess(time.monotonic() - begin, 2 * STALL_SECONDS + 5)
        self.assertEqual(operation["state"], "OPERATION_STATE_COMMITTED", operation)
        self.assertEqual(operation["attempt"], 2, operation)
        self.expect_bytes("b.0")
        status = self.cluster.crossmesh("status", "--controller", self.cluster.controller)
        self.assertIn("the link between workers a and b has failed", json.dumps(status["problems"]))
        sent = self.network.counters()["a", 0].sent
        self.assertEqual(self.cluster.reshard(self.case)["state"], "OPERATION_STATE_COMMITTED")
        self.expect_bytes("b.0")
        self.assertLess(self.network.counters()["a", 0].sent - sent, MEBI)

    def test_the_middle_of_a_chain_is_cut_and_the_end_is_reached_another_way(self):
        self.start(relay_case("bc", 1, 16))
        self.expect_partial("b", "c")


if __name__ == "__main__":
    run_tests()
