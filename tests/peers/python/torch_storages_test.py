"""Storages beside tensors of torch and pytrees of JAX: memory that is lent, filled and read in place."""

import contextlib
import gc
import importlib.util
import math

import numpy
import pytest

import crossmesh
from crossmesh import errors

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch, which tests/peers/run FOLDER package installs")

DTYPES = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16",
          "int8", "uint8", "bool"]


@pytest.fixture(scope="module")
def cluster():
    with crossmesh.local_cluster(workers=4) as running:
        yield running


@pytest.fixture(scope="module")
def worker(cluster):
    with crossmesh.Worker("torch", "t.0-1", cluster.address) as made:
        cluster.await_workers(5)
        yield made


def _bytes(tensor):
    import torch

    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_of_torch_that_is_lent_is_moved_from_and_to(cluster, worker, name):
    import torch

    dtype = getattr(torch, name)
    drawn = torch.randint(0, 2 if name == "bool" else 100, (6, 32), generator=torch.Generator().manual_seed(1))
    source, target = drawn.to(dtype), torch.zeros(6, 32, dtype=dtype)
    manifest = crossmesh.torch.manifest({"w": source})
    lent = [worker.lend(storage, "t.0", tensor, manifest, "x=1 on t.0", "* [-, -]")
            for storage, tensor in (("from", source), ("to", target))]
    assert lent[0].tiles("w")[0].torch().data_ptr() == source.data_ptr()
    assert lent[0].tiles("w")[0].torch().dtype == dtype
    sides = [("x=1 on t.0", "* [-, -]", storage) for storage in ("from", "to")]
    cluster.client.reshard(manifest, *sides, binding="in_place", timeout=60)
    assert _bytes(target) == _bytes(source) and _bytes(source) == _bytes(drawn.to(dtype))
    for storage in lent:
        storage.release()


def test_a_parameter_that_is_lent_is_held_and_goes_on_training(worker):
    import torch

    linear = torch.nn.Linear(16, 16, bias=False)
    storage = worker.lend("parameter", "t.1", linear.weight)
    at = linear.weight.data_ptr()
    values = linear.weight.detach().clone()
    torch.optim.SGD(linear.parameters(), 0.1).zero_grad()
    with pytest.raises(RuntimeError, match="resize"):
        linear.weight.untyped_storage().resize_(0)  # as FSDP frees what it has gathered
    linear(torch.ones(2, 16)).sum().backward()
    with torch.no_grad():
        linear.weight -= linear.weight.grad
    del linear
    gc.collect()
    others = [torch.full((16, 16), 7.0) for _ in range(64)]  # would take the memory if it were free
    assert all(other.data_ptr() != at for other in others)
    held = numpy.frombuffer(storage._map, "f4").reshape(16, 16)
    assert numpy.array_equal(held, (values - 2).numpy())
    storage.release()


def test_a_tensor_that_cannot_be_lent_is_refused_with_the_reason(worker):
    import torch

    for tensor, found in ((torch.zeros(8, 8).t()[1:], "strides"), (torch.zeros(8, device="meta"), "meta"),
                          (torch.zeros(4, 4)[:, 1], "strides")):
        with pytest.raises(errors.InvalidArgumentError, match=found):
            worker.lend("no", "t.0", tensor)
    with pytest.raises(errors.InvalidArgumentError, match="expected memory of 64 bytes, found 16"):
        worker.lend("no", "t.0", torch.zeros(4), crossmesh.torch.manifest({"w": torch.zeros(16)}), "x=1 on t.0",
                    "* [-]")


SIZES = (2, 2)
SHAPES = {"even": (8, 12), "uneven": (7, 5), "wide": (3, 9), "vector": (11,), "short": (1, 6), "strided": (7, 3)}


