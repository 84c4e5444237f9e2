"""The C++ sources of the repository, as the lint tests see them."""

import pathlib
import re
from dataclasses import dataclass
from typing import Iterator

SUFFIXES = (".cc", ".cu", ".h")
ROOTS = ("client", "common", "controller", "examples", "planner", "tests", "worker")

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)


def source_files(root: pathlib.Path) -> Iterator[str]:
    """Paths of all .h, .cc and .cu files below ROOTS, relative to `root`, sorted, tracked by git or not."""
    paths = (path for folder in ROOTS for path in (root / folder).rglob("*") if path.suffix in SUFFIXES)
    return (str(path.relative_to(root)) for path in sorted(paths))


def is_for_tests(path: str) -> bool:
    """Whether a file is a test, or only tests use it."""
    folders = pathlib.PurePosixPath(path).parts[:-1]
    return path.endswith("_test.cc") or "tests" in folders or "testing" in folders


@dataclass(frozen=True)
class IncludeGraph:
    """Which of our headers each of our files includes. Headers made from protos are not among them."""

    includes: dict[str, list[str]]

    @staticmethod
    def read(root: pathlib.Path) -> "IncludeGraph":
        files = list(source_files(root))
        known = set(files)
        return IncludeGraph({
            path: [name for _, name in INCLUDE.findall((root / path).read_text()) if name in known] for path in files})

    def reached_from(self, path: str) -> set[str]:
        """Our headers that compiling `path` reads, however deep; without `path`."""
        reached, pending = set(), list(self.includes.get(path, ()))
        while pending:
            header = pending.pop()
            if header not in reached:
                reached.add(header)
                pending += self.includes[header]
        return reached - {path}
