#!/usr/bin/env python3
"""How many bytes a device receives when a tensor changes its layout, by Crossmesh's plans and by other planners.

    redistribution_bytes.py CROSSMESH [--pairs 200] [--seed 1]

Other planners: XLA's partitioner, by the collectives in the program that it compiles for devices of the host; PyTorch
DTensor's greedy planner and its graph planner, by the steps that they choose. Pairs are random, of layouts that all
can say: each axis cuts at most one dimension, and axes that cut the same one do so in the mesh's order. Prints, for
each planner, the geometric mean and the greatest ratio of its bytes to ours over the pairs that move bytes, and how
often it takes fewer, which is never to be; and the same as JSON in the last line. Exits with 1 if it is. Needs JAX, PyTorch and
numpy.
"""

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys

from redistribution_programs import MESHES

ITEM_BYTES = 4


class Pair:
    """A mesh, a shape whose lengths all axes divide, and two layouts: for each axis the dimension that it cuts."""

    def __init__(self, seed):
        chooser = random.Random(seed)
        self.axes = chooser.choice(MESHES)
        unit = math.prod(self.axes.values())
        self.shape = [unit * chooser.randint(1, 2) for _ in range(chooser.randint(2, 3))]
        self.source, self.destination = (
            {axis: chooser.choice([None, *range(len(self.shape))]) for axis in self.axes} for _ in range(2))

    def text(self, layout):
        cuts = ["*".join(axis for axis, cut in layout.items() if cut == dimension) or "-"
                for dimension in range(len(self.shape))]
        return "[" + ", ".join(cuts) + "]"

    def local_elements(self, layout):
        return math.prod(self.shape) // math.prod(self.axes[axis] for axis, cut in layout.items() if cut is not None)


def of_crossmesh(crossmesh, pair):
    devices = math.prod(pair.axes.values())
    mesh = ",".join(f"{name}={size}" for name, size in pair.axes.items())
    command = [crossmesh, "redistribute", "--mesh", f"{mesh} on a.0-{devices - 1}", "--shape", str(pair.shape),
               "--source", pair.text(pair.source), "--destination", pair.text(pair.destination), "--objective", "bytes",
               "--no-relay", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["bytes"]


def shape_bytes(text):
    """Of all arrays in the type of an instruction, e.g. "(f32[4,8]{1,0}, f32[4,8]{1,0})"."""
    return sum(ITEM_BYTES * math.prod(int(n) for n in lengths.split(",") if n)
               for lengths in re.findall(r"f32\[([\d,]*)\]", text))


def group_size(line, devices):
    """Devices of a group, in either form in which XLA writes them."""
    listed = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    if listed:
        return len(listed[1].split(","))
    counted = re.search(r"replica_groups=\[\d+,(\d+)\]", line)
    return int(counted[1]) if counted else devices


def of_xla(pair):
    import jax
    import numpy
    sizes = list(pair.axes.values())
    devices = math.prod(sizes)
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()[:devices]).reshape(sizes), tuple(pair.axes))

    def sharding(layout):
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(
            *(tuple(axis for axis, cut in layout.items() if cut == dimension) or None
              for dimension in range(len(pair.shape)))))
    moved = jax.jit(lambda array: array, in_shardings=sharding(pair.source), out_shardings=sharding(pair.destination))
    program = moved.lower(jax.ShapeDtypeStruct(tuple(pair.shape), "float32")).compile().as_text()
    received = 0
    for line in program.splitlines():
        found = re.search(r"= (.*?) (all-gather|all-to-all|collective-permute|all-reduce|reduce-scatter)\(", line)
        if not found:
            continue
        result, kind = shape_bytes(found[1]), found[2]
        members = group_size(line, devices)
        if kind == "collective-permute":
            pairs = re.findall(r"\{(\d+),(\d+)\}", line[line.index("source_target_pairs"):])
            received += result if any(source != target for source, target in pairs) else 0
        elif kind == "reduce-scatter":
            received += result * (members - 1)
        else:
            received += result * (members - 1) // members * (2 if kind == "all-reduce" else 1)
    return received


def of_dtensor(pair, graph):
    """By the steps that DTensor's planner chooses, at the sizes that arrays have by then."""
    import torch
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import _redistribute
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
    mesh = torch.distributed.init_device_mesh("cpu", tuple(pair.axes.values()), mesh_dim_names=tuple(pair.axes))
    meta = TensorMeta(torch.Size(pair.shape), tuple(torch.empty(pair.shape).stride()), torch.float32)

    def spec(layout):
        return DTensorSpec(mesh, tuple(Replicate() if cut is None else Shard(cut) for cut in layout.values()),
                           tensor_meta=meta)
    planner = _redistribute.get_redistribute_planner(mesh, meta)
    source, destination = spec(pair.source), spec(pair.destination)
    steps = (planner.generate_graph_based_transform_infos(source, destination, tuple(pair.shape)) if graph
             else planner.generate_greedy_transform_infos(source, destination))
    received, local = 0, pair.local_elements(pair.source) * ITEM_BYTES
    for step in steps:
        before, after = step.src_dst_placements
        size = list(pair.axes.values())[step.mesh_dim]
        if before.is_shard() and after.is_replicate():
            received += local * (size - 1)
            local *= size
        elif before.is_shard() and after.is_shard() and before != after:
            received += local * (size - 1) // size
        elif before.is_replicate() and after.is_shard():
            local //= size
    return received


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("crossmesh")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={max(math.prod(m.values()) for m in MESHES)}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore
    planners = {"XLA's partitioner": of_xla,
                "DTensor, greedy": lambda pair: of_dtensor(pair, graph=False),
                "DTensor, graph": lambda pair: of_dtensor(pair, graph=True)}
    ratios = {name: [] for name in planners}
    fewer = {name: 0 for name in planners}
    for seed in range(flags.seed, flags.seed + flags.pairs):
        pair = Pair(seed)
        torch.distributed.init_process_group("fake", rank=0, world_size=math.prod(pair.axes.values()), store=FakeStore())
        ours = of_crossmesh(flags.crossmesh, pair)
        for name, planner in planners.items():
            theirs = planner(pair)
            if theirs < ours:
                fewer[name] += 1
                print(f"seed {seed}: {name} {theirs} bytes, ours {ours}: {pair.axes} {pair.shape} "
                      f"{pair.text(pair.source)} -> {pair.text(pair.destination)}")
            if ours > 0:
                ratios[name].append(theirs / ours)
        torch.distributed.destroy_process_group()
    figures = {}
    for name, found in ratios.items():
        mean = math.exp(sum(math.log(max(ratio, 1e-9)) for ratio in found) / len(found))
        figures[name] = {"pairs": len(found), "mean": mean, "most": max(found), "fewer": fewer[name]}
    print(f"{'BESIDE OURS':20} {'PAIRS':>6} {'MEAN':>6} {'MOST':>6} {'FEWER':>6}")
    for name, of in figures.items():
        print(f"{name:20} {of['pairs']:6} {of['mean']:6.2f} {of['most']:6.2f} {of['fewer']:6}")
    import jax
    versions = f"JAX {jax.__version__} and PyTorch {torch.__version__}"
    print(json.dumps({"versions": versions, "planners": figures}))
    return 1 if any(fewer.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
