"""Sums up JUnit reports of ctest: prints the failed tests, why others were skipped, and a last line
"N passed, N failed, N skipped".

Exits with 1 when a test failed. A report that does not exist counts nothing: its preset was built only, or the build
failed, which the caller knows.
"""

import collections
import os
import sys
import xml.etree.ElementTree as ElementTree


def skip_reason(case: ElementTree.Element) -> str:
    """What GoogleTest prints below "file:line: Skipped"; else what ctest says."""
    lines = (case.findtext("system-out") or "").splitlines()
    for line, following in zip(lines, lines[1:]):
        if line.endswith(": Skipped"):
            return following.strip()
    skipped = case.find("skipped")
    return skipped.get("message", "") if skipped is not None else "disabled"


def main(paths: list[str]) -> int:
    passed = failed = 0
    skipped = collections.Counter()
    for path in filter(os.path.exists, paths):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            # ctest writes "run", "fail", "notrun" (skipped, or not built) and "disabled".
            status = case.get("status")
            if status == "run":
                passed += 1
            elif status == "fail":
                failed += 1
                print(f"FAILED {path}: {case.get('name')}")
            else:
                skipped[skip_reason(case)] += 1
    for reason, count in skipped.most_common():
        print(f"SKIPPED {count}: {reason}")
    print(f"{passed} passed, {failed} failed, {skipped.total()} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
