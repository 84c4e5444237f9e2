"""Holds fault-matrix.md and targets.md of docs/reliability to the tests that they name.

    fault_matrix_test.py <repository root>
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
FOLDER = ROOT / "docs/reliability"
# The rows of a page: letters and numbers.
PAGES = {
    "fault-matrix.md": {f"F{number}" for number in range(1, 31)},
    "targets.md": {f"R{number}" for number in (*range(1, 14), 16, 17, 18)}
                  | {f"P{number}" for number in range(13, 18)} | {f"L{number}" for number in (3, 4, 7, 8, 9, 10)},
}

CPP_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
PYTHON_TEST = re.compile(r"^\s+def (test_\w+)\(", re.MULTILINE)
NAMED = re.compile(r"`(\w+\.\w+|test_\w+)`")


def tests_of_the_tree() -> set[str]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*_test.cc",
                             "*_test.py", "*/testing/*.h"], capture_output=True, text=True, check=True)
    found = set()
    for path in listed.stdout.splitlines():
        if not (ROOT / path).exists():
            continue
        text = (ROOT / path).read_text()
        found.update(".".join(names) for names in CPP_TEST.findall(text))
        found.update(PYTHON_TEST.findall(text))
    return found


def rows_of(text: str) -> set[str]:
    rows = set()
    for line in text.splitlines():
        if line.startswith("|"):
            rows.update(re.findall(r"\b[A-Z]\d+\b", line.split("|")[1]))
    return rows


def main() -> int:
    tests = tests_of_the_tree()
    problems = []
    for page, rows in PAGES.items():
        text = (FOLDER / page).read_text()
        problems += [f"{page}: no test is named {name}" for name in sorted(set(NAMED.findall(text)) - tests)]
        problems += [f"{page}: no row {row}" for row in sorted(rows - rows_of(text))]
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
