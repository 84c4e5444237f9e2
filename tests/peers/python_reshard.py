"""crossmesh.jax.reshard beside jax.device_put: python_reshard.py [--pairs 200] [--seed 1]

Arrays on 8 devices of the host change between random shardings, of meshes whose devices are in random order. Every
device is to have the elements that device_put gives it, and what cannot be said is to be refused.
"""

import argparse
import math
import os
import random
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

import crossmesh.jax
from crossmesh.errors import InvalidArgumentError

SIZES = ((1,), (2,), (8,), (4, 2), (2, 2, 2), (1, 4), (3, 2), (6,))


def random_spec(draw: random.Random, axes: list[str], rank: int) -> PartitionSpec:
    cuts: list[list[str]] = [[] for _ in range(rank)]
    for axis in draw.sample(axes, len(axes)):
        if rank and draw.random() < 0.75:
            draw.choice(cuts).append(axis)
    return PartitionSpec(*(tuple(cut) or None for cut in cuts))


def compare(draw: random.Random, pair: int) -> None:
    sizes = draw.choice(SIZES)
    devices = draw.sample(jax.devices(), math.prod(sizes))
    mesh = jax.sharding.Mesh(numpy.array(devices).reshape(sizes), ("x", "y", "z")[:len(sizes)])
    shape = [len(devices) * draw.randint(1, 2) for _ in range(draw.randint(0, 3))]
    dtype = draw.choice(["float32", "int8", "bool", "complex64"])
    whole = numpy.random.default_rng(pair).integers(0, 127, shape).astype(dtype)
    source, wanted = (NamedSharding(mesh, random_spec(draw, list(mesh.axis_names), len(shape))) for _ in range(2))
    array = jax.device_put(whole, source)
    found = crossmesh.jax.reshard(array, wanted)
    expected = jax.device_put(array, wanted)
    what = f"pair {pair}: {source.spec} to {wanted.spec} of {shape} over {dict(mesh.shape)}"
    assert found.sharding == wanted and found.dtype == whole.dtype, f"{what}: found {found.sharding}, {found.dtype}"
    parts = {shard.device: numpy.asarray(shard.data) for shard in expected.addressable_shards}
    for shard in found.addressable_shards:
        if not numpy.array_equal(numpy.asarray(shard.data), parts[shard.device]):
            sys.exit(f"{what}: {shard.device}: expected {parts[shard.device]}, found {shard.data}")
    assert numpy.array_equal(numpy.asarray(array), whole), f"{what}: the source has changed"


def refuse() -> int:
    devices = numpy.array(jax.devices())
    mesh = jax.sharding.Mesh(devices.reshape(4, 2), ("x", "y"))
    other = jax.sharding.Mesh(devices[::-1].reshape(4, 2), ("x", "y"))
    wanted = NamedSharding(mesh, PartitionSpec("x"))
    array = jax.device_put(numpy.zeros((8, 8), "f4"), NamedSharding(mesh, PartitionSpec(None, "y")))
    cases = {
        "mesh of the sharding": lambda: crossmesh.jax.reshard(array, NamedSharding(other, PartitionSpec("x"))),
        "a jax.Array outside jit": lambda: jax.jit(lambda inside: crossmesh.jax.reshard(inside, wanted))(array),
        "found ndarray": lambda: crossmesh.jax.reshard(numpy.zeros((8, 8)), wanted),
        "a NamedSharding": lambda: crossmesh.jax.reshard(array, SingleDeviceSharding(jax.devices()[0])),
        "at most 2 entries": lambda: crossmesh.jax.reshard(array, NamedSharding(mesh, PartitionSpec("x", "y", None))),
        "elements": lambda: crossmesh.jax.reshard(
            jax.device_put(numpy.zeros((6, 8), "f4"), NamedSharding(mesh, PartitionSpec())), wanted),
    }
    for text, case in cases.items():
        try:
            case()
        except InvalidArgumentError as error:
            assert text in str(error), f"expected {text!r} in {error}"
        else:
            sys.exit(f"expected to be refused with {text!r}, was not")
    return len(cases)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    for pair in range(arguments.pairs):
        compare(draw, pair)
    print(f"reshard, seed {arguments.seed}: {arguments.pairs} pairs on 8 devices of JAX, no difference; "
          f"{refuse()} refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
