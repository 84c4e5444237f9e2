"""Layouts of tensor, pipeline and expert parallelism as Megatron-LM and vLLM have them.

Weights of linear layers are [out, in], as in PyTorch. `axis` is the axis of `mesh` that has the tensor-parallel ranks,
and `shape` that of the whole tensor. Written from the sources of Megatron-LM (core/parallel_state.py,
core/tensor_parallel) and vLLM (model_executor/layers); neither is imported::

    dense, expert = crossmesh.parallel.megatron_meshes(devices, tensor=8, pipeline=4, expert=8)
    layout = crossmesh.parallel.column("tp", rank=2)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from crossmesh import _arguments
from crossmesh._core import Layout, Mesh
from crossmesh.errors import InvalidArgumentError

_ORDER = "tp-cp-ep-dp-pp"


@_arguments.checked
def megatron_meshes(
    devices: Sequence[str] | str,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    context: int = 1,
    expert: int = 1,
    expert_tensor: int | None = None,
    order: str = _ORDER,
) -> tuple[Mesh, Mesh]:
    """The mesh of dense layers, with axes tp, cp, dp and pp, and that of experts, with etp, ep, edp and pp.

    Both are over the same devices, one for each rank, in the order of ranks. `tensor`, `pipeline`, `context` and
    `expert` are how many ranks share a tensor, the layers, a sequence and the experts; `expert_tensor` of an expert's
    tensors, as many as `tensor` by default. `order` is Megatron's: of its names the first runs
    fastest. How many data-parallel ranks there are follows from the devices. Raises InvalidArgumentError where sizes do
    not divide them, or the order is none.
    """
    names = order.split("-")
    if sorted(names) != sorted(_ORDER.split("-")):
        raise InvalidArgumentError(
            f"order: expected each of {_ORDER} once, found {order!r}", "order", f"each of {_ORDER} once", repr(order))
    whole = Mesh.of([("rank", _count(devices))], devices)
    etp = tensor if expert_tensor is None else expert_tensor
    dense = {"tp": tensor, "cp": context, "pp": pipeline}
    experts = {"etp": etp, "ep": expert, "pp": pipeline}
    dense["dp"] = _rest(whole.slots, dense)
    experts["edp"] = _rest(whole.slots, experts)
    # Experts have no context parallelism, and of Megatron's order dp and tp stand for theirs.
    of_experts = {"tp": "etp", "dp": "edp", "ep": "ep", "pp": "pp"}
    return (
        Mesh.of([(name, dense[name]) for name in reversed(names) if name != "ep"], whole.devices),
        Mesh.of([(of_experts[name], experts[of_experts[name]]) for name in reversed(names) if name != "cp"],
                whole.devices))


@_arguments.checked
def column(axis: str, rank: int = 2) -> Layout:
    """Of ColumnParallelLinear: its outputs, dimension 0, are cut; also of its bias, with rank 1."""
    return Layout.of([[axis], *([] for _ in range(rank - 1))])


@_arguments.checked
def row(axis: str, rank: int = 2) -> Layout:
    """Of RowParallelLinear: its inputs, the last dimension, are cut. Its bias is whole."""
    return Layout.of([*([] for _ in range(rank - 1)), [axis]])


@_arguments.checked
def whole(rank: int) -> Layout:
    """Of what every slot holds, such as a norm's weight, with so many dimensions."""
    return Layout.of([[] for _ in range(rank)])


