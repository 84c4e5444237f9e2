"""A bar of what an operation has moved: on a terminal or in a notebook one line that is written over."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from crossmesh.results import Operation

_WIDTH = 30


def _is_notebook() -> bool:
    return "ipykernel" in sys.modules


def text(operation: Operation) -> str:
    """Such as "RUNNING [#####     ]  50%  1.0 of 2.0 GB"."""
    total, moved = operation.total_bytes, operation.moved_bytes
    share = 1.0 if operation.ended and not operation.error else min(moved / total, 1.0) if total else 0.0
    filled = int(share * _WIDTH)
    return (f"{operation.state.value:<10} [{'#' * filled}{' ' * (_WIDTH - filled)}] {share:4.0%}  "
            f"{moved / 1e9:.2f} of {total / 1e9:.2f} GB")


@contextlib.contextmanager
def bar(shown: bool | None, stream: TextIO | None = None) -> Iterator[Callable[[Operation], None] | None]:
    """What to call with every state; None where nothing is shown. The line is ended however the block ends."""
    out = stream if stream is not None else sys.stderr
    if shown is None:
        shown = out is not None and (out.isatty() or _is_notebook())
    if not shown:
        yield None
        return
    written = False

    def show(operation: Operation) -> None:
        nonlocal written
        out.write("\r" + text(operation))
        out.flush()
        written = True

    try:
        yield show
    finally:
        if written:
            out.write("\n")
            out.flush()
