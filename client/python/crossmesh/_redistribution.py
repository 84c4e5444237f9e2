"""A change of a DTensor's placements by the steps that Crossmesh finds, as torch's own collectives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from crossmesh import programs
from crossmesh.errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

_REDUCTIONS = {"sum": "sum", "avg": "mean", "min": "min", "max": "max"}


@functools.lru_cache(maxsize=1024)
def _program(words: tuple[str, ...]) -> Callable[[Any], Any]:
    """What `crossmesh redistribute --emit torch` prints, which makes its process groups once."""
    namespace: dict[str, Any] = {"__name__": "crossmesh_redistribution"}
    exec(compile(programs.text_of([*words, "--emit", "torch"]), "<crossmesh redistribute>", "exec"), namespace)
    run: Callable[[Any], Any] = namespace["redistribute"]
    return run


def redistribute(tensor: DTensor, placements: Sequence[Placement], devices: Sequence[str] | None = None) -> DTensor:
    """The tensor with other placements. All ranks call it, in the same order, as with DTensor.redistribute.

    Partial sums, means, minima and maxima are reduced on the way. `devices` names the device of every rank, so that
    what is inside a host is cheaper than what is between hosts; without it all are on one host.

    Raises InvalidArgumentError where the mesh is not all ranks in order, for placements that `layout` refuses, for
    several kinds of Partial at once, and for Partial among `placements`.
    """
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Partial, Replicate

    from crossmesh import torch as adapter

    ours = adapter.mesh(tensor.device_mesh, devices)
    order = [int(rank) for rank in tensor.device_mesh.mesh.flatten().tolist()]
    if order != list(range(dist.get_world_size())):
        raise InvalidArgumentError(
            f"mesh of the tensor: expected all {dist.get_world_size()} ranks in order, found {order}",
            "mesh of the tensor", f"all {dist.get_world_size()} ranks in order", str(order))
    shape = [int(length) for length in tensor.shape]
    partial = [axis for axis, placement in enumerate(tensor.placements) if placement.is_partial()]
    whole = [Replicate() if axis in partial else placement for axis, placement in enumerate(tensor.placements)]
    source = adapter.layout(whole, ours, shape, origin="distribute_tensor")
    wanted = adapter.layout(placements, ours, shape, origin="distribute_tensor")
    words = [
        "redistribute", "--mesh", str(ours), "--shape", str(shape), "--source", str(source), "--destination",
        str(wanted)]
    axes = [ours.axes[axis][0] for axis in partial]
    words += _reduction([tensor.placements[axis] for axis in partial], axes, Partial)
    local = _program(tuple(words))(tensor.to_local())
    return DTensor.from_local(
        local, tensor.device_mesh, list(placements), run_check=False, shape=tensor.shape, stride=tensor.stride())


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

