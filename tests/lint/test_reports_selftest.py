"""Does scripts/test_reports.py count every test, whoever tells of it?"""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import test_reports

CTEST = """<testsuite>
  <testcase name="live.one" status="run"/>
  <testcase name="live.two" status="fail"><failure message=""/></testcase>
  <testcase name="lab" status="notrun">
    <skipped message="SKIP_RETURN_CODE=77"/><system-out>a_test.cc:7: Skipped\nno network\n</system-out>
  </testcase>
  <testcase name="common" status="{common}"/>
</testsuite>"""
GOOGLETEST = """<testsuites><testsuite name="Box">
  <testcase name="Fits" status="run" result="completed" classname="Box"/>
  <testcase name="Breaks" status="run" result="{breaks}" classname="Box">{failure}</testcase>
  <testcase name="Waits" status="run" result="skipped" classname="Box">
    <skipped message="b_test.cc:9&#x0A;no GPU"/>
  </testcase>
  <testcase name="DISABLED_Old" status="notrun" result="suppressed" classname="Box"/>
</testsuite></testsuites>"""


class SummaryTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.report = pathlib.Path(folder.name) / "junit-unit.xml"
        self.binary = self.report.parent / "gtest" / "common.xml"
        self.binary.parent.mkdir()

    def summary(self) -> tuple[bool, list[str]]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            passed = test_reports.summarize([self.report, self.report.with_name("none.xml")])
        return passed, printed.getvalue().splitlines()

    def test_tests_of_a_binary_count_one_by_one(self):
        self.report.write_text(CTEST.format(common="fail"))
        self.binary.write_text(GOOGLETEST.format(breaks="completed", failure='<failure message="1 is not 2"/>'))
        self.assertEqual(self.summary(), (False, [
            f"FAILED {self.report}: live.two", f"FAILED {self.report}: common.Box.Breaks",
            "SKIPPED 1: no network", "SKIPPED 1: no GPU", "SKIPPED 1: disabled",
            "2 passed, 2 failed, 3 skipped"]))

    def test_a_binary_that_fails_though_no_test_of_it_does_has_failed(self):
        self.report.write_text(CTEST.format(common="fail"))
        self.binary.write_text(GOOGLETEST.format(breaks="completed", failure=""))
        self.assertIn(f"FAILED {self.report}: common", self.summary()[1])

    def test_a_binary_that_ends_before_it_tells_has_failed(self):
        self.report.write_text(CTEST.format(common="fail"))
        self.assertIn(f"FAILED {self.report}: common", self.summary()[1])

    def test_what_an_earlier_run_told_is_gone(self):
        self.report.write_text(CTEST.format(common="run"))
        self.binary.write_text(GOOGLETEST.format(breaks="completed", failure=""))
        test_reports.clear(self.report)
        self.assertEqual(self.summary(), (True, ["0 passed, 0 failed, 0 skipped"]))


if __name__ == "__main__":
    unittest.main()
