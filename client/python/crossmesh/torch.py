"""Meshes and layouts from and to torch.distributed: DeviceMesh, and the placements of DTensor::

    mesh = crossmesh.torch.mesh(device_mesh, devices=["node-a.0", "node-a.1", "node-b.0", "node-b.1"])
    layout = crossmesh.torch.layout(dtensor.placements, device_mesh, dtensor.shape)
    placements = crossmesh.torch.placements(layout, mesh, shape)
    dtensor = crossmesh.torch.redistribute(dtensor, [Shard(1), Replicate()])

A placement is said of an axis of the mesh, a layout of a dimension of the tensor. Either way a tensor is the same bytes
in the same slots; where it would not be, it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crossmesh import _arguments, _cuts
from crossmesh._core import Layout, Manifest, Mesh, Tensor
from crossmesh._dtypes import name_of
from crossmesh._redistribution import redistribute as redistribute
from crossmesh.errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

_ORIGINS = ("distribute_tensor", "fsdp2")


@_arguments.checked
def mesh(device_mesh: DeviceMesh, devices: Sequence[str] | None = None) -> Mesh:
    """The mesh of a DeviceMesh. `devices` names the device of every global rank; without it rank r is device local.r.

    Axes have the names of the DeviceMesh's dimensions, or dim_0, dim_1, ... where it has none. Raises
    InvalidArgumentError for names that are no names of axes, and for a rank that `devices` does not have.
    """
    ranks = device_mesh.mesh
    names = device_mesh.mesh_dim_names or [f"dim_{i}" for i in range(ranks.ndim)]
    order = [int(rank) for rank in ranks.flatten().tolist()]
    if devices is None:
        bound = [f"local.{rank}" for rank in order]
    else:
        if order and max(order) >= len(devices):
            raise InvalidArgumentError(
                f"devices: expected one for each rank to {max(order)}, found {len(devices)}",
                "devices", f"one for each rank to {max(order)}", str(len(devices)))
        bound = [devices[rank] for rank in order]
    return Mesh.of(list(zip(names, (int(size) for size in ranks.shape), strict=True)), bound)


@_arguments.checked
def device_mesh(mesh: Mesh, device_type: str = "cpu", ranks: Sequence[int] | None = None) -> DeviceMesh:
    """The DeviceMesh of a mesh, over ranks 0, 1, ... in the order of slots, or over `ranks`. All ranks call it.
    `device_type` is torch's, such as "cpu" or "cuda"."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    sizes = [size for _, size in mesh.axes]
    order = torch.tensor(list(range(mesh.slots) if ranks is None else ranks), dtype=torch.int)
    return DeviceMesh(device_type, order.reshape(sizes), mesh_dim_names=tuple(name for name, _ in mesh.axes))


@_arguments.checked
def layout(
    placements: Sequence[Placement],
    mesh: Mesh | DeviceMesh,
    shape: Sequence[int],
    *,
    origin: str | None = None,
) -> Layout:
    """The layout of a tensor with these placements.

    By axes where bytes lie as they say, else with explicit tiles: _StridedShard over lengths that do not divide holds
    several boxes in one slot. Who made such a tensor matters then, since FSDP2 over tensor parallelism stores other
    bytes than distribute_tensor does with the placements that it reports. `origin` is "fsdp2" or "distribute_tensor";
    without it such a tensor is refused.

    Raises InvalidArgumentError for Partial and other placements, a count of them that is not the mesh's rank, a
    dimension that the tensor does not have, and what is said above.
    """
    ours = _mesh_of(mesh)
    lengths = [int(length) for length in shape]
    if origin is not None and origin not in _ORIGINS:
        raise InvalidArgumentError(
            f"origin: expected fsdp2 or distribute_tensor, found {origin!r}",
            "origin", "fsdp2 or distribute_tensor", repr(origin))
    cuts = _cuts_of_placements(placements, ours, len(lengths))
    plain = _cuts.left_to_right(cuts, len(lengths))
    distributed = _cuts.held(cuts, ours, lengths)
    if all(cut is None or cut.split_factor == 1 for cut in cuts):
        return _cuts.layout_of(distributed, [plain], ours, lengths)
    order = _cuts.fsdp_order(cuts, ours, len(lengths))
    stored = None if order is None else _cuts.nested(order, ours, lengths)
    if origin == "fsdp2" and (order is None or stored is None):
        raise InvalidArgumentError(
            f"placements {tuple(placements)}: expected split factors of FSDP2, the product of the shards inside, "
            "found others", f"placements {tuple(placements)}", "split factors of FSDP2", "others")
    if origin is None and stored is not None and not _cuts.same(stored, distributed):
        raise InvalidArgumentError(
            f"placements {tuple(placements)} of shape {lengths}: expected origin, since what FSDP2 stores and what "
            "distribute_tensor does differ where parts are not equal, found none",
            f"placements {tuple(placements)} of shape {lengths}", "origin", "none")
    slots = stored if origin == "fsdp2" and stored is not None else distributed
    return _cuts.layout_of(slots, [plain] if order is None else [order, plain], ours, lengths)


