"""Changes of layout inside one mesh in the lab: right elements, and no byte more between hosts than planned. Some
seconds; nothing here is timed closely.

    redistribution_lab_test.py PROGRAMS [TESTS]
"""

import unittest

from lab_fixture import PROGRAMS, run_tests
from raw_stream import RawStream
from redistribution_cases import FLOATS, MEBI, PAIRS, RATE_OF_FOUR, TIME, Choice, RedistributionCase, inside
from redistribution_report import document, verdicts
from redistribution_runs import RedistributionResult, measure_redistribution

FLAT = Choice("flat", ("--method", "replicate_then_slice"))
STREAM = RawStream(rate_share=0.955, counted_share=1)


def sums() -> RedistributionCase:
    """4 MiB of sums over two hosts of two devices: 2 MiB cross each way to be summed, and 2 MiB of sums."""
    moved = inside(PAIRS, "sums", "all-reduce", "node=2,gpu=2", "ab", ("[-, -]", "[-, -]"), (64, 4 * FLOATS // 64))
    return RedistributionCase(moved, partial=("node", "gpu"), choices=(TIME, FLAT), least_bytes=4 * MEBI)


class RedistributionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.result: RedistributionResult = measure_redistribution(sums(), PROGRAMS, STREAM, 1)

    def test_every_way_ends_with_the_right_sums(self):
        self.assertEqual([way.names for way in self.result.ways], [["time"], ["flat"]])
        self.assertEqual([way.errors for way in self.result.ways], [[], []])

    def test_two_levels_cross_between_hosts_once_and_the_flat_way_more_often(self):
        two_levels, flat = self.result.ways
        self.assertEqual(two_levels.planned_bytes(), 8 * MEBI)
        self.assertGreater(flat.planned_bytes(), 8 * MEBI)
        for way in self.result.ways:
            self.assertLess(abs(way.bytes_error()), 0.1)

    def test_what_is_measured_is_what_is_written(self):
        text = document([self.result], "command", 1, {RATE_OF_FOUR: STREAM})
        for way in self.result.ways:
            self.assertIn(f"{way.seconds():.3f}", text)
        self.assertIn("2 of 2", verdicts([self.result])[0].measured)
        self.result.ways[0].errors.append("a.0, element 7: wrong")
        self.addCleanup(self.result.ways[0].errors.pop)
        self.assertFalse(verdicts([self.result])[0].met)


if __name__ == "__main__":
    run_tests()
