"""The notebooks of docs/notebooks run as they stand, and show what they show."""

import json
import pathlib

import notebook
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_says(path):
    cells = notebook.code_cells(notebook.read(path))
    for cell, found in zip(cells, notebook.run(path), strict=True):
        kept = cell["outputs"]
        if notebook.varies(cell):
            found, kept = ([sorted(one.get("data", one)) for one in outputs] for outputs in (found, kept))
        assert found == kept, "".join(cell["source"]) + "\nclient/python/tests/notebook.py writes it anew"


def run_cells(folder, *sources):
    path = folder / "some.ipynb"
    path.write_text(json.dumps({"cells": [
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": []} for source in sources]}))
    return notebook.run(path)


def test_cells_share_a_namespace_and_show_their_last_expression(tmp_path):
    first, second, third = run_cells(
        tmp_path, "x = 3", "print(x)\nx + 1", "import crossmesh\ncrossmesh.draw(crossmesh.Mesh('a=2 on h.0-1'))")
    assert first == []
    assert [one.get("text", one.get("data")) for one in second] == [["3\n"], {"text/plain": ["4"]}]
    assert third[0]["data"]["text/plain"][0].startswith("<Picture of")
    assert third[0]["data"]["image/svg+xml"][0].startswith("<svg")


def test_cells_may_await(tmp_path):
    assert run_cells(tmp_path, "import asyncio\nawait asyncio.sleep(0, 7)")[0][0]["data"] == {"text/plain": ["7"]}


def test_a_cell_that_raises_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"some\.ipynb(.|\n)*<cell 2>(.|\n)*ZeroDivisionError"):
        run_cells(tmp_path, "1", "1 / 0")
