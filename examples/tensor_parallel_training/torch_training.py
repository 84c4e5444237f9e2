#!/usr/bin/env python3
"""A transformer that trains with data and tensor parallelism over four processes, in PyTorch, and in one; sets the
losses side by side.

    examples/tensor_parallel_training/torch_training.py [--steps 10]

So many steps are on dp=2,tp=2; then the weights move, and so many more are on dp=1,tp=4. Each process embeds a worker.
Its weights are in memory that torch has and the worker is lent: a reshard moves them from there. What devices sum, of
activations over tp and of gradients over dp, is what the ops of a layer program give each other. Exits with 1 when a
loss differs by more than TOLERANCE of it. Needs the package crossmesh, and PyTorch.
"""

import argparse
import concurrent.futures
import multiprocessing
import sys

import torch
from torch.nn import functional

import crossmesh
from crossmesh.client import RunOptions
from crossmesh.embedded import Complete, LentStorage, Op, Worker

GRIDS = [{"dp": 2, "tp": 2}, {"dp": 1, "tp": 4}]
PROCESSES = 4
BATCH, SEQUENCE, FEATURES, HEADS, VOCABULARY = 16, 8, 32, 4, 64
HALVES = ["attention", "mlp", "attention", "mlp"]  # of two blocks
LEARNING_RATE = 0.5
TOLERANCE = 1e-5  # sums over devices are taken in another order than in one process

# By name the shape and the layout. A half of a block cuts its first matrix by columns and its second one by rows.
# Columns of attention are one head after the other, of each its query, key and value.
PARAMETERS = {"tokens": ((VOCABULARY, FEATURES), "[-, -]"), "positions": ((SEQUENCE, FEATURES), "[-, -]"),
              "gain": ((FEATURES,), "[-]"), "logits": ((FEATURES, VOCABULARY), "[-, -]")}
for _number, _kind in enumerate(HALVES):
    _inside = (3 * FEATURES, FEATURES) if _kind == "attention" else (4 * FEATURES, 4 * FEATURES)
    PARAMETERS |= {f"{_number}.gain": ((FEATURES,), "[-]"), f"{_number}.in": ((FEATURES, _inside[0]), "[-, tp]"),
                   f"{_number}.out": ((_inside[1], FEATURES), "[tp, -]")}
MANIFEST = crossmesh.Manifest([crossmesh.Tensor(name, "F32", list(shape)) for name, (shape, _) in PARAMETERS.items()])
RULES = "\n".join(f"{name} {layout}" for name, (_, layout) in PARAMETERS.items())
Weights = dict[str, torch.Tensor]


def first_weights() -> Weights:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator) / FEATURES ** 0.5 if len(shape) == 2 else torch.ones(shape)
            for name, (shape, _) in PARAMETERS.items()}


TOKENS, TARGETS = torch.randint(VOCABULARY, (2, BATCH, SEQUENCE), generator=torch.Generator().manual_seed(2))


