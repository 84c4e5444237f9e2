"""What the pages show of the package in Python runs as it stands."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = ["README.md", "docs/python.md"]
FRAMEWORKS = ("jax", "torch")


def blocks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "index"), [(page, index) for page in PAGES for index in range(len(blocks(page)))])
def test_a_block_of_python_runs(page, index):
    code = blocks(page)[index]
    for framework in FRAMEWORKS:
        if re.search(rf"^import {framework}$", code, re.MULTILINE):
            pytest.importorskip(framework)
    exec(compile(code, f"{page}, block {index}", "exec"), {})  # the page of this repository


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_all_python_as_blocks_of_it(page):
    """Code that is indented would be run by nothing."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert blocks(page)
    assert not re.search(r"^    (import|from|with|def) ", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
