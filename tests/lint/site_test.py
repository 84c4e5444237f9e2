"""Fails where the documentation site lacks a page, or its reference a public name of the Python package.

    site_test.py <repository root>

Every page of the repository is in the navigation once (docs/site/toc.yml), and what the navigation names is there. What
each public module of the package defines for others is on a page of docs/reference. scripts/site builds the site, and
checks its links; this needs nothing but Python.
"""

import ast
import fnmatch
import pathlib
import re
import sys

import docs_test

PACKAGE = "client/python/crossmesh"
ENTRY = re.compile(r"^\s*(?:root|- file|- glob): *(\S+)$", re.MULTILINE)
DIRECTIVE = re.compile(r"^\.\. auto(?:class|function|data):: (?:[\w.]+\.)?(\w+)$", re.MULTILINE)
MODULE = re.compile(r"^\.\. automodule:: crossmesh\.(\w+)\n(?! +:no-members:)", re.MULTILINE)


def pages(root: pathlib.Path) -> list[str]:
    """Without endings, as the navigation has them."""
    paths = [root / path for path in docs_test.read_pages(root)]
    paths += [*root.glob("docs/**/*.ipynb"), *root.glob("docs/**/*.rst")]
    return sorted(str(path.relative_to(root).with_suffix("")) for path in paths)


def navigation_problems(navigation: str, found: list[str]) -> list[str]:
    problems = []
    named: list[str] = []
    for entry in ENTRY.findall(navigation):
        matching = fnmatch.filter(found, entry)
        if not matching:
            problems.append(f"{entry}: there is no such page")
        named += matching
    problems += [f"{page}: the navigation names it {named.count(page)} times" for page in found
                 if named.count(page) != 1]
    return problems


def exported(module: str) -> list[str]:
    """What it names in __all__, else the classes and functions that are its own or have their own name."""
    names = []
    for node in ast.parse(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += [one.name for one in node.names if one.asname == one.name]
    return [name for name in names if not name.startswith("_")]


def reference_problems(modules: dict[str, str], reference: str) -> list[str]:
    """`modules` by name, `reference` all its pages."""
    whole = [module for module in MODULE.findall(reference) if module in modules]
    named = {*DIRECTIVE.findall(reference), *(name for module in whole for name in exported(modules[module]))}
    return [f"crossmesh.{module}: no page of the reference has {name}"
            for module, text in modules.items() if module not in whole
            for name in exported(text) if name not in named]


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    modules = {path.stem: path.read_text() for path in sorted((root / PACKAGE).glob("*.py"))
               if not path.stem.startswith("_") or path.stem == "__init__"}
    reference = "\n".join(path.read_text() for path in sorted(root.glob("docs/reference/*.rst")))
    found = pages(root)
    problems = navigation_problems((root / "docs/site/toc.yml").read_text(), found)
    problems += reference_problems(modules, reference)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems in {len(found)} pages and {len(modules)} modules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
