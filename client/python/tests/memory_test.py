"""Storages of real workers, as arrays of this process."""

import gc
import os
import pathlib
import random
import resource
import select
import signal
import subprocess
import sys

import numpy
import pytest

import crossmesh
from crossmesh import errors, memory

MESH = "fsdp=2 on node-0.0,node-1.0"
MANIFEST = crossmesh.Manifest([
    crossmesh.Tensor("w", "F32", [7, 5]), crossmesh.Tensor("b", "BF16", [3]), crossmesh.Tensor("s", "F64", []),
    crossmesh.Tensor("empty", "I8", [0, 4])])
RULES = "s []\n* [fsdp, ...] chunk"


@pytest.fixture(scope="module")
def cluster():
    with crossmesh.local_cluster(workers=2) as running:
        yield running


def _values(seed=1):
    random_numbers = numpy.random.default_rng(seed)
    values = {}
    for tensor in MANIFEST:
        kind = memory.numpy_type(tensor.dtype)
        bytes_of_it = random_numbers.integers(0, 256, tensor.bytes, numpy.uint8)
        values[tensor.name] = bytes_of_it.view(kind).reshape(tensor.shape)
    return values


def _storages(cluster, name, rules=RULES, **options):
    return [
        crossmesh.worker_memory(cluster.memory_socket(i)).storage(
            name, f"node-{i}.0", MANIFEST, MESH, rules, **options) for i in range(2)]


def _bytes(array):
    return numpy.ascontiguousarray(array).tobytes()


def test_what_is_filled_arrives_where_it_is_to_be(cluster):
    values = _values()
    for storage in _storages(cluster, "weights"):
        storage.fill(values)
    operation = cluster.client.reshard(
        MANIFEST, (MESH, RULES, "weights"), (MESH, "* [...]", "whole"), create_destination=True, timeout=60)
    assert operation.report.destination_bytes == 2 * MANIFEST.bytes
    for storage in _storages(cluster, "whole", "* [...]", create=False):
        assert storage.generation == 2  # one commit
        assert not storage.state().dirty
        got = {tensor.name: numpy.zeros(tensor.shape, memory.numpy_type(tensor.dtype)) for tensor in MANIFEST}
        storage.read(got)
        assert {name: _bytes(a) for name, a in got.items()} == {name: _bytes(a) for name, a in values.items()}


def test_a_tile_is_its_box_of_the_tensor_without_a_copy(cluster):
    values = _values(2)
    storages = _storages(cluster, "boxes")
    for storage in storages:
        storage.fill(values)
    for storage in storages:
        for name in storage:
            for tile in storage.tiles(name):
                assert _bytes(tile.array) == _bytes(values[name][tile.box])
                assert tile.array.shape == tile.shape
    (tile,) = storages[0].tiles("w")
    tile.array[...] = 3
    assert (storages[0]["w"] == 3).all()
    assert numpy.shares_memory(numpy.from_dlpack(tile), tile.array) or (numpy.from_dlpack(tile) == 3).all()
    assert memoryview(tile.array).nbytes == 4 * 5 * 4
    assert numpy.shares_memory(numpy.asarray(tile), tile.array) and numpy.asarray(tile, "f8")[0, 0] == 3
    assert not numpy.shares_memory(numpy.array(tile), tile.array)
    with pytest.raises(ValueError, match="tile of F32: expected elements of f8 without a copy"):
        tile.__array__("f8", copy=False)


def test_a_tile_of_several_boxes_has_each_in_the_order_of_memory(cluster):
    manifest = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [6, 4])])
    worker = cluster.memory(0)
    storage = worker.storage("two", "node-0.0", manifest, MESH, "* {[0:2, 0:4] [4:6, 1:4]; [2:4, 0:4] [4:6, 0:1]}")
    whole = numpy.arange(24, dtype="f4").reshape(6, 4)
    storage.fill({"w": whole})
    assert [tile.array.tolist() for tile in storage.tiles("w")] == [whole[0:2].tolist(), whole[4:6, 1:4].tolist()]
    assert numpy.frombuffer(storage._map, "f4", 14).tolist() == [*range(8), 17, 18, 19, 21, 22, 23]
    with pytest.raises(errors.UnimplementedError, match="found 2"):
        storage["w"]
    got = {"w": numpy.zeros((6, 4), "f4")}
    storage.read(got)
    assert got["w"].sum() == sum(range(8)) + 17 + 18 + 19 + 21 + 22 + 23


