"""Fails where what compilers and linkers are silent about is wrong with the name of a type.

    names_test.py <repository root>

Two types of one namespace may not have one name: a program that links both takes the destructor of either. Those of
anonymous namespaces are their file's own. And a file must include what defines a type that it names, or a header that
does: where sources are joined, the one before may have done so.
"""

import pathlib
import re
import sys
from collections import defaultdict
from typing import Iterator

import cpp_functions
import source_tree

# A library of its own, which shows only what it exports.
STAND_INS = "tests/standin/"

# As clang-format lays them out: nothing of a namespace is indented.
_LINE = re.compile(
    r"(?P<opens>^namespace(?: (?P<namespace>[\w:]+))? \{(?!.*\}))"
    r"|(?P<closes>^\}  // namespace)"
    r"|^(?:template <.*> )?(?:class|struct|union|enum class) (?:\[\[\w+\]\] |alignas\(\w+\) )*(?P<type>\w+)\b(?!::)"
    r"(?=[^;(<]*(?:\{|$))", re.MULTILINE)


def types_of(text: str) -> Iterator[str]:
    """The names of the types that a file defines for other files, with their namespaces."""
    namespaces = []
    for match in _LINE.finditer(text):
        if match["opens"]:
            namespaces.append(match["namespace"])
        elif match["closes"]:
            namespaces.pop()
        elif None not in namespaces:
            yield "::".join([*namespaces, match["type"]])


def names_twice(texts: dict[str, str]) -> Iterator[str]:
    places = defaultdict(list)
    for path, text in texts.items():
        for name in types_of(text):
            places[name, path.startswith(STAND_INS)].append(path)
    for (name, _), paths in places.items():
        if len(paths) > 1:
            yield f"{name} is defined in {' and in '.join(paths)}: two ideas need two names"


# Not `v1::Host` nor `table.Host`; names of tests are no types.
_TESTS = re.compile(r"^(?:TEST|INSTANTIATE_TEST)\w*\([^,]*,[^,)]*", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.>:])[A-Z]\w+\b(?!\s*\()")
_DECLARED = re.compile(r"\b(?:class|struct|union|enum class|enum|using|typename)\s+(?:\[\[\w+\]\] )?(\w+)")


def missing_includes(texts: dict[str, str], graph: source_tree.IncludeGraph) -> Iterator[str]:
    code = {path: _TESTS.sub("", cpp_functions.without_comments(text)) for path, text in texts.items()}
    declared = {path: set(_DECLARED.findall(text)) for path, text in code.items()}
    defined = {name.split("::")[-1]: path for path, text in texts.items()
               if path.endswith(".h") and not path.startswith(STAND_INS) for name in types_of(text)}
    for path, text in code.items():
        seen = declared[path].union(*(declared[header] for header in graph.reached_from(path)))
        for name in sorted((set(_NAME.findall(text)) & defined.keys()) - seen):
            yield f"{path}: names {name} and does not include {defined[name]}"


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    texts = {path: (root / path).read_text() for path in source_tree.source_files(root)}
    problems = [*names_twice(texts), *missing_includes(texts, source_tree.IncludeGraph.read(root))]
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