@_arguments.checked
def layout_of(tensor: DTensor, *, origin: str | None = None) -> Layout:
    """The layout of a DTensor, by its placements, mesh and shape, as layout(), with its `origin`. Raises
    InvalidArgumentError also where the local tensor on this rank has another number of elements than the layout gives
    it."""
    ours = _mesh_of(tensor.device_mesh)
    found = layout(tensor.placements, ours, tensor.shape, origin=origin)
    order = [int(rank) for rank in tensor.device_mesh.mesh.flatten().tolist()]
    here = tensor.device_mesh.get_rank()
    if here in order:
        tile = found.tiles(ours, [int(length) for length in tensor.shape])[order.index(here)]
        expected = sum(_volume(box) for box in tile)
        local = int(tensor.to_local().numel())
        if local != expected:
            raise InvalidArgumentError(
                f"tensor with placements {tuple(tensor.placements)}: expected {expected} elements on rank {here}, "
                f"found {local}: its placements do not say what it holds",
                f"tensor with placements {tuple(tensor.placements)}", f"{expected} elements on rank {here}",
                str(local))
    return found


@_arguments.checked
def placements(layout: Layout, mesh: Mesh, shape: Sequence[int]) -> list[Placement]:
    """The placements by which distribute_tensor puts the same bytes into the same slots.

    Raises InvalidArgumentError where there are none: explicit tiles, and lengths that DTensor cuts by another rule.
    """
    from torch.distributed.tensor.placement_types import Replicate, Shard, _StridedShard

    result: list[Placement] = []
    for cut in _cuts.cuts_of(layout, mesh, list(shape)):
        if cut is None:
            result.append(Replicate())
        elif cut.split_factor == 1:
            result.append(Shard(cut.dimension))
        else:
            result.append(_StridedShard(cut.dimension, split_factor=cut.split_factor))
    return result


@_arguments.checked
def manifest(state_dict: Mapping[str, Any]) -> Manifest:
    """The manifest of a state_dict of tensors and DTensors, in its order, with their whole shapes.

    Raises InvalidArgumentError, naming the entry, for what is no tensor or has a dtype that Crossmesh does not move.
    """
    tensors = []
    for name, value in state_dict.items():
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            raise InvalidArgumentError(
                f'entry "{name}": expected a tensor, found {type(value).__name__}',
                f'entry "{name}"', "a tensor", type(value).__name__)
        tensors.append(Tensor(name, name_of(f'entry "{name}"', value.dtype), [int(length) for length in value.shape]))
    return Manifest(tensors)


def _mesh_of(given: Mesh | DeviceMesh) -> Mesh:
    return given if isinstance(given, Mesh) else mesh(given)


def _volume(box: tuple[slice, ...]) -> int:
    volume = 1
    for part in box:
        volume *= part.stop - part.start
    return volume


def _cuts_of_placements(placements: Sequence[Placement], mesh: Mesh, rank: int) -> list[_cuts.Cut | None]:
    axes = mesh.axes
    if len(placements) != len(axes):
        raise InvalidArgumentError(
            f"placements: expected one for each of {len(axes)} axes, found {len(placements)}",
            "placements", f"one for each of {len(axes)} axes", str(len(placements)))
    return [_cut_of(placement, name, rank) for placement, (name, _) in zip(placements, axes, strict=True)]


def _cut_of(placement: Placement, axis: str, rank: int) -> _cuts.Cut | None:
    from torch.distributed.tensor.placement_types import Replicate, Shard, _StridedShard

    kind = type(placement)
    if kind is Replicate:
        return None
    if isinstance(placement, Shard | _StridedShard) and kind in (Shard, _StridedShard):
        dimension = placement.dim + rank if placement.dim < 0 else placement.dim
        if not 0 <= dimension < rank:
            raise InvalidArgumentError(
                f"placement {placement} of axis {axis}: expected a dimension below {rank}, found {placement.dim}",
                f"placement {placement} of axis {axis}", f"a dimension below {rank}", str(placement.dim))
        factor = int(placement.split_factor) if isinstance(placement, _StridedShard) else 1
        return _cuts.Cut(dimension, factor)
    hint = "; reduce it first: tensor.redistribute(placements=...)" if placement.is_partial() else ""
    raise InvalidArgumentError(
        f"placement of axis {axis}: expected Shard, Replicate or _StridedShard, found {placement!r}{hint}",
        f"placement of axis {axis}", "Shard, Replicate or _StridedShard", repr(placement))
