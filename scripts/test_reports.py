"""Sums up JUnit reports of ctest."""

import collections
import pathlib
import xml.etree.ElementTree as ElementTree


def skip_reason(case: ElementTree.Element) -> str:
    """What GoogleTest prints below "file:line: Skipped"; else what ctest says."""
    lines = (case.findtext("system-out") or "").splitlines()
    for line, following in zip(lines, lines[1:]):
        if line.endswith(": Skipped"):
            return following.strip()
    skipped = case.find("skipped")
    return skipped.get("message", "") if skipped is not None else "disabled"


def summarize(reports: list[pathlib.Path]) -> bool:
    """Prints the failed tests, why others were skipped, and a last line "N passed, N failed, N skipped".

    False when a test failed. A report that does not exist counts nothing: the caller knows why there is none.
    """
    passed = failed = 0
    skipped: collections.Counter[str] = collections.Counter()
    for report in reports:
        if not report.exists():
            continue
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            # ctest writes "run", "fail", "notrun" (skipped, or not built) and "disabled".
            status = case.get("status")
            if status == "run":
                passed += 1
            elif status == "fail":
                failed += 1
                print(f"FAILED {report}: {case.get('name')}")
            else:
                skipped[skip_reason(case)] += 1
    for reason, count in skipped.most_common():
        print(f"SKIPPED {count}: {reason}")
    print(f"{passed} passed, {failed} failed, {skipped.total()} skipped")
    return failed == 0
