"""Sums up JUnit reports of ctest: prints the failed tests and a last line "N passed, N failed, N skipped".

Exits with 1 when a test failed. A report that does not exist counts nothing: its preset was built only, or the build
failed, which the caller knows.
"""

import os
import sys
import xml.etree.ElementTree as ElementTree


def main(paths: list[str]) -> int:
    passed = failed = skipped = 0
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
                skipped += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
