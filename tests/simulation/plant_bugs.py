#!/usr/bin/env python3
"""A copy of a source with bugs that a test can switch on: plant_bugs.py BUGS SOURCE OUTPUT

BUGS is planted_bugs.json: for each bug its name, a file, and what stands there in place of what. It fails when that is
not found exactly once, so that a bug cannot get lost when the source changes.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main() -> int:
    bugs, source, output = sys.argv[1:]
    name = pathlib.Path(source).resolve().relative_to(ROOT).as_posix()
    text = pathlib.Path(source).read_text()
    for bug in json.loads(pathlib.Path(bugs).read_text()):
        if bug["file"] != name:
            continue
        if text.count(bug["old"]) != 1:
            print(f"{name}: bug {bug['name']}: expected once, found {text.count(bug['old'])} times: {bug['old']}")
            return 1
        text = text.replace(bug["old"], bug["new"])
    pathlib.Path(output).write_text('#include "tests/simulation/planted_bug.h"\n' + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
