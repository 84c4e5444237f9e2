#!/usr/bin/env python3
"""Programs that `crossmesh redistribute --emit` writes, run by their frameworks.

    redistribution_programs.py torch CROSSMESH [--pairs 50] [--seed 1]   PyTorch over Gloo, a process for each rank
    redistribution_programs.py jax CROSSMESH [--pairs 50] [--seed 1]     JAX on devices of the host
    redistribution_programs.py standin CROSSMESH ...                     those of PyTorch, over tests/standin/torch

Random pairs of layouts: each device is to have what the plainest reference gives it, which sums all summands, and cuts
the whole. Exits with 1 at the first one that has something else. Needs numpy, and PyTorch or JAX.
"""

import argparse
import importlib.util
import itertools
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy

MESHES = ({"x": 4}, {"x": 2, "y": 2}, {"x": 2, "y": 3}, {"x": 4, "y": 2}, {"x": 2, "y": 2, "z": 2}, {"x": 6})
REDUCTIONS = ("sum", "mean", "min", "max")


class Case:
    """A mesh, a shape whose lengths all axes divide, two layouts, and axes over which they are partial."""

    def __init__(self, seed):
        chooser = random.Random(seed)
        self.axes = chooser.choice(MESHES)
        rank = chooser.randint(1, 3)
        unit = math.prod(self.axes.values())
        self.shape = [unit * chooser.randint(1, 2) for _ in range(rank)]
        self.partial = [axis for axis in self.axes if chooser.random() < 0.15]
        self.reduction = chooser.choice(REDUCTIONS)
        self.source = self._layout(chooser, [axis for axis in self.axes if axis not in self.partial])
        self.destination = self._layout(chooser, list(self.axes))
        self.objective = chooser.choice(("time", "bytes"))
        self.kept = [axis for axis in self.partial if chooser.random() < 0.4]  # partial at the destination as well
        self.destination = [[axis for axis in axes if axis not in self.kept] for axes in self.destination]

    def _layout(self, chooser, axes):
        layout = [[] for _ in self.shape]
        chooser.shuffle(axes)
        for axis in axes:
            if chooser.random() < 0.75:
                chooser.choice(layout).append(axis)
        return layout

    def arguments(self):
        devices = math.prod(self.axes.values())
        text = lambda layout: "[" + ", ".join("*".join(axes) or "-" for axes in layout) + "]"
        mesh = ",".join(f"{name}={size}" for name, size in self.axes.items())
        arguments = ["--mesh", f"{mesh} on a.0-{devices - 1}", "--shape", str(self.shape), "--source", text(self.source),
                     "--destination", text(self.destination), "--objective", self.objective]
        if self.partial:
            arguments += ["--source-partial", ",".join(self.partial), "--reduction", self.reduction]
        if self.kept:
            arguments += ["--destination-partial", ",".join(self.kept)]
        return arguments

    @property
    def ranks(self):
        return math.prod(self.axes.values())

    def coordinates(self, rank):
        found = {}
        for axis in reversed(self.axes):
            rank, found[axis] = divmod(rank, self.axes[axis])
        return found

    def part(self, whole, layout, rank):
        """What a device holds of an array."""
        at = self.coordinates(rank)
        for dimension, axes in enumerate(layout):
            for axis in axes:
                whole = numpy.split(whole, self.axes[axis], axis=dimension)[at[axis]]
        return whole

    def summand(self, rank):
        """The whole array, of which a device holds a part: of small integers, so that sums are exact."""
        at = self.coordinates(rank)
        number = 0
        for axis in self.partial:
            number = number * self.axes[axis] + at[axis]
        return numpy.random.default_rng(number).integers(-8, 8, self.shape).astype(numpy.float32)

    def local(self, rank):
        return self.part(self.summand(rank), self.source, rank)

    def expected(self, rank):
        def of(axes, other):
            return [self.coordinates(other)[axis] for axis in axes]

        summands = {tuple(of(self.partial, other)): self.summand(other) for other in range(self.ranks)
                    if of(self.kept, other) == of(self.kept, rank)}
        reduce = {"sum": numpy.sum, "mean": numpy.mean, "min": numpy.min, "max": numpy.max}[self.reduction]
        return self.part(reduce(numpy.stack(list(summands.values())), axis=0), self.destination, rank)


