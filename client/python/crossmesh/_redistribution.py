"""A change of a DTensor's placements by the steps that Crossmesh finds, as torch's own collectives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from crossmesh import _arguments, programs
from crossmesh.errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

_REDUCTIONS = {"sum": "sum", "avg": "mean", "min": "min", "max": "max"}
_PROGRAMS_MAX = 1024

Placements = tuple["Placement", ...]


class _World:
    """The programs of a default process group, each made when it is first asked for, and the groups that they share.

    All ranks ask in the same order, so groups are made by all of them in the same order.
    """

    def __init__(self, process_group: Any):
        self.process_group = process_group
        self.program = functools.lru_cache(maxsize=_PROGRAMS_MAX)(self._program)
        self._emitted = functools.lru_cache(maxsize=_PROGRAMS_MAX)(self._load)
        self._groups: dict[tuple[int, ...], Any] = {}

    def _group(self, ranks: Sequence[int]) -> Any:
        import torch.distributed as dist

        members = tuple(ranks)
        if members not in self._groups:
            self._groups[members] = dist.new_group(list(members))
        return self._groups[members]

    def _program(
        self, mesh: DeviceMesh, source: Placements, wanted: Placements, shape: tuple[int, ...],
        devices: tuple[str, ...] | None,
    ) -> Callable[[Any], Any]:
        return self._emitted(_words(mesh, source, wanted, shape, devices))

    def _load(self, words: tuple[str, ...]) -> Callable[[Any], Any]:
        """What `crossmesh redistribute --emit torch` prints."""
        namespace: dict[str, Any] = {"__name__": "crossmesh_redistribution"}
        exec(compile(programs.text_of([*words, "--emit", "torch"]), "<crossmesh redistribute>", "exec"), namespace)
        namespace["_new_group"] = self._group
        run: Callable[[Any], Any] = namespace["redistribute"]
        return run


_worlds: list[_World] = []  # the one of the present default process group


def _world() -> _World:
    import torch.distributed as dist

    process_group = dist.group.WORLD
    if not _worlds or _worlds[0].process_group is not process_group:
        _worlds[:] = [_World(process_group)]
    return _worlds[0]


@_arguments.checked
def redistribute(tensor: DTensor, placements: Sequence[Placement], devices: Sequence[str] | None = None) -> DTensor:
    """The tensor with other placements. All ranks call it, in the same order, as with DTensor.redistribute.

    Partial sums, means, minima and maxima are reduced on the way. `devices` names the device of every rank, so that
    what is inside a host is cheaper than what is between hosts; without it all are on one host. No gradient flows back
    through it. A change that is asked for again costs no planning.

    Raises InvalidArgumentError where the mesh is not all ranks in order, for placements that `layout` refuses, for
    several kinds of Partial at once, and for Partial among `placements`.
    """
    import torch
    from torch.distributed.tensor import DTensor

    named = None if devices is None else tuple(devices)
    run = _world().program(tensor.device_mesh, tensor.placements, tuple(placements), tuple(tensor.shape), named)
    with torch.no_grad():
        held = tensor.to_local()
        local = run(held)
        if local.untyped_storage().data_ptr() == held.untyped_storage().data_ptr():
            local = local.clone()  # what is written to one of the two is not in the other
        return DTensor.from_local(
            local, tensor.device_mesh, list(placements), run_check=False, shape=tensor.shape, stride=tensor.stride())


def _words(
    mesh: DeviceMesh, placements: Placements, wanted: Placements, lengths: tuple[int, ...],
    devices: tuple[str, ...] | None,
) -> tuple[str, ...]:
    """The command that plans it."""
    import torch.distributed as dist
    from torch.distributed.tensor import Partial, Replicate

    from crossmesh import torch as adapter

    ours = adapter.mesh(mesh, devices)
    order = [int(rank) for rank in mesh.mesh.flatten().tolist()]
    if order != list(range(dist.get_world_size())):
        raise InvalidArgumentError(
            f"mesh of the tensor: expected all {dist.get_world_size()} ranks in order, found {order}",
            "mesh of the tensor", f"all {dist.get_world_size()} ranks in order", str(order))
    shape = [int(length) for length in lengths]
    partial = [axis for axis, placement in enumerate(placements) if placement.is_partial()]
    whole = [Replicate() if axis in partial else placement for axis, placement in enumerate(placements)]
    source = adapter.layout(whole, ours, shape, origin="distribute_tensor")
    destination = adapter.layout(wanted, ours, shape, origin="distribute_tensor")
    words = [
        "redistribute", "--mesh", str(ours), "--shape", str(shape), "--source", str(source), "--destination",
        str(destination)]
    axes = [ours.axes[axis][0] for axis in partial]
    return (*words, *_reduction([placements[axis] for axis in partial], axes, Partial))


def _reduction(placements: Sequence[Placement], axes: Sequence[str], kind: type) -> list[str]:
    if not placements:
        return []
    operations = {getattr(placement, "reduce_op", "") if type(placement) is kind else repr(placement)
                  for placement in placements}
    operation = operations.pop()
    if operations or operation not in _REDUCTIONS:
        raise InvalidArgumentError(
            f"placements {tuple(placements)}: expected Partial of one of {', '.join(_REDUCTIONS)}, found others",
            f"placements {tuple(placements)}", f"Partial of one of {', '.join(_REDUCTIONS)}", "others")
    return ["--source-partial", ",".join(axes), "--reduction", _REDUCTIONS[operation]]
