"""How DTensor cuts a tensor, axis by axis of a mesh, and which layouts say the same."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crossmesh._core import Layout, Mesh
from crossmesh.errors import InvalidArgumentError

# Ascending, apart: the indices of one dimension that a slot holds, in the order of its memory.
Run = tuple[int, int]
Runs = list[Run]
Box = tuple[slice, ...]

BOXES_MAX = 65536


@dataclass(frozen=True)
class Cut:
    """What one axis of a mesh does to a tensor: Shard, or _StridedShard where split_factor is above 1."""

    dimension: int
    split_factor: int = 1


def _chunks(runs: Runs, count: int) -> list[Runs]:
    """As torch.chunk cuts the indices in the order given, with empty ones where there are too few."""
    length = sum(end - begin for begin, end in runs)
    each = -(-length // count)
    return [_part(runs, i * each, min((i + 1) * each, length)) for i in range(count)]


def _part(runs: Runs, first: int, last: int) -> Runs:
    """What lies at places first to last of the indices."""
    part, place = [], 0
    for begin, end in runs:
        low, high = max(first, place), min(last, place + end - begin)
        if low < high:
            part.append((begin + low - place, begin + high - place))
        place += end - begin
    return part


def _joined(pieces: Sequence[Runs]) -> Runs:
    runs: Runs = []
    for begin, end in itertools.chain(*pieces):
        if runs and runs[-1][1] == begin:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((begin, end))
    return runs


def _cut(runs: Runs, cut: Cut, count: int) -> list[Runs]:
    """The parts of all coordinates of an axis: as Shard._split_tensor and _StridedShard._split_tensor have them."""
    firsts = _chunks(runs, cut.split_factor)
    seconds = [_chunks(first, count) for first in firsts]
    return [_joined([second[i] for second in seconds]) for i in range(count)]


def held(cuts: Sequence[Cut | None], mesh: Mesh, shape: Sequence[int]) -> list[list[Runs]]:
    """By slot and dimension, what torch.distributed.tensor.distribute_tensor leaves there."""
    sizes = [size for _, size in mesh.axes]
    slots: list[list[Runs]] = [[[(0, length)] if length else [] for length in shape]]
    for cut, size in zip(cuts, sizes, strict=True):
        wider = []
        for runs in slots:
            if cut is None:
                wider += [runs] * size
                continue
            for part in _cut(runs[cut.dimension], cut, size):
                wider.append([*runs[:cut.dimension], part, *runs[cut.dimension + 1:]])
        slots = wider
    return slots


def nested(order: Sequence[Sequence[int]], mesh: Mesh, shape: Sequence[int]) -> list[list[Runs]]:
    """By slot and dimension, what is left where each dimension is cut by these axes, major first."""
    sizes = [size for _, size in mesh.axes]
    slots = []
    for at in itertools.product(*(range(size) for size in sizes)):
        runs_of_slot = []
        for axes, length in zip(order, shape, strict=True):
            runs: Runs = [(0, length)] if length else []
            for axis in axes:
                runs = _chunks(runs, sizes[axis])[at[axis]]
            runs_of_slot.append(runs)
        slots.append(runs_of_slot)
    return slots


def is_empty(runs: Sequence[Runs]) -> bool:
    return any(not of_dimension for of_dimension in runs)


def same(one: list[list[Runs]], other: list[list[Runs]]) -> bool:
    """Empty tiles are alike wherever they lie."""
    return all(a == b or (is_empty(a) and is_empty(b)) for a, b in zip(one, other, strict=True))


def boxes(runs: Sequence[Runs]) -> Iterator[Box]:
    """The boxes of a dense row-major array with these indices, in the order of its memory."""
    several = [d for d, of_dimension in enumerate(runs) if len(of_dimension) > 1]
    last = max(several, default=0)
    # Before a dimension with gaps rows do not follow one another in boxes: each is its own.
    choices = [
        [(i, i + 1) for begin, end in of_dimension for i in range(begin, end)] if d < last else of_dimension
        for d, of_dimension in enumerate(runs)
    ]
    count = math.prod(len(choice) for choice in choices)
    if count > BOXES_MAX:
        raise InvalidArgumentError(
            f"layout: expected at most {BOXES_MAX} boxes in a slot, found {count}: dimension {last} is held in "
            f"{len(runs[last])} pieces", "layout", f"at most {BOXES_MAX} boxes in a slot", str(count))
    for intervals in itertools.product(*choices):
        yield tuple(slice(begin, end) for begin, end in intervals)


def fsdp_order(cuts: Sequence[Cut | None], mesh: Mesh, rank: int) -> list[list[int]] | None:
    """By dimension, the axes in the order in which FSDP2 over tensor parallelism cuts: first the axes inside, then its
    own, which carries their product as split factor. None where the factors say something else."""
    sizes = [size for _, size in mesh.axes]
    order: list[list[int]] = [[] for _ in range(rank)]
    for dimension in range(rank):
        cutting = [axis for axis, cut in enumerate(cuts) if cut is not None and cut.dimension == dimension]
        for axis in cutting:
            cut = cuts[axis]
            assert cut is not None
            inside = [other for other in cutting if other > axis]
            if cut.split_factor not in (1, math.prod(sizes[other] for other in inside)):
                return None
        strided = [axis for axis in cutting if (cuts[axis] or Cut(0)).split_factor > 1]
        if any(axis < first for first in strided[:1] for axis in cutting if axis not in strided):
            return None
        plain = [axis for axis in cutting if axis not in strided]
        order[dimension] = [*plain, *reversed(strided)]
    return order


def layout_of(slots: list[list[Runs]], orders: Sequence[list[list[int]]], mesh: Mesh, shape: Sequence[int]) -> Layout:
    """The layout of what slots hold: by axes where one of the orders has the same bytes, else explicit tiles."""
    names = [name for name, _ in mesh.axes]
    sizes = dict(mesh.axes)
    for order in orders:
        if not same(nested(order, mesh, shape), slots):
            continue
        dimensions = [[names[axis] for axis in axes] for axes in order]
        divides = all(
            length % math.prod(sizes[name] for name in axes) == 0
            for length, axes in zip(shape, dimensions, strict=True))
        return Layout.of(dimensions, "exact" if divides else "nested_chunk")
    return Layout.of_tiles([[] if is_empty(runs) else list(boxes(runs)) for runs in slots])


def left_to_right(cuts: Sequence[Cut | None], rank: int) -> list[list[int]]:
    return [
        [axis for axis, cut in enumerate(cuts) if cut is not None and cut.dimension == dimension]
        for dimension in range(rank)
    ]


def cuts_of(layout: Layout, mesh: Mesh, shape: Sequence[int]) -> list[Cut | None]:
    """The placements that put the same bytes into the same slots; refused where there are none."""
    dimensions = layout.dimensions
    if dimensions is None:
        raise InvalidArgumentError(
            "layout: expected axes for each dimension, found explicit tiles, which DTensor has no placements for",
            "layout", "axes for each dimension", "explicit tiles")
    layout.validate(mesh, shape)
    names = [name for name, _ in mesh.axes]
    sizes = dict(mesh.axes)
    cuts: list[Cut | None] = [None] * len(names)
    for dimension, axes in enumerate(dimensions):
        for place, name in enumerate(axes):
            # Axes to the right in the mesh that cut before this one does.
            factor = math.prod(sizes[major] for major in axes[:place] if names.index(major) > names.index(name))
            cuts[names.index(name)] = Cut(dimension, factor)
    wanted = layout.tiles(mesh, shape)
    for slot, runs in enumerate(held(cuts, mesh, shape)):
        found = [] if is_empty(runs) else list(boxes(runs))
        if found != wanted[slot]:
            raise InvalidArgumentError(
                f"layout {layout}: expected one that DTensor has placements for; it would give slot {slot} "
                f"{_text(found)}, found {_text(wanted[slot])}",
                f"layout {layout}", f"{_text(found)} in slot {slot}", _text(wanted[slot]))
    return cuts


def _text(tile: Sequence[Box]) -> str:
    return " ".join(
        "[" + ", ".join(f"{part.start}:{part.stop}" for part in box) + "]" for box in tile) or "nothing"
