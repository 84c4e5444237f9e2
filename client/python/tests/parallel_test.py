"""Layouts of Megatron-LM and vLLM, against weights cut as their loaders cut them."""

import numpy
import pytest

from crossmesh import Mesh, parallel
from crossmesh.errors import InvalidArgumentError


def held(layout, mesh, whole):
    return [
        numpy.concatenate([whole[box].reshape(-1) for box in tile] or [whole.reshape(-1)[:0]])
        for tile in layout.tiles(mesh, whole.shape)
    ]


def test_ranks_are_megatrons():
    """parallel_state.initialize_model_parallel's own example: 16 GPUs, tensor 2, pipeline 4."""
    dense, _ = parallel.megatron_meshes("h.0-15", tensor=2, pipeline=4)
    groups = {"tp": [], "pp": [], "dp": []}
    for axis in groups:
        others = [name for name, _ in dense.axes if name != axis]
        seen = {}
        for slot in range(dense.slots):
            at = dense.coordinates(slot)
            seen.setdefault(tuple(at[name] for name in others), []).append(slot)
        groups[axis] = sorted(seen.values())
    assert groups["tp"] == [[i, i + 1] for i in range(0, 16, 2)]
    assert groups["pp"] == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert groups["dp"] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]


def test_experts_have_a_mesh_of_their_own():
    dense, experts = parallel.megatron_meshes("h.0-15", tensor=2, pipeline=2, expert=4, expert_tensor=1)
    assert dense.axes == [("pp", 2), ("dp", 4), ("cp", 1), ("tp", 2)]
    assert experts.axes == [("pp", 2), ("edp", 2), ("ep", 4), ("etp", 1)]
    assert experts.devices == dense.devices
    with pytest.raises(InvalidArgumentError):
        parallel.megatron_meshes("h.0-15", tensor=3)
    with pytest.raises(InvalidArgumentError):
        parallel.megatron_meshes("h.0-15", order="tp-dp-pp")


@pytest.mark.parametrize(
    ("rows", "parts", "multiple"), [(100, 4, 64), (128, 4, 64), (130, 2, 64), (50, 8, 64), (51, 3, 3)])
def test_a_vocabulary_is_padded_before_it_is_cut(rows, parts, multiple):
    mesh = Mesh.of({"tp": parts}, f"h.0-{parts - 1}")
    whole = numpy.arange(rows * 2).reshape(rows, 2)
    padded = -(-rows // multiple) * multiple
    each = padded // parts
    expected = [whole[i * each:(i + 1) * each].reshape(-1) for i in range(parts)]
    found = held(parallel.vocabulary("tp", mesh, [rows, 2], multiple=multiple), mesh, whole)
    assert all(numpy.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_merged_parts_are_cut_each_by_itself():
    mesh = Mesh("dp=2,tp=2 on h.0-3")
    gate, up = numpy.arange(12).reshape(4, 3), 100 + numpy.arange(18).reshape(6, 3)
    found = held(parallel.merged("tp", mesh, [10, 3], [4, 6]), mesh, numpy.concatenate([gate, up]))
    for slot in range(4):
        i = slot % 2
        expected = numpy.concatenate([gate[2 * i:2 * i + 2], up[3 * i:3 * i + 3]])
        assert numpy.array_equal(found[slot], expected.reshape(-1))
    with pytest.raises(InvalidArgumentError):
        parallel.merged("tp", mesh, [9, 3], [4, 5])
    with pytest.raises(InvalidArgumentError):
        parallel.merged("tp", mesh, [11, 3], [4, 6])


@pytest.mark.parametrize(("heads", "kv_heads", "parts"), [(8, 4, 2), (8, 8, 4), (8, 2, 4), (8, 1, 8), (6, 2, 2)])
def test_key_heads_are_repeated_where_there_are_too_few(heads, kv_heads, parts):
    size = 3
    mesh = Mesh.of({"tp": parts}, f"h.0-{parts - 1}")
    query = numpy.arange(heads * size)
    key, value = 1000 + numpy.arange(kv_heads * size), 2000 + numpy.arange(kv_heads * size)
    whole = numpy.concatenate([query, key, value]).reshape(-1, 1)
    layout = parallel.qkv(
        "tp", mesh, whole.shape, heads=heads, kv_heads=kv_heads, head_size=size)
    for i, found in enumerate(held(layout, mesh, whole)):
        # As QKVParallelLinear.weight_loader: key heads by rank // replicas, in shards of what a rank has.
        replicas = max(1, parts // kv_heads)
        each, of_kv = heads // parts * size, max(1, kv_heads // parts) * size
        kv = slice(i // replicas * of_kv, (i // replicas + 1) * of_kv)
        expected = numpy.concatenate([query[i * each:(i + 1) * each], key[kv], value[kv]])
        assert numpy.array_equal(found, expected), i


def test_heads_that_do_not_divide_are_refused():
    mesh = Mesh("tp=4 on h.0-3")
    for heads, kv_heads in ((6, 2), (8, 3), (8, 6)):
        with pytest.raises(InvalidArgumentError):
            parallel.qkv("tp", mesh, [(heads + 2 * kv_heads), 1], heads=heads, kv_heads=kv_heads, head_size=1)


def test_columns_and_rows():
    mesh = Mesh("tp=2 on h.0-1")
    whole = numpy.arange(24).reshape(4, 6)
    assert numpy.array_equal(held(parallel.column("tp"), mesh, whole)[1], whole[2:].reshape(-1))
    assert numpy.array_equal(held(parallel.row("tp"), mesh, whole)[1], whole[:, 3:].reshape(-1))
    assert str(parallel.whole(2)) == "[-, -]"
