"""What docs/python.md shows of the layouts of frameworks runs as it stands."""

import importlib.util
import pathlib

import pytest

import crossmesh

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md"

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("jax", "torch")),
    reason="needs torch and jax, which tests/peers/run FOLDER package installs")


@pytest.fixture
def names():
    """What the block takes as given, as rank 0 of four that send nothing, and on the one device that JAX has here."""
    import jax
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    device_mesh = DeviceMesh("cpu", torch.arange(4).reshape(2, 2), mesh_dim_names=("dp", "tp"))
    dtensor = distribute_tensor(torch.arange(24.0).reshape(4, 6), device_mesh, [Replicate(), Shard(0)],
                                src_data_rank=None)
    mesh = jax.sharding.Mesh([jax.devices()[0]], ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", None))
    yield {"crossmesh": crossmesh, "device_mesh": device_mesh, "dtensor": dtensor, "model": torch.nn.Linear(6, 4),
           "array": jax.device_put(jax.numpy.ones((4, 6)), sharding)}
    dist.destroy_process_group()


def test_the_block_about_layouts_runs(names):
    section = PAGE.read_text(encoding="utf-8").split("## Layouts of frameworks", 1)[1]
    block = section.split("```python\n", 1)[1].split("```", 1)[0]
    first, second = block.split("\n\n")
    exec(first, names)  # the page of this repository
    assert str(names["layout"]) == "[tp, -]" and len(names["manifest"]) == 2
    assert list(names["placements"]) == list(names["dtensor"].placements)
    exec(second, names)
    assert str(names["layout"]) == "[x, -]" and names["sharding"] == names["array"].sharding