@contextlib.contextmanager
def _rank(rank):
    """As a rank of four, in a process group that sends nothing: a mesh, and tensors on it by name. Those of a module
    are parameters of FSDP2 over tensor parallelism; "strided" is in several boxes."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=4, store=FakeStore())
    try:
        mesh = DeviceMesh("cpu", torch.arange(4).reshape(SIZES), mesh_dim_names=("fsdp", "tp"))
        module = torch.nn.Module()
        for number, name in enumerate(SHAPES):
            shape = SHAPES[name]
            if name == "strided":
                continue
            cut = distribute_tensor(_whole(name), mesh["tp"], [Shard(number % len(shape))], src_data_rank=None)
            module.register_parameter(name, torch.nn.Parameter(cut))
        fully_shard(module, mesh=mesh["fsdp"])
        placements = [_StridedShard(0, split_factor=3), Replicate()]
        strided = distribute_tensor(_whole("strided"), mesh, placements, src_data_rank=None)
        yield mesh, {**dict(module.named_parameters()), "strided": strided}
    finally:
        dist.destroy_process_group()


def _whole(name):
    import torch

    return (torch.arange(float(math.prod(SHAPES[name]))) + 100 * list(SHAPES).index(name)).reshape(SHAPES[name])


def test_dtensors_are_filled_from_and_read_into_in_place(cluster):
    """Some tiles are several boxes, some are empty: what each rank has is what is stored, and comes back to it."""
    import torch

    devices = [f"node-{rank}.0" for rank in range(4)]
    several = 0
    for rank in range(4):
        with _rank(rank) as (device_mesh, tensors):
            mesh = crossmesh.torch.mesh(device_mesh, devices)
            layouts = {
                name: crossmesh.torch.layout_of(
                    value, origin="distribute_tensor" if name == "strided" else "fsdp2")
                for name, value in tensors.items()}
            side = (crossmesh.torch.manifest(tensors), mesh, layouts)
            storage = cluster.memory(rank).storage("trained", devices[rank], *side)
            storage.fill(tensors)
            several += sum(len(storage.tiles(name)) > 1 for name in storage)
            cluster.memory(rank).storage("back", devices[rank], *side)
    assert several > 0
    manifest, one = side[0], ("y=1 on node-0.0", "* [...]")
    cluster.client.reshard(
        manifest, (mesh, layouts, "trained"), (*one, "whole"), create_destination=True, timeout=60)
    whole = cluster.memory(0).storage("whole", "node-0.0", manifest, *one, create=False)
    for name in SHAPES:
        assert numpy.array_equal(whole[name], _whole(name).numpy()), name
        whole[name][...] *= -1
    cluster.client.reshard(manifest, (*one, "whole"), (mesh, layouts, "back"), binding="in_place", timeout=60)
    for rank in range(4):
        with _rank(rank) as (_, tensors):
            before = {name: value.to_local().detach().clone() for name, value in tensors.items()}
            cluster.memory(rank).storage("back", devices[rank], *side, create=False).read(tensors)
            for name, value in tensors.items():
                assert torch.equal(value.to_local(), -before[name]), (rank, name)


def test_what_a_dtensor_has_in_several_boxes_must_be_one_piece_of_memory(cluster):
    import torch

    class Local:
        """As a DTensor is asked."""

        def __init__(self, local):
            self.local = local

        def to_local(self):
            return self.local

    manifest = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [6, 4])])
    rows = [[(0, 1), (2, 3)], [(1, 2), (3, 6)]]
    layout = crossmesh.Layout.of_tiles([[(slice(*pair), slice(0, 4)) for pair in slot] for slot in rows])
    storage = cluster.memory(0).storage("boxes", "node-0.0", manifest, "x=2 on node-0.0,node-1.0", {"w": layout})
    storage.fill({"w": Local(torch.arange(8.0).reshape(2, 4))})
    assert [tile.array.tolist() for tile in storage.tiles("w")] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    with pytest.raises(errors.InvalidArgumentError, match='"w": expected memory of the host, found that of meta'):
        storage.fill({"w": torch.zeros(6, 4, device="meta")})
    with pytest.raises(errors.InvalidArgumentError, match=r'"w": expected elements of F32 \(float32\), found torch.bf'):
        storage.fill({"w": torch.zeros(6, 4, dtype=torch.bfloat16)})
    for local, found in ((torch.zeros(4, 2).t(), "8 in pieces"), (torch.zeros(3, 4), "12 in one piece")):
        with pytest.raises(errors.InvalidArgumentError, match=f"expected 8 elements in one piece, found {found}"):
            storage.fill({"w": Local(local)})


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax, which tests/peers/run installs")
def test_a_pytree_is_filled_from_and_restored(cluster):
    import jax

    tree = {"layers": [{"kernel": jax.numpy.arange(12.0).reshape(3, 4)}, {"kernel": jax.numpy.ones((2, 2), "int32")}]}
    manifest = crossmesh.jax.manifest(tree)
    mesh, layouts = "x=1 on node-0.0", "* [...]"
    storage = cluster.memory(0).storage("tree", "node-0.0", manifest, mesh, layouts)
    storage.fill(crossmesh.jax.named(tree))
    storage["layers.0.kernel"][...] += 1
    (tile,) = storage.tiles("layers.0.kernel")
    assert jax.numpy.from_dlpack(tile).unsafe_buffer_pointer() == tile.array.ctypes.data
    values = crossmesh.jax.named(jax.tree.map(numpy.zeros_like, tree))
    storage.read(values)  # arrays of numpy, in place
    with pytest.raises(errors.InvalidArgumentError, match=r'"layers.0.kernel": expected memory that may be written'):
        storage.read(crossmesh.jax.named(tree))
    found = crossmesh.jax.restored(tree, values)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    assert found["layers"][0]["kernel"].sharding == tree["layers"][0]["kernel"].sharding
    assert numpy.array_equal(found["layers"][0]["kernel"], numpy.arange(1, 13.0).reshape(3, 4))
    assert numpy.array_equal(found["layers"][1]["kernel"], numpy.ones((2, 2)))
    with pytest.raises(errors.InvalidArgumentError, match=r'leaf "layers.0.kernel": .* found none'):
        crossmesh.jax.restored(tree, {})
