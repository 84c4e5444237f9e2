"""Steps on grids in the lab: what crosses every NIC is what the equations say, and what is written is what was measured.
Some seconds; nothing here is timed closely.

    grid_lab_test.py PROGRAMS [TESTS]
"""

import unittest

from cluster import Cluster
from grid_cases import CUBE, KEPT, RATE, GridCase, Model
from grid_report import document, verdicts
from grid_runs import GridResults, GridRun, eight_hosts, rehearse, sent_bytes
from lab_fixture import PROGRAMS, run_tests
from network import Network
from raw_stream import RawStream

STREAM = RawStream(rate_share=0.957, counted_share=1.001)
SMALL = GridCase("cube", CUBE, 8, KEPT, "none", model=Model(hidden=256, sequence=64), flops=1e12)


class GridTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with (Network(eight_hosts(), fair=True) as lab,
              Cluster(PROGRAMS, lab, lab.description({RATE: STREAM.rate_share})) as cluster):
            cls.run_ = GridRun(SMALL.name, SMALL.grid, sent=sent_bytes(cluster, SMALL))
            rehearse(cluster, SMALL, STREAM, cls.run_)

    def test_it_ends_with_times_that_exceed_those_of_the_ops(self):
        self.assertEqual(self.run_.errors, [])
        self.assertGreater(self.run_.exposed, 0)
        self.assertLess(self.run_.exposed, self.run_.predicted)
        self.assertGreater(self.run_.waited(), 0.8 * self.run_.exposed)

    def test_every_nic_carries_what_the_equations_say(self):
        self.assertEqual(len(self.run_.counted[0]), 8)
        self.assertLess(abs(self.run_.bytes_error()), 0.05)
        self.assertLess(self.run_.beside, 0.5 * self.run_.sent)

    def test_what_is_measured_is_what_is_written(self):
        results = GridResults(settings=[self.run_])
        self.assertIn(f"{self.run_.seconds():.3f}", document(results, "command", 1, {RATE: STREAM}))
        self.assertTrue(verdicts(results)[0].met)
        self.run_.errors.append("a.0: lost")
        self.addCleanup(self.run_.errors.pop)
        self.assertFalse(verdicts(results)[0].met)


class GridVerdictTest(unittest.TestCase):
    """No network: figures that are made."""

    def run_of(self, name: str, exposed: float, measured: float) -> GridRun:
        return GridRun(name, "r=8", predicted=1 + exposed, exposed=exposed, sent=1e6, derived=1e6 * exposed,
                       measured=[measured], counted=[{"a": 1.01e6}])

    def verdict(self, results: GridResults, beginning: str) -> bool:
        return next(verdict.met for verdict in verdicts(results) if verdict.what.startswith(beginning))

    def test_a_setting_counts_only_within_a_twentieth_of_its_step(self):
        for measured, met in ((2.0, True), (2.1, True), (2.2, False), (1.8, False)):
            self.assertEqual(self.verdict(GridResults(settings=[self.run_of("r", 1, measured)]), "Settings"), met)

    def test_a_gain_is_of_the_seconds_that_are_saved(self):
        for saved, met in ((0.92, True), (0.88, False)):
            pair = (self.run_of("r at 1.0, off", 2, 3.2), self.run_of("r at 1.0, on", 1, 3.2 - saved))
            self.assertEqual(self.verdict(GridResults(pairs=[pair]), "Overlaps"), met)

    def test_forms_are_compared_by_what_they_wait_beside_ops(self):
        for measured, met in ((3, True), (3.2, False)):
            results = GridResults(families=[self.run_of("1-D", 2, measured), self.run_of("3-D", 1, 2)])
            self.assertEqual(self.verdict(results, "1-D over the cube"), met)

    def test_the_best_grid_has_to_be_among_the_first_three_predicted(self):
        grids = [{"predicted_seconds": 1 + place, "cost_model_seconds": 10 - place, "measured_seconds": 1 + place}
                 for place in range(5)]
        results = GridResults(tunes={"flat": grids})
        self.assertTrue(self.verdict(results, "`tune`, simulated program: clusters"))
        self.assertFalse(self.verdict(results, "`tune`, cost model: clusters"))


if __name__ == "__main__":
    run_tests()