def half(number: int, x: torch.Tensor, weights: Weights) -> torch.Tensor:
    """What these weights add to x; of those of a device a summand of it."""
    hidden = functional.layer_norm(x, (FEATURES,), weights[f"{number}.gain"]) @ weights[f"{number}.in"]
    if HALVES[number] == "mlp":
        return functional.gelu(hidden) @ weights[f"{number}.out"]
    query, key, value = hidden.unflatten(2, (-1, 3, FEATURES // HEADS)).permute(3, 0, 2, 1, 4)
    seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return seen.transpose(1, 2).flatten(2) @ weights[f"{number}.out"]


def loss_of(x: torch.Tensor, weights: Weights, targets: torch.Tensor) -> torch.Tensor:
    """Over the whole batch, so that what devices have adds up."""
    logits = functional.layer_norm(x, (FEATURES,), weights["gain"]) @ weights["logits"]
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / (BATCH * SEQUENCE)


def train_alone(steps: int) -> list[float]:
    weights = {name: value.requires_grad_() for name, value in first_weights().items()}
    losses = []
    for _ in range(steps):
        x = weights["tokens"][TOKENS] + weights["positions"]
        for number in range(len(HALVES)):
            x = x + half(number, x, weights)
        loss = loss_of(x, weights, TARGETS)
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, list(weights.values()))
        with torch.no_grad():
            for weight, gradient in zip(weights.values(), gradients, strict=True):
                weight -= LEARNING_RATE * gradient
    return losses


def mesh_of(grid: dict[str, int]) -> crossmesh.Mesh:
    return crossmesh.Mesh.of(list(grid.items()), [f"process-{number}.0" for number in range(PROCESSES)])


def program_of(grid: dict[str, int]) -> dict:
    """The ops of all devices, and what each gives to the next one: summands of activations and of gradients. Those of
    gains are summands over tp as well, as each device has used them for its part of a half."""
    halves = range(len(HALVES))
    names = [*(f"forward {i}" for i in halves), "loss", *(f"backward {i}" for i in reversed(halves)), "give", "update"]

    def transfer(name: str, op: str, partial: list[str], tensors: dict[str, tuple[tuple[int, ...], str]]) -> dict:
        entries = [{"tensor": {"name": tensor, "dtype": "F32", "shape": shape}, "sourceLayout": layout,
                    "destinationLayout": layout} for tensor, (shape, layout) in tensors.items()]
        message = {"producer": names.index(op), "consumer": names.index(op) + 1}
        return {"name": name, "partialAxes": partial, "tensors": entries, "messages": [message]}

    x = {"x": ((BATCH, SEQUENCE, FEATURES), "[dp, -, -]")}
    gains = {name: of for name, of in PARAMETERS.items() if name.endswith(".gain")}
    others = {name: of for name, of in PARAMETERS.items() if name not in gains}
    transfers = [transfer("gains", "give", ["dp", "tp"], gains), transfer("others", "give", ["dp"], others),
                 *(transfer(name, name, ["tp"], x) for name in names if "forward" in name or "backward" in name)]
    mesh = {"axes": mesh_of(grid).axes_text, "devices": mesh_of(grid).devices_text}
    return {"name": "training", "ranks": [{"inlineMesh": mesh}], "transfers": transfers,
            "ops": [{"name": name, "rank": 0, "seconds": 1e-4} for name in names]}


class Device:
    """What a process computes on a grid, with the weights that its storage has."""

    def __init__(self, number: int, grid: dict[str, int], storage: LentStorage):
        self.weights = {name: storage.tiles(name)[0].torch().requires_grad_() for name in storage}
        self.tokens, self.targets = (of.chunk(grid["dp"])[number // grid["tp"]] for of in (TOKENS, TARGETS))
        self.counts = number % grid["tp"] == 0  # of those with the same rows one adds its loss
        self.losses, self.kept = [], []  # kept of each half: its input, the same as a leaf, and its summand

    def compute(self, op: Op) -> None:
        kind, _, number = op.name.partition(" ")
        total, w = op.inputs[0].torch() if op.inputs else 0, self.weights
        if kind == "forward":
            self.x = self.x.detach() + total if int(number) else w["tokens"][self.tokens] + w["positions"]
            leaf = self.x.detach().requires_grad_()
            self.kept.append((self.x, leaf, half(int(number), leaf, w)))
            op.outputs[0].torch().copy_(self.kept[-1][2].detach())
        elif kind == "loss":
            leaf = (self.x.detach() + total).requires_grad_()
            loss = loss_of(leaf, w, self.targets)
            loss.backward()
            self.gradient = leaf.grad
            self.losses.append(loss.item() if self.counts else 0.0)
        elif kind == "backward":  # past the half, and through it
            self.gradient = self.gradient + total
            self.x, leaf, summand = self.kept.pop()
            summand.backward(self.gradient)
            op.outputs[0].torch().copy_(leaf.grad)
        elif kind == "give":
            self.x.backward(self.gradient + total)
            for tensor in op.outputs:
                tensor.torch().copy_(w[tensor.name].grad)
        else:
            self.sums = {tensor.name: tensor.torch().clone() for tensor in op.inputs}

    def complete(self) -> None:
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight -= LEARNING_RATE * self.sums[name]
                weight.grad = None


def train_device(number: int, controller: str) -> list[float]:
    torch.set_num_threads(1)
    name = f"process-{number}"
    with Worker(name, f"{name}.0", controller) as worker:
        storages = [worker.lend(f"weights-{phase}", f"{name}.0", torch.zeros(MANIFEST.bytes // 4 + 16 * len(MANIFEST)),
                                MANIFEST, mesh_of(grid), RULES) for phase, grid in enumerate(GRIDS)]
        storages[0].fill(first_weights())
        devices = []
        for grid, storage in zip(GRIDS, storages, strict=True):
            with worker.pipeline(timeout=60) as loop:
                devices.append(Device(number, grid, storage.refresh()))
                for step in loop:
                    devices[-1].complete() if isinstance(step, Complete) else devices[-1].compute(step)
    return [loss for device in devices for loss in device.losses]


def train_in_four(steps: int) -> list[float]:
    processes = concurrent.futures.ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"))
    with crossmesh.local_cluster(workers=0) as cluster, processes:
        devices = [processes.submit(train_device, number, cluster.address) for number in range(PROCESSES)]
        cluster.await_workers(PROCESSES)
        for phase, grid in enumerate(GRIDS):
            if phase:
                source, target = ((mesh_of(GRIDS[i]), RULES, f"weights-{i}") for i in (phase - 1, phase))
                cluster.client.reshard(MANIFEST, source, target, binding="in_place")
            options = RunOptions(iterations=steps, stop_at_failure=True)
            cluster.client.pipelines.start(program_of(grid), options=options).wait()
        return [sum(parts) for parts in zip(*(device.result() for device in devices), strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    steps = parser.parse_args().steps
    alone, four = train_alone(len(GRIDS) * steps), train_in_four(steps)
    differences = [abs(other - one) / one for one, other in zip(alone, four, strict=True)]
    print("STEP         ALONE  FOUR PROCESSES  DIFFERENCE")
    for step, difference in enumerate(differences):
        print(f"{step:4}  {alone[step]:12.9f}  {four[step]:14.9f}  {difference:10.1e}")
    worst = max(differences)
    print(f"\nThe greatest difference is {worst:.1e} of the loss; {TOLERANCE:.0e} is allowed.")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
