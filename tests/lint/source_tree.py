"""The C++ sources of the repository, as the lint tests see them."""

import pathlib
from typing import Iterator

SUFFIXES = (".cc", ".cu", ".h")
ROOTS = ("client", "common", "controller", "examples", "planner", "tests", "worker")


def source_files(root: pathlib.Path) -> Iterator[str]:
    """Paths of all .h, .cc and .cu files below ROOTS, relative to `root`, sorted, tracked by git or not."""
    paths = (path for folder in ROOTS for path in (root / folder).rglob("*") if path.suffix in SUFFIXES)
    return (str(path.relative_to(root)) for path in sorted(paths))
