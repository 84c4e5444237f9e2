"""Pipelines in the lab: a rehearsal, and a link that breaks in the middle of an iteration. Some seconds; nothing here is
timed closely.

    pipeline_lab_test.py PROGRAMS [TESTS]
"""

import json
import subprocess
import time
import unittest

from cluster import Cluster
from lab_fixture import NICS, PROGRAMS, run_tests
from measure import MEBI
from network import Host, Network
from pipeline_cases import EAGER
from rehearsal import Rehearsal, rehearse

STALL_SECONDS = 2
ITERATIONS = 30


def two_stages(topology: dict) -> dict:
    """Half a second for an iteration, of which half a MiB crosses each way."""
    part = {"forward_seconds": 0.02, "input_gradient_seconds": 0.02, "weight_gradient_seconds": 0.02}
    return {"name": "two", "ranks": [{"inline_mesh": {"axes": "x=1", "devices": f"{host}.0"}} for host in "ab"],
            "stages": [{"rank": rank, **part} for rank in range(2)],
            "edges": [{"from": 0, "to": 1, "tensors": [
                {"tensor": {"name": "hidden", "dtype": "F32", "shape": [1, 16384]}, "batch_dimension": 0,
                 "source_layout": "[-, x]", "destination_layout": "[-, x]"}]}],
            "microbatches": [{"count": 8, "samples": 1}], "topology": topology}


class PipelineTest(unittest.TestCase):
    """Two workers, and a pipeline over both."""

    def setUp(self) -> None:
        self.network = self.enterContext(Network([Host(name, NICS) for name in "ab"]))
        topology = self.network.description(dict.fromkeys(self.network.rates(), 0.95))
        self.cluster = self.enterContext(Cluster(PROGRAMS, self.network, topology))
        self.spec = self.network.folder / "pipeline.json"
        self.spec.write_text(json.dumps(two_stages(topology)))


class PipelineRehearsalTest(PipelineTest):
    def test_it_has_all_that_the_table_shows(self):
        rehearsal = Rehearsal("two", EAGER.name())
        rehearse(self.cluster, self.spec, EAGER, rehearsal)
        self.assertEqual(rehearsal.errors, [])
        self.assertGreater(rehearsal.predicted, 0)
        self.assertEqual(len(rehearsal.measured), 1)
        self.assertEqual(len(rehearsal.first_byte), 2)  # forward and backward


class PipelineCutLinkTest(PipelineTest):
    def failed(self) -> int:
        runs = self.cluster.crossmesh("pipeline", "show", "--controller", self.cluster.controller).get("runs", [])
        return int(runs[0].get("failed_iterations", 0)) if runs else 0

    def wait_until(self, holds, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), until, "what was waited for did not come")
            time.sleep(0.05)

    def test_the_iteration_fails_in_time_and_the_run_ends_well_once_the_link_is_healed(self):
        command = self.cluster.command("pipeline", "rehearse", str(self.spec), "--controller", self.cluster.controller,
                                       "--schedule", "1f1b", "--iterations", str(ITERATIONS), "--stall-limit",
                                       f"{STALL_SECONDS}s", "--json")
        running = self.enterContext(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        self.wait_until(lambda: self.network.counters()["b", 0].received > MEBI, 20)
        self.network.cut("b")
        self.wait_until(lambda: self.failed() > 0, 3 * STALL_SECONDS + 3)
        self.network.heal("b")
        run = json.loads(running.communicate()[0])
        self.assertEqual(run["state"], "PIPELINE_RUN_STATE_DONE", run.get("error"))
        errors = [iteration["error"] for iteration in run["done"] if iteration.get("error")]
        self.assertIn("microbatch", errors[0])
        self.assertRegex(errors[0], "worker [ab] is lost")
        self.assertLess(len(errors), ITERATIONS / 2)


if __name__ == "__main__":
    run_tests()