def emit(crossmesh, framework, case, folder):
    arguments = case.arguments() + (["--no-relay"] if framework == "jax" else [])
    text = subprocess.run([crossmesh, "redistribute", *arguments, "--emit", "jax" if framework == "jax" else "torch"],
                          check=True, capture_output=True, text=True).stdout
    path = pathlib.Path(folder) / "program.py"
    path.write_text(text)
    return path


def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def expect(case, rank, found):
    if found.shape != case.expected(rank).shape or not numpy.allclose(found, case.expected(rank), rtol=1e-6):
        raise AssertionError(f"rank {rank}: found {found}, expected {case.expected(rank)}")


def expect_near_senders(program):
    """Of ranks with the same elements the nearest one sends: it has the receiver's coordinates where none cut."""
    for step in program.PROGRAM["steps"]:
        cut = {atom for dimension in step["before"]["dimensions"] for atom, _ in dimension["cuts"]}
        others = [atom for atom in range(len(program.PROGRAM["atoms"])) if atom not in cut]
        for sender, receiver, _ in program._messages(step) if step["kind"] == "relay" else ():
            found, expected = ([program._coordinate(rank, atom) for atom in others] for rank in (sender, receiver))
            if found != expected:
                raise AssertionError(f"rank {receiver}: found sender {sender}, expected one at {expected} of {others}")


def run_rank(rank, path, seed, rendezvous):
    import torch
    case = Case(seed)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=case.ranks, init_method=f"file://{rendezvous}")
    moved = load(path).redistribute(torch.from_numpy(case.local(rank).copy()))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    expect(case, rank, moved.numpy())


def check_standin(path, case, _):
    import torch.distributed

    def run_rank_in_thread(rank):
        expect(case, rank, numpy.asarray(load(path).redistribute(torch.from_numpy(case.local(rank).copy()))))

    for torch.device_type in ("cuda", "cpu"):  # which go by other collectives
        torch.distributed.run(case.ranks, run_rank_in_thread)


def check_torch(path, case, seed):
    import torch.multiprocessing
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, args=(path, seed, f"{folder}/rendezvous"), nprocs=case.ranks)


def check_jax(path, case, seed):
    import jax
    program = load(path)
    mesh = program.mesh(jax.devices())
    # Summands differ by device, so each device is given its own array: along an axis of their number.
    locals_ = numpy.stack([case.local(rank) for rank in range(case.ranks)])
    names = mesh.axis_names
    everywhere = jax.sharding.PartitionSpec(names)
    moved = jax.jit(jax.shard_map(lambda own: program.redistribute(own[0])[None], mesh=mesh, in_specs=everywhere,
                                  out_specs=everywhere, check_vma=False))(locals_)
    for rank, found in enumerate(numpy.asarray(moved)):
        expect(case, rank, found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=("torch", "jax", "standin"))
    parser.add_argument("crossmesh")
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    if flags.framework == "jax":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={max(math.prod(m.values()) for m in MESHES)}"
        os.environ["JAX_PLATFORMS"] = "cpu"
    if flags.framework == "standin":
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "standin"))
    check = {"torch": check_torch, "jax": check_jax, "standin": check_standin}[flags.framework]
    kinds = set()
    with tempfile.TemporaryDirectory() as folder:
        for seed in itertools.islice(itertools.count(flags.seed), flags.pairs):
            case = Case(seed)
            print(f"seed {seed}: {' '.join(case.arguments())}", flush=True)
            path = emit(flags.crossmesh, flags.framework, case, folder)
            program = load(path)
            kinds.update(step["kind"] for step in program.PROGRAM["steps"])
            if flags.framework != "jax":
                expect_near_senders(program)
            check(path, case, seed)
    print(f"{flags.pairs} programs of {flags.framework}, with steps of these kinds: {', '.join(sorted(kinds))}")


if __name__ == "__main__":
    sys.exit(main())
