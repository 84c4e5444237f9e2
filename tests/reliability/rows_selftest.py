"""Does `run` tell what was reached from what was missed, and do its rows name tests that there are?"""

import json
import pathlib
import re
import stat
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import last_run
import simulation
from programs import Benchmark, Figure, InTurn, Setting, Tests
from rows import ROWS
from skew import Skew

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("controller", "tests")


def tests_of(run) -> list[Tests]:
    if isinstance(run, InTurn):
        return [tests for one in run.runs for tests in tests_of(one)]
    if isinstance(run, Skew):
        return list(run.runs(ROOT))
    return [run] if isinstance(run, Tests) else []


class RowsTest(unittest.TestCase):
    def test_every_test_is_in_the_sources(self):
        text = "".join(path.read_text() for folder in SOURCES for pattern in ("*_test.cc", "*.h")
                       for path in (ROOT / folder).rglob(pattern))
        declared = re.findall(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", text, re.MULTILINE)
        found = {f"{suite}.{name}" for suite, name in declared}
        named = {name.strip("*") for row in ROWS for tests in tests_of(row.run) for name in tests.names}
        named |= {simulation.HISTORIES, simulation.CALM_HISTORIES, simulation.CALM_HISTORIES_WITH_FAULTS}
        self.assertGreater(len(named), 10)
        suites = {name.partition(".")[0] for name in found}
        self.assertEqual({name for name in named - found if name.removesuffix(".") not in suites}, set())

    def test_names_are_used_once(self):
        names = [row.name for row in ROWS]
        self.assertEqual(len(names), len(set(names)))


class ProgramsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        self.setting = Setting(self.folder, self.folder, seed=7, end=time.monotonic() + 60)

    def program(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def outcome_of(self, script: str, length: int = 3, **options):
        self.program("a_test", script)
        return Tests("a_test", ("A.B",), **options)(self.setting, length)

    def test_tests_that_pass_have_their_length_and_seed(self):
        outcome = self.outcome_of('echo "of $1, $CROSSMESH_CASES cases, seed $CROSSMESH_TEST_SEED"\n'
                                  'echo "[  PASSED  ] 1 test."', tells="cases")
        self.assertEqual((outcome.failures, outcome.told[1]), ([], "of --gtest_filter=A.B, 3 cases, seed 7"))

    def test_tests_without_a_variable_are_repeated(self):
        outcome = self.outcome_of('echo "$2 [  PASSED  ]"; echo "[  PASSED  ] 1 test."', variable=None, tells="repeat")
        self.assertIn("--gtest_repeat=3", outcome.told[1])

    def test_of_what_is_measured_the_largest_is_told(self):
        outcome = self.outcome_of('echo "it took 7 ms."; echo "it took 12 ms."; echo "it took 9 ms."\n'
                                  'echo "[  PASSED  ] 1 test."', measures="it took # ms")
        self.assertEqual(outcome.told[1], "it took 12 ms: the most of 3")

    def test_a_test_that_fails_is_missed(self):
        self.assertIn("exit status 1", self.outcome_of('echo "[  PASSED  ] 1 test."; exit 1').failures[0])

    def test_a_test_that_is_skipped_is_missed(self):
        outcome = self.outcome_of('echo "[  SKIPPED ] A.B (0 ms)"; echo "[  PASSED  ] 0 tests."')
        self.assertIn("A.B was skipped", outcome.failures)

    def test_a_program_that_is_not_built_is_missed(self):
        self.assertIn("expected all targets to be built", Tests("b_test", ("A.B",))(self.setting, 1).failures[0])

    def test_no_test_at_all_is_missed(self):
        self.assertIn("0 tests passed, expected at least 1", self.outcome_of("true").failures[0])

    def test_what_is_not_done_in_time_is_ended_and_missed(self):
        self.setting = Setting(self.folder, self.folder, seed=7, end=time.monotonic() + 1)
        self.assertIn("when the time was over", self.outcome_of("exec sleep 600").failures[0])

    def test_without_a_release_before_its_row_is_missed(self):
        self.assertIn("--release-before FOLDER", Skew()(self.setting, 1).failures[0])

    def test_of_several_lines_of_a_case_the_worst_counts(self):
        lines = [json.dumps({"case": "a", "x": {"p99_ms": value}}) for value in (9, 3)]
        self.program("bin/bench", "\n".join(f"echo '{line}'" for line in lines))
        figures = (Figure("a", "x.p99_ms", most=5), Figure("b", "y", least=1))
        outcome = Benchmark("bench", lambda setting, length: (), figures)(self.setting, 1)
        self.assertEqual(outcome.failures, ["a: x.p99_ms 9, expected at most 5", "b, y: nothing, expected a figure"])
        figures = (Figure("a", "x.p99_ms", most=9), Figure("a", "x.p99_ms"))
        outcome = Benchmark("bench", lambda setting, length: (), figures)(self.setting, 1)
        self.assertEqual(outcome.failures, [])
        self.assertEqual(outcome.told, ["a: x.p99_ms 9, expected at most 9", "a: x.p99_ms 9"])

    def test_the_page_keeps_the_rows_that_did_not_run(self):
        page = self.folder / "page.md"
        with mock.patch.object(last_run, "PAGE", page), mock.patch.object(last_run, "ROOT", self.folder):
            for name, told in (("b", "first"), ("a", "second"), ("b", "third")):
                last_run.write([last_run.Result(name, "R1", "1 run", 1, 0, [told], [])], ["a", "b"])
        text = page.read_text()
        self.assertNotIn("first", text)
        self.assertLess(text.index("## a"), text.index("## b"))
        self.assertLess(text.index("second"), text.index("third"))


if __name__ == "__main__":
    unittest.main()
