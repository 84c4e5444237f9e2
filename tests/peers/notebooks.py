#!/usr/bin/env python3
"""Runs the notebooks of docs/notebooks in Jupyter's own kernel, and prints how long each takes.

    notebooks.py FOLDER

Needs nbclient and ipykernel, and the package crossmesh with its programs. The ordinary tests run the same cells without
Jupyter (client/python/tests/notebook.py).
"""

import pathlib
import sys
import time

import nbformat
from nbclient import NotebookClient


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    found = sorted(folder.glob("*.ipynb"))
    for path in found:
        start = time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
        print(f"{path.name}: {len(notebook.cells)} cells, {time.monotonic() - start:.1f} s")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