def test_tiles_of_random_layouts_are_those_of_the_plainest_account(cluster):
    seed = int(os.environ.get("CROSSMESH_TEST_SEED", random.randrange(2**32)))
    print("seed", seed)
    generator = random.Random(seed)
    for _ in range(30):
        axes = [generator.choice([1, 2, 3]) for _ in range(2)]
        mesh = crossmesh.Mesh(f"a={axes[0]},b={axes[1]} on " + ",".join(f"h{i}.0" for i in range(axes[0] * axes[1])))
        manifest = crossmesh.Manifest([
            crossmesh.Tensor(f"t{i}", generator.choice(["F32", "I8", "BF16"]),
                             [generator.randrange(0, 9) for _ in range(2)]) for i in range(5)])
        layout = generator.choice(["[a, b]", "[a*b, -]", "[-, b]", "[b, a]"]) + generator.choice(
            [" chunk", " nested_chunk", " balanced"])
        for slot, device in enumerate(mesh.devices):
            size, tiles = crossmesh._core.storage_layout(manifest, mesh, crossmesh.Rules(f"* {layout}"), device)
            end = 0
            for tensor in manifest:
                boxes = crossmesh.Layout(layout).tiles(mesh, tensor.shape)[slot]
                elements = sum(numpy.prod([i.stop - i.start for i in box]) for box in boxes)
                if elements == 0:
                    assert tensor.name not in tiles or all(0 in [i.stop - i.start for i in b]
                                                           for b in tiles[tensor.name][2])
                    continue
                end = (end + 63) // 64 * 64
                assert tiles[tensor.name] == (end, tensor.dtype, tuple(boxes))
                end += elements * memory.numpy_type(tensor.dtype).itemsize
            assert size == (end + 63) // 64 * 64


def test_a_generation_that_is_over_says_so(cluster):
    sources = _storages(cluster, "from")
    for storage in sources:
        storage.fill(_values(3))
    targets = _storages(cluster, "to", "* [...]")
    (tile,) = targets[0].tiles("w")
    old = tile.array
    for _ in range(2):
        cluster.client.reshard(MANIFEST, (MESH, RULES, "from"), (MESH, "* [...]", "to"), timeout=60)
    with pytest.raises(errors.FailedPreconditionError, match=r"expected generation \d, found generation \d; refresh"):
        tile.array.sum()
    targets[0].refresh()
    with pytest.raises(errors.FailedPreconditionError, match="take it from the storage again"):
        tile.array.sum()
    assert _bytes(targets[0]["w"]) == _bytes(_values(3)["w"])
    assert old.shape == (7, 5)  # its memory is there as long as it is
    targets[0].memory.delete("to", "node-0.0")
    with pytest.raises(errors.FailedPreconditionError, match="deleted"):
        targets[0].check()


def test_values_that_do_not_fit_are_refused_before_anything_is_written(cluster):
    storage = _storages(cluster, "strict")[0]
    values = _values(4)
    storage.fill(values)
    for wrong, message in (
            ({"w": values["w"].astype("f8")}, 'tensor "w": expected elements of F32'),
            ({"s": numpy.zeros(2)}, 'tensor "s": expected shape'), ({"b": None}, 'tensor "b"')):
        other = {**_values(5), **wrong}
        with pytest.raises(errors.InvalidArgumentError, match=message):
            storage.fill(other)
    with pytest.raises(errors.InvalidArgumentError, match='tensor "s": expected a value, found none'):
        storage.fill({name: value for name, value in _values(5).items() if name != "s"})
    assert _bytes(storage["w"]) == _bytes(values["w"][0:4])
    with pytest.raises(errors.NotFoundError, match='tensor "x"'):
        storage["x"]


