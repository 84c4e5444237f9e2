"""The programs that come with the package: the command line and the daemons."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from crossmesh.errors import Error, NotFoundError, error_of

__all__ = ["folder", "path", "share"]

# Where they are, instead of beside the package.
VARIABLE = "CROSSMESH_PROGRAMS"

_CODES = {
    name: code for code, name in enumerate((
        "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
        "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
        "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"))
}  # fmt: skip


def folder() -> pathlib.Path:
    """The folder of the programs: that of the wheel, beside the package, or $CROSSMESH_PROGRAMS."""
    named = os.environ.get(VARIABLE)
    return pathlib.Path(named) if named else pathlib.Path(__file__).resolve().parents[1] / "crossmesh.programs" / "bin"


def share() -> pathlib.Path:
    """What the programs read: examples, and what draws pictures."""
    return folder().parent / "share" / "crossmesh"


def path(name: str) -> pathlib.Path:
    """The file of the program `name`, such as crossmesh-worker. NotFoundError: it is not in folder()."""
    found = folder() / name
    if not found.exists():
        raise NotFoundError(
            f"program {name}: expected it in {folder()}, found none; {VARIABLE} names another folder",
            f"program {name}", f"it in {folder()}", "none")
    return found


def document_of(words: Sequence[str]) -> Any:
    """What a command of the command line prints with --json. Raises its error."""
    return json.loads(text_of([*words, "--json"]))


def text_of(words: Sequence[str]) -> str:
    """What a command of the command line prints. Raises its error, of which all is known with --json."""
    done = subprocess.run(
        [path("crossmesh"), *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return done.stdout
    for text in (done.stdout, done.stderr):
        try:
            error = json.loads(text)["error"]
        except (ValueError, KeyError, TypeError):
            continue
        raise error_of(_CODES.get(error["code"], 2), error["message"])
    raise Error(f"crossmesh {' '.join(words)}: exit status {done.returncode}: {done.stderr.strip()}")


def run(name: str) -> NoReturn:
    """Becomes that program, with this process's arguments."""
    program = str(path(name))
    os.execv(program, [program, *sys.argv[1:]])


def run_crossmesh() -> NoReturn:
    run("crossmesh")


def run_controller() -> NoReturn:
    run("crossmesh-controller")


def run_worker() -> NoReturn:
    run("crossmesh-worker")
