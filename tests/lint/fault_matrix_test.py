"""Holds docs/reliability/fault-matrix.md to the tests that it names.

    fault_matrix_test.py <repository root>
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
PAGE = ROOT / "docs/reliability/fault-matrix.md"
FIRST, LAST = 1, 30

CPP_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
PYTHON_TEST = re.compile(r"^\s+def (test_\w+)\(", re.MULTILINE)
NAMED = re.compile(r"`(\w+\.\w+|test_\w+)`")


def tests_of_the_tree() -> set[str]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*_test.cc",
                             "*_test.py"], capture_output=True, text=True, check=True)
    found = set()
    for path in listed.stdout.splitlines():
        if not (ROOT / path).exists():
            continue
        text = (ROOT / path).read_text()
        found.update(".".join(names) for names in CPP_TEST.findall(text))
        found.update(PYTHON_TEST.findall(text))
    return found


def rows_of(text: str) -> set[int]:
    numbers = set()
    for line in text.splitlines():
        if line.startswith("|"):
            numbers.update(int(number) for number in re.findall(r"\bF(\d+)\b", line.split("|")[1]))
    return numbers


def main() -> int:
    text = PAGE.read_text()
    problems = [f"{PAGE.name}: no test is named {name}" for name in sorted(set(NAMED.findall(text)) - tests_of_the_tree())]
    missing = set(range(FIRST, LAST + 1)) - rows_of(text)
    problems += [f"{PAGE.name}: no row F{number}" for number in sorted(missing)]
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
