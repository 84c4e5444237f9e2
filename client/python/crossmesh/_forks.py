"""What a process that was forked off does with its parent's channels of gRPC: they stay, since gRPC cannot take them
apart there. One of blocking calls crashes at times, one of asyncio waits for a thread that is not there."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Protocol


class HasChannels(Protocol):
    _channels: dict[str, Any]


_owners: weakref.WeakSet[HasChannels] = weakref.WeakSet()


def keep_channels_of(owner: HasChannels) -> None:
    """In processes that are forked off from now on, also when `owner` goes there."""
    _owners.add(owner)


def _keep() -> None:
    for owner in _owners:
        for channel in list(owner._channels.values()):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(channel))


os.register_at_fork(after_in_child=_keep)
