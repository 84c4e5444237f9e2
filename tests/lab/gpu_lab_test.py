"""Small cases of the network lab between GPUs, some seconds each, by the stand-ins of tests/standin.

    gpu_lab_test.py PROGRAMS [TESTS]

PROGRAMS is the folder of the daemons; the folder standin is beside it. Exits with 77, which means skipped, where no
network can be made.
"""

import pathlib
import tempfile
import unittest
from dataclasses import replace

import gpus
from cases import Case, all_cases, signal
from cluster import Cluster, ClusterError
from gpus import Gpus
from lab_fixture import PROGRAMS, relay_case, run_tests
from measure import CaseResult, Run, all_of_the_rate, measure_case, rates_of
from network import Network
from report import outcome_document
from setting import Setting
from targets import outcome_verdicts

DRIVER = PROGRAMS.parent / "standin" / "libcuda.so.1"
NCCL = PROGRAMS.parent / "standin" / "libnccl.so.2"


class GpusTest(unittest.TestCase):
    def test_gpus_of_a_machine_are_those_that_the_driver_tells(self):
        with tempfile.TemporaryDirectory() as folder:
            for place, text in (("0000:b1:00.0", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 55\nGPU UUID: \t GPU-b\n"),
                                ("0000:0a:00.0", "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-a\n"),
                                ("0000:ff:00.0", "Model: \t\t Unknown\n")):
                (pathlib.Path(folder) / place).mkdir()
                (pathlib.Path(folder) / place / "information").write_text(text)
            found = gpus.of_machine(folder=pathlib.Path(folder))
        self.assertEqual((found.uuids, found.title()), (("GPU-a", "GPU-b"), "2 GPUs: 2 x NVIDIA H200"))
        self.assertEqual(gpus.of_machine(folder=pathlib.Path("/nonexistent")).title(), "0 GPUs: no driver")

    def test_stand_ins_are_known_by_what_they_export_and_go_together(self):
        found = gpus.find(DRIVER, NCCL, 3)
        self.assertTrue(found.are_stand_ins)
        self.assertIn("3 stand-ins for GPUs", found.title())
        self.assertFalse(gpus.find(None, PROGRAMS / "crossmesh-controller", 3).are_stand_ins)
        with self.assertRaisesRegex(gpus.GpusError, "expected two stand-ins or none"):
            gpus.find(None, NCCL, 3)

    def test_cases_with_too_few_gpus_are_named_with_what_they_need(self):
        case = relay_case("bc", 2, 8)
        pair = Gpus(("GPU-a", "GPU-b"), "2 x NVIDIA H200")
        self.assertFalse(pair.are_enough_for(case.devices()))
        result = CaseResult("other", "test", "another one", nccl=["NCCL 2.30.7, /somewhere/libnccl.so.2"])
        text = Setting("run", 1, pair, (case,)).devices_text([result])
        self.assertIn("2 GPUs: 2 x NVIDIA H200. By NCCL 2.30.7, with `NCCL_NET=Socket", text)
        self.assertIn("Left out, with the GPUs that they need: relay (5).", text)

    def test_wrong_elements_and_runs_that_do_not_commit_miss_the_targets(self):
        right = Run("relay", "OPERATION_STATE_COMMITTED", wrong=())
        wrong = replace(right, wrong=("b.0, element 3",))
        failed = Run("relay", "OPERATION_STATE_FAILED")
        result = CaseResult("case", "test", "a case", runs=[right, wrong, failed])
        commits, elements = outcome_verdicts([result])
        self.assertEqual((commits.met, commits.measured), (False, "2 of 3 (not relay on case)"))
        self.assertEqual((elements.met, elements.measured), (False, "1 of 2 (not relay on case: b.0, element 3)"))
        setting = Setting("run", 3, gpus.stand_ins(DRIVER, (), 2))
        self.assertIn("1 of 3", outcome_document([result], [commits, elements], setting))


class GpuTest(unittest.TestCase):
    """By the stand-ins for the driver and NCCL."""

    def measure(self, case: Case, *strategies: str) -> CaseResult:
        found = gpus.find(DRIVER, NCCL, len(case.devices()))
        result = measure_case(case, PROGRAMS, all_of_the_rate(rates_of(case)), list(strategies), 1, found)
        self.assertEqual(len(result.runs), len(strategies))
        for run in result.runs:
            self.assertTrue(run.is_right(), f"{case.name}: {run}")
        return result

    def test_one_to_many_is_right_and_its_report_says_stand_in(self):
        result = self.measure(relay_case("bc", 2, 4), "relay", "send_recv")
        setting = Setting("run", 1, gpus.find(DRIVER, NCCL, 5))
        report = outcome_document([result], outcome_verdicts([result]), setting)
        self.assertIn("# The network lab between stand-ins for GPUs", report)
        self.assertRegex(report, r"By NCCL [0-9.]+, Crossmesh stand-in\.")

    def test_layouts_replicas_and_meshes_that_overlap_are_right(self):
        for case in all_cases():
            if case.name in ("overlap", "replicas_2x4", "uneven"):
                self.measure(signal(case), "relay", "local_all_gather")

    def start(self, case: Case, found: Gpus) -> Cluster:
        made = self.enterContext(Network(list(case.hosts)))
        rates = made.description(dict.fromkeys(made.rates(), 1))
        return self.enterContext(Cluster(PROGRAMS, made, rates, found.of(case.devices())))

    def test_contents_that_were_not_sent_are_found_wrong(self):
        case = relay_case("b", 1, 1)
        cluster = self.start(case, gpus.find(DRIVER, NCCL, 2))
        cluster.fill_source(case, 1)
        self.assertTrue(cluster.reshard(case)["state"].endswith("COMMITTED"))
        self.assertIsNone(cluster.wrong_element(case, 0, 1))
        cluster.fill_source(case, 2)
        self.assertIn("b.0, element 0 of its tile", cluster.wrong_element(case, 0, 2))

    def test_a_gpu_that_is_not_there_is_named(self):
        found = gpus.find(DRIVER, NCCL, 2)
        other = replace(found, uuids=(found.uuids[0], "GPU-00000000-0000-0000-0000-000000000000"))
        with self.assertRaisesRegex(ClusterError, "b lacks GPUs GPU-00000000"):
            self.start(relay_case("b", 1, 1), other)


if __name__ == "__main__":
    run_tests()
