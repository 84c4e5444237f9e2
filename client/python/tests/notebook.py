"""Runs notebooks as Jupyter does, without Jupyter, and writes what their cells show into them:

    notebook.py FILE.ipynb...

Of Jupyter there is what cells can see: one namespace, the notebook's folder, an event loop that runs, `await` outside
of functions; and the last expression of a cell is shown as it represents itself.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

Outputs = list[dict[str, Any]]
_REPRESENTATIONS = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_"}


def read(path: pathlib.Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def varies(cell: dict[str, Any]) -> bool:
    """Whether a cell shows times, or whatever is another one each time."""
    return "varies" in cell["metadata"].get("tags", [])


def run(path: pathlib.Path) -> list[Outputs]:
    """What each code cell shows, in a process of its own. Raises ValueError with the text of what a cell raised."""
    done = subprocess.run(
        [sys.executable, "-B", __file__, "--print", str(path)], capture_output=True, text=True, check=False,
        cwd=path.parent, timeout=120)
    if done.returncode != 0:
        raise ValueError(f"{path.name}: {done.stderr}")
    found: list[Outputs] = json.loads(done.stdout)
    return found


async def _shown(cell: dict[str, Any], count: int, namespace: dict[str, Any]) -> Outputs:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        value = await _value("".join(cell["source"]), f"<cell {count}>", namespace)
    outputs: Outputs = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        outputs.append({"data": _representations(value), "execution_count": count, "metadata": {},
                        "output_type": "execute_result"})
    return outputs


async def _value(source: str, name: str, namespace: dict[str, Any]) -> Any:
    """Of the last statement, if it is an expression."""
    statements = ast.parse(source, name).body
    last = [statements.pop()] if statements and isinstance(statements[-1], ast.Expr) else []
    parts = [ast.Module(statements, []), *(ast.Expression(one.value) for one in last if isinstance(one, ast.Expr))]
    value = None
    for part, mode in zip(parts, ("exec", "eval"), strict=False):
        code = compile(part, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            value = await value
    return value


def _representations(value: Any) -> dict[str, list[str]]:
    found = {"text/plain": _lines(repr(value))}
    for kind, method in _REPRESENTATIONS.items():
        text = getattr(value, method)() if hasattr(value, method) else None
        if text is not None:
            found[kind] = _lines(text)
    return found


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


async def _run_here(path: pathlib.Path) -> list[Outputs]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [await _shown(cell, count, namespace) for count, cell in enumerate(code_cells(read(path)), 1)]


def write(path: pathlib.Path) -> None:
    notebook = read(path)
    for count, (cell, outputs) in enumerate(zip(code_cells(notebook), run(path), strict=True), 1):
        cell["execution_count"], cell["outputs"] = count, outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    if sys.argv[1] == "--print":
        print(json.dumps(asyncio.run(_run_here(pathlib.Path(sys.argv[2])))))
        return
    for name in sys.argv[1:]:
        write(pathlib.Path(os.path.abspath(name)))


if __name__ == "__main__":
    main()
