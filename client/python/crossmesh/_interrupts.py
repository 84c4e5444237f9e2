"""Code that Ctrl-C may not end in its midst."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

Value = TypeVar("Value")


def apart(work: Callable[[], Iterator[Value]]) -> Iterator[Value]:
    """What `work()` gives and raises, from a thread of its own where this is the main one.

    Python raises KeyboardInterrupt between any two steps of the main thread. Within gRPC that may leave a lock held, on
    which all other calls of the channel wait without end, and its close() as well. What waits here has no such lock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield from work()
        return
    given: queue.SimpleQueue[tuple[Value] | BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            for value in work():
                given.put((value,))
            given.put(None)
        except BaseException as error:  # raised where it is waited for
            given.put(error)

    thread = threading.Thread(target=run, name="crossmesh-call", daemon=True)
    thread.start()
    while isinstance(found := given.get(), tuple):
        yield found[0]
    thread.join()  # what is forked off has nothing that it was about to do
    if found is not None:
        raise found
