"""Sums up what ctest, and GoogleTest where a test of ctest is a whole binary, say in JUnit's form."""

import collections
import pathlib
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field


def skip_reason(case: ElementTree.Element) -> str:
    """What GoogleTest prints below "file:line: Skipped", or reports below "file:line"; else what ctest says."""
    lines = (case.findtext("system-out") or "").splitlines()
    for line, following in zip(lines, lines[1:]):
        if line.endswith(": Skipped"):
            return following.strip()
    skipped = case.find("skipped")
    if skipped is None:
        return "disabled"
    return skipped.get("message", "").splitlines()[-1].strip()


@dataclass
class Sum:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: collections.Counter[str] = field(default_factory=collections.Counter)

    def add_report(self, report: pathlib.Path) -> None:
        """One of ctest. A report that does not exist counts nothing: the caller knows why there is none."""
        if not report.exists():
            return
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            binary = report.parent / "gtest" / f"{case.get('name')}.xml"
            if binary.exists():
                self.add_binary(report, binary, case.get("status") == "fail")
                continue
            # ctest writes "run", "fail", "notrun" (skipped, or not built) and "disabled".
            status = case.get("status")
            if status == "run":
                self.passed += 1
            elif status == "fail":
                self.failed.append(f"{report}: {case.get('name')}")
            else:
                self.skipped[skip_reason(case)] += 1

    def add_binary(self, report: pathlib.Path, binary: pathlib.Path, has_failed: bool) -> None:
        """The report of GoogleTest on all tests of a binary, which ctest says has failed or not."""
        failed = []
        for case in ElementTree.parse(binary).getroot().iter("testcase"):
            if case.find("failure") is not None:
                failed.append(f"{report}: {binary.stem}.{case.get('classname')}.{case.get('name')}")
            elif case.get("result") == "completed" or case.get("result") is None and case.find("skipped") is None:
                self.passed += 1
            else:
                self.skipped[skip_reason(case)] += 1
        if has_failed and not failed:  # at its end
            failed.append(f"{report}: {binary.stem}")
        self.failed += failed


def clear(report: pathlib.Path) -> None:
    """So that nothing of an earlier run is taken for one of the next."""
    report.unlink(missing_ok=True)
    for binary in (report.parent / "gtest").glob("*.xml"):
        binary.unlink()


def summarize(reports: list[pathlib.Path]) -> bool:
    """Prints the failed tests, why others were skipped, and a last line "N passed, N failed, N skipped".

    False when a test failed.
    """
    total = Sum()
    for report in reports:
        total.add_report(report)
    for failed in total.failed:
        print(f"FAILED {failed}")
    for reason, count in total.skipped.most_common():
        print(f"SKIPPED {count}: {reason}")
    print(f"{total.passed} passed, {len(total.failed)} failed, {total.skipped.total()} skipped")
    return not total.failed