def test_what_has_no_memory_to_be_written_is_refused_before_any_of_it_is_read_into(cluster):
    storage = _storages(cluster, "read", "* [...]")[0]
    values = _values(7)
    storage.fill(values)
    read_only = numpy.zeros((7, 5), "f4")
    read_only.flags.writeable = False
    for wrong, expected, found in (
            ({"w": values["w"].tolist()}, "an array or a tensor, which is written in place", "list"),
            ({"s": 0.5}, "an array or a tensor, which is written in place", "float"),
            ({"s": numpy.float64(0)}, "an array or a tensor, which is written in place", "float64"),
            ({"w": read_only}, "memory that may be written", "ndarray that may only be read"),
            ({"w": numpy.broadcast_to(numpy.float32(0), (7, 5))}, "memory that may be written", "ndarray that may"),
            ({"w": memoryview(bytes(140)).cast("f", (7, 5))}, "memory that may be written", "memoryview that may")):
        got = {name: numpy.zeros_like(value) for name, value in values.items()}
        with pytest.raises(errors.InvalidArgumentError, match=f"expected {expected}, found {found}") as caught:
            storage.read({**got, **wrong})
        assert caught.value.object == f'tensor "{next(iter(wrong))}"' and caught.value.expected == expected
        assert not any(_bytes(array).strip(b"\0") for array in got.values())
    with pytest.raises(errors.InvalidArgumentError, match='tensor "w": expected an array, found list, of which numpy'):
        storage.fill({**values, "w": [[1.0], [1.0, 2.0]]})


def test_whatever_has_memory_is_read_into(cluster):
    storages = _storages(cluster, "reads", "* [...]")
    values = _values(8)
    storages[0].fill(values)
    memory_of_w = bytearray(140)
    (tile,) = storages[1].tiles("s")
    storages[0].read({"w": memoryview(memory_of_w).cast("f", (7, 5)), "s": tile, "b": storages[1]["b"]})
    assert memory_of_w == _bytes(values["w"])
    assert _bytes(storages[1]["s"]) == _bytes(values["s"]) and _bytes(storages[1]["b"]) == _bytes(values["b"])
    storages[0].fill({**values, "s": 0.5})  # of what is only read a copy does
    assert storages[0]["s"] == 0.5


LARGE = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [300, 1000]), crossmesh.Tensor("v", "F32", [300, 1000])])


def _large(cluster):
    return cluster.memory(0).storage("large", "node-0.0", LARGE, "a=1 on node-0.0", "* [...]")


def test_large_tensors_are_copied_whatever_lies_how(cluster):
    """As large as goes past the processor's caches, in memory that begins anywhere, in rows and in columns."""
    generator = numpy.random.default_rng(9)
    count = 300 * 1000
    for first in (0, 1, 3, 16):
        values = {"w": generator.random(count + first, "f4")[first:].reshape(300, 1000),
                  "v": numpy.asfortranarray(generator.random((300, 1000), "f4"))}
        storage = _large(cluster)
        storage.fill(values)
        around = {name: numpy.full(count + 64, -1, "f4") for name in values}
        got = {name: array[first:first + count].reshape(300, 1000) for name, array in around.items()}
        storage.read(got)
        for name, value in values.items():
            assert _bytes(storage[name]) == _bytes(value) and _bytes(got[name]) == _bytes(value)
            assert (around[name][:first] == -1).all() and (around[name][first + count:] == -1).all()
        columns = {"w": numpy.zeros((300, 1000), "f4", order="F"), "v": numpy.zeros((300, 2000), "f4")[:, ::2]}
        storage.read(columns)
        assert all(_bytes(columns[name]) == _bytes(value) for name, value in values.items())
    with pytest.raises(errors.InvalidArgumentError, match="source: expected 4 bytes, as target has, found 3"):
        crossmesh._core.copy_bytes(numpy.zeros(4, "u1"), numpy.zeros(3, "u1"))


@pytest.mark.parametrize("shift", [-64, -1, 0, 1, 64])
def test_a_value_that_lies_across_the_storage_itself_is_copied_as_it_was(cluster, shift):
    storage = _large(cluster)
    elements = numpy.frombuffer(storage._map, "f4", 400_000)
    elements[...] = numpy.arange(400_000)
    source = elements[1000 + shift:301_000 + shift].reshape(300, 1000)
    was = source.copy()
    storage._copy(elements[1000:301_000].reshape(300, 1000), source)
    assert _bytes(elements[1000:301_000]) == _bytes(was)


