"""Layouts of the Python package beside what frameworks really place: python_layouts.py torch|jax [--cases N] [--seed N]

Of torch, distribute_tensor and FSDP2 over tensor parallelism are run for every rank, over process groups that send
nothing; of JAX, shardings over 8 host devices are asked, and some arrays placed. Every element of every slot is
compared, empty parts included. What Crossmesh refuses counts as a difference where the framework does not.
"""

import argparse
import math
import os
import random
import sys
from collections import Counter

import numpy

import crossmesh
from crossmesh.errors import InvalidArgumentError

SLOTS_MAX = 12
OF_A_MESH = 50  # cases


def random_sizes(draw: random.Random, most: int) -> list[int]:
    while True:
        sizes = [draw.choice([1, 2, 2, 3, 4, 5]) for _ in range(draw.randint(1, 3))]
        if math.prod(sizes) <= most:
            return sizes


def bytes_of(tile, whole: numpy.ndarray) -> numpy.ndarray:
    """What the memory of a slot has: its boxes, one after the other."""
    return numpy.concatenate([whole[box].reshape(-1) for box in tile] or [numpy.empty(0, whole.dtype)])


class Outcome:
    def __init__(self):
        self.counts = Counter()
        self.differences = []

    def differ(self, text: str) -> None:
        self.differences.append(text)

    def end(self, name: str, seed: int) -> int:
        for text in self.differences[:10]:
            print(f"DIFFERENT {text}")
        parts = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        print(f"{name}, seed {seed}: {parts}; {len(self.differences)} differences")
        return 1 if self.differences else 0


def random_placement(draw: random.Random, rank: int, sizes: list[int]):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    kind = draw.random()
    if rank == 0 or kind < 0.25:
        return Replicate()
    dimension = draw.randrange(rank)
    if kind < 0.8:
        return Shard(dimension - rank if draw.random() < 0.1 else dimension)
    return _StridedShard(dimension, split_factor=draw.choice([2, 3, 4, *sizes]))


def torch_case(draw: random.Random, sizes: list[int]):
    rank = draw.choice([0, 1, 1, 2, 2, 3])
    shape = [draw.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16]) for _ in range(rank)]
    return shape, [random_placement(draw, rank, sizes) for _ in sizes]


