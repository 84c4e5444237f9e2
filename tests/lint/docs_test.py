"""Fails on a page of documentation that is wider than it may be, or that leads nowhere.

    docs_test.py <repository root>

Of every Markdown file: lines have at most 120 columns, but for rows of tables, code, and lines with a long address;
headings stand between blank lines; relative links lead to a file, and to a heading of it; and every page can be
reached from README.md or ARCHITECTURE.md by links.
"""

import pathlib
import re
import sys
from dataclasses import dataclass, field
from typing import Iterator

COLUMNS_MAX = 120
# An address that cannot be broken makes its line as long as it is.
LONG_ADDRESS = re.compile(r"\S*(?:https?://|\]\()\S{60,}")
ENTRIES = ("README.md", "ARCHITECTURE.md")
# What is built or installed, and what a forge shows by itself, without a link.
NOT_PAGES = (".cache", ".cuda", ".git", ".github", ".python", "build")

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
LINKED_TEXT = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


@dataclass
class Line:
    number: int
    text: str
    is_code: bool


@dataclass
class Page:
    lines: list[Line]
    anchors: set[str] = field(default_factory=set)
    links: list[tuple[int, str]] = field(default_factory=list)  # line and target


def lines_of(text: str) -> Iterator[Line]:
    """Code is what stands between fences, or four columns in behind a blank line."""
    fence = ""
    indented = False
    blank = True
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if fence:
            yield Line(number, line, True)
            if match and match[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
            blank = False
            continue
        if match:
            fence = match[1]
            yield Line(number, line, True)
            continue
        if line.strip():
            indented = line.startswith("    ") and (blank or indented)
        blank = not line.strip()
        yield Line(number, line, indented and not blank)


def slug(heading: str, taken: set[str]) -> str:
    """The anchor that a forge gives a heading: lower case, hyphens for spaces, a number where it is there already."""
    text = LINKED_TEXT.sub(r"\1", heading).replace("`", "").lower()
    base = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base}-{count}"
    return name


def read_page(text: str) -> Page:
    page = Page(list(lines_of(text)))
    for line in page.lines:
        if line.is_code:
            continue
        if match := HEADING.match(line.text):
            page.anchors.add(slug(match[2], page.anchors))
        page.links += [(line.number, match[1]) for match in LINK.finditer(CODE_SPAN.sub("", line.text))]
    return page


def layout_problems(path: str, page: Page) -> list[str]:
    """Of columns and headings."""
    problems = []
    texts = ["", *(line.text for line in page.lines), ""]
    for line in page.lines:
        if line.is_code:
            continue
        columns = len(line.text)
        is_row = line.text.lstrip().startswith("|")
        if columns > COLUMNS_MAX and not is_row and not LONG_ADDRESS.search(line.text):
            problems.append(f"{path}:{line.number}: {columns} columns, over {COLUMNS_MAX}")
        if HEADING.match(line.text):
            if texts[line.number - 1].strip():
                problems.append(f"{path}:{line.number}: a blank line is missing before the heading")
            if texts[line.number + 1].strip():
                problems.append(f"{path}:{line.number}: a blank line is missing after the heading")
    return problems


def target_of(root: pathlib.Path, path: str, link: str) -> tuple[str | None, str]:
    """File and anchor that a relative link names, the file from the root; a folder's page is its README.md."""
    name, _, anchor = link.partition("#")
    target = (root / path).parent / name if name else root / path
    if target.is_dir() and (target / "README.md").is_file():
        target /= "README.md"
    try:
        return str(target.resolve().relative_to(root.resolve())), anchor
    except ValueError:
        return None, anchor


def link_problems(root: pathlib.Path, pages: dict[str, Page]) -> list[str]:
    problems = []
    for path, page in pages.items():
        for number, link in page.links:
            if "://" in link or link.startswith("mailto:"):
                continue
            target, anchor = target_of(root, path, link)
            if target is None or not (root / target).exists():
                problems.append(f"{path}:{number}: {link}: there is no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                problems.append(f"{path}:{number}: {link}: {target} has no heading with that anchor")
    return problems


def reach_problems(root: pathlib.Path, pages: dict[str, Page]) -> list[str]:
    found = [entry for entry in ENTRIES if entry in pages]
    for path in found:  # grows
        for _, link in pages[path].links:
            target, _ = target_of(root, path, link)
            if target in pages and target not in found:
                found.append(target)
    return [f"{path}: no link leads here from {' or '.join(ENTRIES)}" for path in sorted(pages.keys() - set(found))]


def read_pages(root: pathlib.Path) -> dict[str, Page]:
    paths = list(root.glob("*.md"))
    for folder in root.iterdir():
        if folder.is_dir() and folder.name not in NOT_PAGES:
            paths += folder.rglob("*.md")
    return {str(path.relative_to(root)): read_page(path.read_text()) for path in sorted(paths)}


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    pages = read_pages(root)
    problems = [problem for path, page in pages.items() for problem in layout_problems(path, page)]
    problems += link_problems(root, pages) + reach_problems(root, pages)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems in {len(pages)} pages")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
