"""Fails where a file, a function or what a source includes is larger than CONTRIBUTING.md promises.

    limits_test.py <repository root>

Product and test code alike, but for parameters and headers: tests may take more of both. Prints the product source that
reads the most of our headers, so that one sees how near the limit is.
"""

import pathlib
import sys
from typing import Iterator

import cpp_functions
import source_tree

LINES_MAX = {".cc": 400, ".cu": 400, ".h": 250}
BODY_LINES_MAX = 60
PARAMETERS_MAX = 4
NESTING_MAX = 3
# Of ours, that compiling a source of the product reads, however deep.
HEADERS_MAX = 60

# Signatures that are not ours to choose.
FOREIGN_SIGNATURES = {
    "OnActiveMessage": "a callback of UCX",
}


def size_problems(path: str, text: str) -> Iterator[str]:
    lines, limit = len(text.splitlines()), LINES_MAX[pathlib.PurePosixPath(path).suffix]
    if lines > limit:
        yield f"{path}: {lines} lines, at most {limit}: find the second idea and name it"


def function_problems(path: str, text: str) -> Iterator[str]:
    for function in cpp_functions.functions(text):
        where = f"{path}:{function.line}: {function.name}"
        is_foreign = function.name.split("::")[-1] in FOREIGN_SIGNATURES
        if function.lines is not None and function.lines > BODY_LINES_MAX:
            yield f"{where} has {function.lines} lines, at most {BODY_LINES_MAX}"
        if function.nesting > NESTING_MAX:
            yield f"{where} nests {function.nesting} deep, at most {NESTING_MAX}: name what is inside"
        if function.parameters > PARAMETERS_MAX and not is_foreign and not source_tree.is_for_tests(path):
            yield (f"{where} takes {function.parameters} parameters, at most {PARAMETERS_MAX}: "
                   "give them a struct with names")


def is_counted(path: str) -> bool:
    return path.endswith(".cc") and not source_tree.is_for_tests(path)


def header_problems(graph: source_tree.IncludeGraph) -> Iterator[str]:
    for path in filter(is_counted, graph.includes):
        count = len(graph.reached_from(path))
        if count > HEADERS_MAX:
            yield (f"{path}: reads {count} headers of ours, at most {HEADERS_MAX}: "
                   "declare ahead what it only names, or split it")


def most_headers(graph: source_tree.IncludeGraph) -> str:
    count, path = max((len(graph.reached_from(path)), path) for path in graph.includes if is_counted(path))
    return f"Most headers: {count}, {path}"


def problems_of(root: pathlib.Path, graph: source_tree.IncludeGraph) -> Iterator[str]:
    for path in source_tree.source_files(root):
        text = (root / path).read_text()
        yield from size_problems(path, text)
        yield from function_problems(path, text)
    yield from header_problems(graph)


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    graph = source_tree.IncludeGraph.read(root)
    problems = list(problems_of(root, graph))
    for problem in problems:
        print(problem)
    print(most_headers(graph))
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