@_arguments.checked
def vocabulary(axis: str, mesh: Mesh, shape: Sequence[int], *, multiple: int = 64) -> Layout:
    """Of VocabParallelEmbedding: rows are padded to a multiple, then cut into equal parts; no box has padding.

    `shape` is the tensor's own, without padding. The last slots' memory goes on after their box, with the padding.
    Raises InvalidArgumentError where the axis does not divide the padded rows.
    """
    parts = _size(mesh, axis)
    padded = -(-shape[0] // multiple) * multiple
    if padded % parts:
        raise InvalidArgumentError(
            f"vocabulary of {shape[0]} rows, padded to {padded}: expected a multiple of {axis}={parts}, found none",
            f"vocabulary of {shape[0]} rows, padded to {padded}", f"a multiple of {axis}={parts}", "none")
    each = padded // parts
    if shape[0] % parts == 0 and shape[0] // parts == each:
        return column(axis, len(shape))
    rows = [(min(i * each, shape[0]), min((i + 1) * each, shape[0])) for i in range(parts)]
    return _by_rows(mesh, axis, shape, [[run] for run in rows])


@_arguments.checked
def merged(axis: str, mesh: Mesh, shape: Sequence[int], sizes: Sequence[int]) -> Layout:
    """Of MergedColumnParallelLinear, such as gate and up projection in one: each of the parts, which have `sizes` rows
    one after the other, is cut by itself. Megatron's fused gated linear_fc1 is the same. Raises InvalidArgumentError
    for a part that the axis does not divide, and sizes that are not all rows."""
    parts = _size(mesh, axis)
    _check_rows(shape, sizes)
    for size in sizes:
        _check_divides("part", size, axis, parts)
    runs: list[list[tuple[int, int]]] = [[] for _ in range(parts)]
    start = 0
    for size in sizes:
        for i in range(parts):
            runs[i].append((start + i * size // parts, start + (i + 1) * size // parts))
        start += size
    return _by_rows(mesh, axis, shape, runs)


@_arguments.checked
def qkv(axis: str, mesh: Mesh, shape: Sequence[int], *, heads: int, kv_heads: int, head_size: int) -> Layout:
    """Of vLLM's QKVParallelLinear: rows of all `heads` query heads, then of `kv_heads` key heads, then of as many value
    heads, each of `head_size` rows. Where there are fewer key heads than parts, several parts have the same one. Raises
    InvalidArgumentError for heads that cannot be spread so, and a shape of other rows."""
    parts = _size(mesh, axis)
    _check_rows(shape, [heads * head_size, kv_heads * head_size, kv_heads * head_size])
    _check_divides("query heads", heads, axis, parts)
    if kv_heads >= parts:
        _check_divides("key heads", kv_heads, axis, parts)
    elif parts % kv_heads:
        raise InvalidArgumentError(
            f"{axis}={parts}: expected a multiple of {kv_heads} key heads, found {parts}",
            f"{axis}={parts}", f"a multiple of {kv_heads} key heads", str(parts))
    kv_each = max(1, kv_heads // parts)
    runs = []
    for i in range(parts):
        query = heads // parts
        first_kv = i * kv_each if kv_heads >= parts else i // (parts // kv_heads)
        pieces = [(i * query, query), (heads + first_kv, kv_each), (heads + kv_heads + first_kv, kv_each)]
        runs.append([(first * head_size, (first + count) * head_size) for first, count in pieces])
    return _by_rows(mesh, axis, shape, runs)


def _by_rows(mesh: Mesh, axis: str, shape: Sequence[int], runs: Sequence[Sequence[tuple[int, int]]]) -> Layout:
    rest = [(0, length) for length in shape[1:]]
    tiles = []
    for slot in range(mesh.slots):
        mine = runs[mesh.coordinates(slot)[axis]]
        joined: list[tuple[int, int]] = []
        for begin, end in mine:
            if begin == end:
                continue
            if joined and joined[-1][1] == begin:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((begin, end))
        tiles.append([(run, *rest) for run in joined])
    return Layout.of_tiles(tiles)


def _count(devices: Sequence[str] | str) -> int:
    if not isinstance(devices, str):
        return len(devices)
    # The text form has runs, which only the parser knows.
    count = 0
    for run in devices.split(","):
        first, _, last = run.strip().rpartition(".")[2].partition("-")
        count += int(last) - int(first) + 1 if last else 1
    return count


def _rest(ranks: int, sizes: dict[str, int]) -> int:
    product = math.prod(sizes.values())
    if product < 1 or ranks % product:
        text = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise InvalidArgumentError(
            f"devices: expected a multiple of {product} ({text}), found {ranks}",
            "devices", f"a multiple of {product} ({text})", str(ranks))
    return ranks // product


def _size(mesh: Mesh, axis: str) -> int:
    sizes = dict(mesh.axes)
    if axis not in sizes:
        raise InvalidArgumentError(
            f"axis: expected one of {', '.join(sizes)}, found {axis}", "axis", f"one of {', '.join(sizes)}", axis)
    return sizes[axis]


def _check_divides(what: str, count: int, axis: str, parts: int) -> None:
    if count % parts:
        raise InvalidArgumentError(
            f"{what}: expected a multiple of {axis}={parts}, found {count}",
            what, f"a multiple of {axis}={parts}", str(count))


def _check_rows(shape: Sequence[int], sizes: Sequence[int]) -> None:
    if not shape or shape[0] != sum(sizes):
        raise InvalidArgumentError(
            f"shape {list(shape)}: expected {sum(sizes)} rows, found {shape[0] if shape else 'a scalar'}",
            f"shape {list(shape)}", f"{sum(sizes)} rows", str(shape[0]) if shape else "a scalar")
