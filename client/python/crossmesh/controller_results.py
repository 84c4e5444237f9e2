"""What a controller says of itself. Sizes are in bytes. All are immutable."""

from __future__ import annotations

import datetime
from dataclasses import dataclass


@dataclass(frozen=True)
class ControllerStore:
    """Where a controller keeps what it knows: kind is "memory", "sqlite" or "etcd".

    What follows the revision is of stores in a folder, and nothing otherwise. With less than free_bytes_min nothing is
    written but deletes. is_read_only: damaged, or its disk has failed too often. Times are None if it was not since the
    controller started.
    """

    kind: str
    revision: int
    database_bytes: int
    log_bytes: int
    free_bytes: int
    is_full: bool
    is_read_only: bool
    corruptions: int
    disk_failures: int
    verify_time: datetime.datetime | None
    backup_time: datetime.datetime | None
    free_bytes_min: int
    backup_failures: int


@dataclass(frozen=True)
class StandbyController:
    """A controller that stands by, and where it serves when it leads."""

    address: str
    version: str


@dataclass(frozen=True)
class ControllerInfo:
    """The controller that leads.

    time is by its own clock, with which its times are to be compared. metrics_address is empty where it serves none.
    standbys: with a store that several controllers share, those that have said so lately.
    """

    version: str
    epoch: int
    start_time: datetime.datetime
    addresses: tuple[str, ...]
    store: ControllerStore
    meshes: int
    manifests: int
    pipelines: int
    metrics_address: str
    time: datetime.datetime
    standbys: tuple[StandbyController, ...]
