"""How DTensor cuts tensors, against the same done to arrays of indices."""

import math
import random

import numpy
import pytest

from crossmesh import Layout, Mesh, _cuts
from crossmesh._cuts import Cut
from crossmesh.errors import InvalidArgumentError


def chunk(array, count, dimension):
    """As torch.chunk, with empty ones at the end."""
    each = -(-array.shape[dimension] // count)
    index = [slice(None)] * array.ndim
    parts = []
    for i in range(count):
        index[dimension] = slice(i * each, (i + 1) * each)
        parts.append(array[tuple(index)])
    return parts


def split(array, cut, count):
    """As _StridedShard._split_tensor; Shard is that of factor 1."""
    pieces = [chunk(piece, count, cut.dimension) for piece in chunk(array, cut.split_factor, cut.dimension)]
    return [numpy.concatenate([piece[i] for piece in pieces], cut.dimension) for i in range(count)]


def random_case(draw):
    sizes = [draw.randint(1, 4) for _ in range(draw.randint(1, 3))]
    mesh = Mesh.of([(f"a{i}", size) for i, size in enumerate(sizes)], f"h.0-{math.prod(sizes) - 1}")
    shape = [draw.randint(0, 13) for _ in range(draw.randint(1, 3))]
    cuts = [
        None if draw.random() < 0.25
        else Cut(draw.randrange(len(shape)), draw.choice([1, 1, 2, 3, *sizes])) for _ in sizes
    ]
    return mesh, shape, cuts


@pytest.mark.parametrize("seed", range(150))
def test_what_slots_hold_is_what_splitting_leaves(seed):
    mesh, shape, cuts = random_case(random.Random(seed))
    whole = numpy.arange(math.prod(shape)).reshape(shape)
    held = _cuts.held(cuts, mesh, shape)
    orders = [_cuts.left_to_right(cuts, len(shape))]
    tiles = _cuts.layout_of(held, orders, mesh, shape).tiles(mesh, shape)
    for slot in range(mesh.slots):
        local = whole
        for (axis, size), cut in zip(mesh.axes, cuts, strict=True):
            if cut is not None:
                local = split(local, cut, size)[mesh.coordinates(slot)[axis]]
        found = numpy.concatenate([whole[box].reshape(-1) for box in tiles[slot]] or [whole.reshape(-1)[:0]])
        assert numpy.array_equal(found, local.reshape(-1)), (seed, slot, cuts)


@pytest.mark.parametrize("seed", range(150))
def test_layouts_by_axes_come_back_as_cuts(seed):
    """Whatever has cuts has those of the same bytes; what has none is refused."""
    draw = random.Random(seed)
    mesh, shape, _ = random_case(draw)
    free = [name for name, _ in mesh.axes]
    draw.shuffle(free)
    dimensions = [[free.pop() for _ in range(min(len(free), draw.randint(0, 2)))] for _ in shape]
    layout = Layout.of(dimensions, draw.choice(["chunk", "nested_chunk", "balanced"]))
    tiles = layout.tiles(mesh, shape)
    try:
        cuts = _cuts.cuts_of(layout, mesh, shape)
    except InvalidArgumentError as error:
        assert error.expected and error.found
        sizes = dict(mesh.axes)
        # With equal parts there are always some, in any order of axes.
        assert any(length % math.prod(sizes[a] for a in axes) for length, axes in zip(shape, dimensions, strict=True))
        return
    found = _cuts.held(cuts, mesh, shape)
    assert [[] if _cuts.is_empty(runs) else list(_cuts.boxes(runs)) for runs in found] == tiles


def test_axes_in_another_order_than_the_mesh_are_strided():
    mesh = Mesh("dp=2,tp=2 on h.0-3")
    assert _cuts.cuts_of(Layout("[tp*dp, -]"), mesh, [8, 8]) == [Cut(0, 2), Cut(0)]
    assert _cuts.cuts_of(Layout("[dp*tp, -]"), mesh, [8, 8]) == [Cut(0), Cut(0)]


def test_fsdp_cuts_what_tensor_parallelism_has_cut():
    """Seven rows over dp=3, tp=2, of docs/layouts of DTensor: slot (2, 1) holds nothing that distribute_tensor says."""
    mesh = Mesh("dp=3,tp=2 on h.0-5")
    cuts = [Cut(0, 2), Cut(0)]
    assert _cuts.fsdp_order(cuts, mesh, 1) == [[1, 0]]
    stored = _cuts.nested([[1, 0]], mesh, [7])
    assert [tile[0] for tile in stored] == [[(0, 2)], [(4, 5)], [(2, 4)], [(5, 6)], [], [(6, 7)]]
    assert not _cuts.same(stored, _cuts.held(cuts, mesh, [7]))


def test_a_split_factor_that_is_not_fsdps_has_no_order():
    mesh = Mesh("dp=3,tp=2 on h.0-5")
    assert _cuts.fsdp_order([Cut(0, 3), Cut(0)], mesh, 1) is None
    assert _cuts.fsdp_order([Cut(0), Cut(0, 2)], mesh, 1) is None


def test_rows_with_gaps_behind_them_are_boxes_of_their_own():
    runs = [[(0, 2)], [(0, 1), (3, 4)]]
    assert list(_cuts.boxes(runs)) == [
        (slice(0, 1), slice(0, 1)), (slice(0, 1), slice(3, 4)), (slice(1, 2), slice(0, 1)), (slice(1, 2), slice(3, 4))]
    with pytest.raises(InvalidArgumentError):
        list(_cuts.boxes([[(0, 1 << 20)], [(0, 1), (3, 4)]]))


def test_explicit_tiles_have_no_placements():
    with pytest.raises(InvalidArgumentError) as caught:
        _cuts.cuts_of(Layout("{[0:2]; [2:4]}"), Mesh("a=2 on h.0-1"), [4])
    assert caught.value.found.startswith("explicit tiles")