def on_every_rank(sizes: list[int], body) -> None:
    """body(rank, device_mesh) for each rank of a world that sends nothing."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    count = math.prod(sizes)
    names = tuple(f"a{i}" for i in range(len(sizes)))
    for rank in range(count):
        dist.init_process_group("fake", rank=rank, world_size=count, store=FakeStore())
        try:
            body(rank, DeviceMesh("cpu", torch.arange(count).reshape(sizes), mesh_dim_names=names))
        finally:
            dist.destroy_process_group()


def compare_placements(outcome: Outcome, case, rank: int, device_mesh, known: dict) -> None:
    import torch
    from torch.distributed.tensor import distribute_tensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, placements = case
    whole = torch.arange(math.prod(shape)).reshape(shape)
    local = distribute_tensor(whole, device_mesh, placements, src_data_rank=None).to_local()
    key = id(case)
    if key not in known:
        ours = crossmesh.torch.mesh(device_mesh)
        layout = crossmesh.torch.layout(placements, ours, shape, origin="distribute_tensor")
        known[key] = layout, layout.tiles(ours, shape)
        outcome.counts["placements"] += 1
        outcome.counts["layouts with explicit tiles"] += layout.dimensions is None
        if layout.dimensions is not None:
            back = crossmesh.torch.placements(layout, ours, shape)
            again = crossmesh.torch.layout(back, ours, shape, origin="distribute_tensor")
            if again.tiles(ours, shape) != known[key][1]:
                outcome.differ(f"{placements} {shape} {device_mesh}: back as {back}")
    layout, tiles = known[key]
    outcome.counts["tiles"] += 1
    found = bytes_of(tiles[rank], whole.numpy())
    if not numpy.array_equal(found, local.numpy().reshape(-1)):
        outcome.differ(f"{placements} {shape} {device_mesh} rank {rank}: {layout}: {found} {local.tolist()}")
    said, offset = compute_local_shape_and_global_offset(torch.Size(shape), device_mesh, placements)
    if math.prod(said) != local.numel():
        outcome.counts["tiles of which DTensor says another shape than it stores"] += 1
    elif local.numel() and len(tiles[rank]) == 1 and tuple(part.start for part in tiles[rank][0]) != tuple(offset):
        outcome.counts["tiles of which DTensor says another offset than it stores"] += 1


def compare_fsdp(outcome: Outcome, case, rank: int, device_mesh) -> None:
    """A weight that is cut over the last axis, then by FSDP2 over the one before."""
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    shape, dimension = case
    whole = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    module = torch.nn.Module()
    inner = distribute_tensor(whole, device_mesh["a1"], [Shard(dimension)], src_data_rank=None)
    module.weight = torch.nn.Parameter(inner)
    fully_shard(module, mesh=device_mesh["a0"])
    weight = module.weight
    ours = crossmesh.torch.mesh(device_mesh)
    layout = crossmesh.torch.layout(weight.placements, ours, shape, origin="fsdp2")
    outcome.counts["parameters of FSDP2 by rank"] += 1
    local = weight.to_local().detach().numpy().reshape(-1)
    if not numpy.array_equal(bytes_of(layout.tiles(ours, shape)[rank], whole.numpy()), local):
        outcome.differ(f"FSDP2 {weight.placements} {shape} rank {rank} of {device_mesh}: {layout}, stored {local}")
    crossmesh.torch.layout_of(weight, origin="fsdp2")
    try:
        crossmesh.torch.layout(weight.placements, ours, shape)
    except InvalidArgumentError as error:
        assert "origin" in str(error), error
        outcome.counts["refused without an origin"] += 1


def check_torch(draw: random.Random, cases: int) -> Outcome:
    outcome = Outcome()
    while outcome.counts["placements"] < cases:
        sizes = random_sizes(draw, SLOTS_MAX)
        drawn = [torch_case(draw, sizes) for _ in range(OF_A_MESH)]
        known: dict = {}

        def body(rank, device_mesh, drawn=drawn, known=known):
            for case in drawn:
                compare_placements(outcome, case, rank, device_mesh, known)

        on_every_rank(sizes, body)
    for _ in range(max(1, cases // 40)):
        sizes = [draw.choice([1, 2, 3, 4]), draw.choice([1, 2, 3])]
        drawn = [([draw.randint(1, 17), draw.randint(1, 6) * sizes[1]], draw.choice([0, 0, 1])) for _ in range(10)]
        on_every_rank(sizes, lambda rank, device_mesh, drawn=drawn: [
            compare_fsdp(outcome, case, rank, device_mesh) for case in drawn])
    return outcome


def random_spec(draw: random.Random, names: list[str], rank: int):
    from jax.sharding import PartitionSpec

    free = draw.sample(names, len(names))
    entries = []
    for _ in range(draw.randint(0, rank)):
        axes = tuple(free.pop() for _ in range(min(len(free), draw.choice([0, 1, 1, 2]))))
        entries.append(None if not axes else axes[0] if len(axes) == 1 and draw.random() < 0.5 else axes)
    return PartitionSpec(*entries)


def compare_sharding(outcome: Outcome, draw: random.Random) -> None:
    import jax
    from jax.sharding import Mesh, NamedSharding

    sizes = random_sizes(draw, 8)
    devices = numpy.empty(math.prod(sizes), dtype=object)
    devices[:] = draw.sample(jax.devices(), len(devices))
    names = [f"a{i}" for i in range(len(sizes))]
    jax_mesh = Mesh(devices.reshape(sizes), names)
    rank = draw.choice([0, 1, 2, 2, 3])
    sharding = NamedSharding(jax_mesh, random_spec(draw, names, rank))
    shape = tuple(draw.choice([0, 1, 2, 3, 4, 6, 8, 12, 24]) for _ in range(rank))
    try:
        placed = sharding.devices_indices_map(shape)
    except ValueError:
        placed = None
    outcome.counts["shardings"] += 1
    try:
        layout = crossmesh.jax.layout(sharding, shape)
    except InvalidArgumentError as error:
        outcome.counts["refused by both"] += 1
        if placed is not None:
            outcome.differ(f"{sharding} {shape}: JAX places it, we refuse: {error}")
        return
    if placed is None:
        outcome.differ(f"{sharding} {shape}: JAX refuses it, we say {layout}")
        return
    ours = crossmesh.jax.mesh(jax_mesh)
    whole = numpy.arange(math.prod(shape), dtype=numpy.int32).reshape(shape)
    tiles = layout.tiles(ours, shape)
    for device, index in placed.items():
        tile = tiles[ours.devices.index(f"process0.{device.id}")]
        outcome.counts["tiles"] += 1
        if not numpy.array_equal(bytes_of(tile, whole), whole[index].reshape(-1)):
            outcome.differ(f"{sharding} {shape} device {device}: {tile}, placed {index}")
    back = crossmesh.jax.sharding(layout, ours, shape, over=jax_mesh)
    if back.devices_indices_map(shape) != placed:
        outcome.differ(f"{sharding} {shape}: back as {back}")
    if outcome.counts["shardings"] % 10 == 0:
        outcome.counts["arrays placed"] += 1
        for shard in jax.device_put(whole, sharding).addressable_shards:
            tile = tiles[ours.devices.index(f"process0.{shard.device.id}")]
            if not numpy.array_equal(bytes_of(tile, whole), numpy.asarray(shard.data).reshape(-1)):
                outcome.differ(f"{sharding} {shape} device {shard.device}: {tile}, holds {shard.data}")


def check_jax(draw: random.Random, cases: int) -> Outcome:
    outcome = Outcome()
    for _ in range(cases):
        compare_sharding(outcome, draw)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=("torch", "jax"))
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    check = check_torch if arguments.framework == "torch" else check_jax
    return check(random.Random(arguments.seed), arguments.cases).end(arguments.framework, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