def test_a_refresh_asks_its_worker_only_where_there_is_another_generation(cluster, monkeypatch):
    source, *_ = sources = _storages(cluster, "asks")
    for storage in sources:
        storage.fill(_values(10))
    target = _storages(cluster, "asked", "* [...]")[0]
    asked, ask = [], memory.WorkerMemory._ask

    def watched(of, request):
        asked.append(request["op"])
        return ask(of, request)

    monkeypatch.setattr(memory.WorkerMemory, "_ask", watched)
    assert source.refresh() is source and target.refresh() is target
    assert not asked
    cluster.client.reshard(MANIFEST, (MESH, RULES, "asks"), (MESH, "* [...]", "asked"))
    source.refresh()
    assert not asked
    assert target.refresh().generation == 2
    assert asked == ["open", "sequence"]
    assert _bytes(target["w"]) == _bytes(_values(10)["w"])
    _delete_once_unused(source)
    again = source.memory.storage("asks", "node-0.0", MANIFEST, MESH, RULES)
    again["w"][...] = 5
    assert (source.refresh()["w"] == 5).all()


def _delete_once_unused(storage):
    """A worker lets go of what an operation used soon after that has committed."""
    while True:
        try:
            return storage.memory.delete(storage.name, storage.device)
        except errors.FailedPreconditionError:
            pass


def test_storages_of_another_size_or_device_are_refused(cluster):
    worker = crossmesh.worker_memory(cluster.memory_socket(0))
    worker.storage("sized", "node-0.0", MANIFEST, MESH, RULES)
    with pytest.raises(errors.Error, match="bytes"):
        worker.storage("sized", "node-0.0", MANIFEST, MESH, "* [...]", create=False)
    with pytest.raises(errors.NotFoundError, match=r"node-7\.0"):
        worker.storage("sized", "node-7.0", MANIFEST, MESH, RULES)
    with pytest.raises(errors.NotFoundError):
        worker.storage("none", "node-0.0", MANIFEST, MESH, RULES, create=False)
    with pytest.raises(errors.UnavailableError, match="is it up"):
        crossmesh.worker_memory(f"{cluster.folder}/nowhere").list()


def test_a_worker_that_has_ended_is_told():
    with crossmesh.local_cluster(workers=1) as alone:
        storage = crossmesh.worker_memory(alone.memory_socket(0)).storage(
            "s", "node-0.0", MANIFEST, "fsdp=1 on node-0.0", RULES)
        array = storage["w"]
        watched = os.pidfd_open(alone.pids[1])
        os.kill(alone.pids[1], signal.SIGKILL)
        assert select.select([watched], [], [], 20)[0]
        os.close(watched)
        with pytest.raises(errors.UnavailableError, match="create it again"):
            storage.check()
        with pytest.raises(errors.UnavailableError):
            storage.refresh()
        assert array.shape == (7, 5) and array.sum() == 0  # the mapping is this process's


def test_an_interpreter_may_end_with_views_held(cluster):
    script = f"""
import crossmesh, threading
manifest = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [8])])
storage = crossmesh.worker_memory({cluster.memory_socket(0)!r}).storage(
    "held", "node-0.0", manifest, "a=1 on node-0.0", "* [-]")
view = storage["w"]; tile = storage.tiles("w")[0]; exported = memoryview(view)
client = crossmesh.connect({cluster.address!r}); client.workers.list()
"""
    assert subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True,
                          check=True).stderr == ""


def test_a_thousand_uses_take_no_descriptor_and_no_memory(cluster):
    values = _values(6)

    def use():
        storage = _storages(cluster, "again")[0]
        storage.fill(values)
        storage.refresh().tiles("w")
        cluster.client.workers.list()

    def descriptors():
        return len(list(pathlib.Path("/proc/self/fd").iterdir()))

    def mappings():
        return pathlib.Path("/proc/self/maps").read_text().count("memfd")

    for _ in range(100):
        use()
    gc.collect()
    before, maps = descriptors(), mappings()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(1000):
        use()
    gc.collect()
    assert descriptors() <= before + 1
    assert maps == mappings()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 8 * 1024  # in KiB
