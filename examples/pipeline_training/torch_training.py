#!/usr/bin/env python3
"""The pipeline of this folder in PyTorch: four stages in four processes, and all of it in one; sets the losses side by
side.

    examples/pipeline_training/torch_training.py [--steps 20] [--schedule eager_1f1b]

Each process embeds a worker, which says what to compute next, and whose memory torch reads and writes. Stages have
gradients of inputs and of weights apart, by torch.autograd, as the schedule asks for them. Exits with 1 when a loss
differs by more than TOLERANCE of it for every 20 steps. Needs the package crossmesh, and PyTorch.
"""

import argparse
import concurrent.futures
import multiprocessing
import pathlib
import sys

import torch

import crossmesh
from crossmesh.client import PipelineChoice, RunOptions
from crossmesh.embedded import Complete, Op, OpTensor, Pair

PIPELINE = pathlib.Path(__file__).resolve().parent / "pipeline.json"
# As the C++ of this folder: sums over devices are taken in another order than in one process.
TOLERANCE = 1e-5
LEARNING_RATE = 0.5
MICROBATCHES = [8, 8, 8, 5]  # samples
SHAPES = [(24, 48), (48, 64), (64, 32), (32, 8), (48, 8)]  # of W0 to W4

Tiles = list[torch.Tensor]  # by device


def numbers(seed: int, shape: tuple[int, int], scale: float) -> torch.Tensor:
    """From -scale to scale, the same in every process."""
    return scale * (2 * torch.rand(shape, generator=torch.Generator().manual_seed(seed)) - 1)


def weight(index: int) -> torch.Tensor:
    return numbers(100 + index, SHAPES[index], (3 / SHAPES[index][0]) ** 0.5)


X = numbers(1, (sum(MICROBATCHES), 24), 1)
TARGETS = torch.sin(X @ numbers(2, (24, 8), 0.5))


def train_alone(steps: int) -> list[float]:
    w = [weight(index).requires_grad_() for index in range(5)]
    losses = []
    for _ in range(steps):
        h0 = torch.tanh(X @ w[0])
        y = torch.tanh(torch.tanh(h0 @ w[1]) @ w[2]) @ w[3] + h0 @ w[4]
        loss = 0.5 * (y - TARGETS).square().sum() / len(X)
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for one in w:
                one -= LEARNING_RATE * one.grad
                one.grad = None
    return losses


def by_columns(weights: Tiles, x: Tiles) -> Tiles:
    """Each device has columns of W: x is whole on all of them."""
    return [torch.tanh(tile @ w) for tile, w in zip(x, weights, strict=True)]


def by_rows(weights: Tiles, x: Tiles) -> Tiles:
    """Each device has columns of x and rows of W: the sum is whole on all of them."""
    return [torch.tanh(sum(tile @ w for tile, w in zip(x, weights, strict=True)))] * len(x)


def by_samples(weights: Tiles, h2: Tiles, h0: Tiles) -> Tiles:
    """Each device has some samples: the weights are whole on all of them."""
    return [a @ weights[0] + b @ weights[1] for a, b in zip(h2, h0, strict=True)]


class Stage:
    """What a rank computes: its layer, and what it keeps of each microbatch from the forward op to its gradients."""

    def __init__(self, number: int):
        self.layer = (by_columns, by_columns, by_rows, by_samples)[number]
        self.sources = ([], [0], [1], [2, 0])[number]  # the stages that inputs are from
        parts = (weight(0).chunk(1, 1), weight(1).chunk(2, 1), weight(2).chunk(4, 0), (weight(3), weight(4)))[number]
        self.weights = [part.clone().requires_grad_() for part in parts]
        self.kept: dict[int, tuple[list[Tiles], Tiles]] = {}
        self.gradients: dict[int, list[torch.Tensor | None]] = {}
        self.losses: list[float] = []
        self.loss = 0.0

    def compute(self, op: Op) -> None:
        if op.kind == "forward":
            self.forward(op)
        if op.kind in ("backward", "input_gradient"):
            self.input_gradient(op)
        if op.kind in ("backward", "weight_gradient"):
            self.weight_gradient(op)

    def forward(self, op: Op) -> None:
        samples = slice(sum(MICROBATCHES[:op.microbatch]), sum(MICROBATCHES[:op.microbatch]) + op.samples)
        inputs = [leaves(op.input(source)) for source in self.sources] or [[X[samples]]]
        outputs = self.layer(self.weights, *inputs)
        for tensor in op.outputs:
            write(tensor, outputs)
        if not op.outputs:  # the last stage: over the whole batch, so that microbatches add up
            targets = TARGETS[samples].split([len(y) for y in outputs])
            outputs = [sum(0.5 * (y - t).square().sum() / len(X) for y, t in zip(outputs, targets, strict=True))]
            self.loss += outputs[0].item()
        self.kept[op.microbatch] = inputs, outputs

    def input_gradient(self, op: Op) -> None:
        """What several stages need has the sum of their gradients."""
        inputs, outputs = self.kept[op.microbatch]
        of_outputs = [sum(tensor.tiles[device].torch().clone() for tensor in op.inputs) if op.inputs else None
                      for device in range(len(distinct(outputs)))]
        self.gradients[op.microbatch] = of_outputs
        for source, tiles in zip(self.sources, inputs, strict=False):
            found = torch.autograd.grad(distinct(outputs), distinct(tiles), of_outputs, retain_graph=True)
            write(op.output(source), found if len(found) == len(tiles) else found * len(tiles))

    def weight_gradient(self, op: Op) -> None:
        outputs = distinct(self.kept.pop(op.microbatch)[1])
        torch.autograd.backward(outputs, self.gradients.pop(op.microbatch), inputs=self.weights)

    def complete(self) -> None:
        with torch.no_grad():
            for one in self.weights:
                one -= LEARNING_RATE * one.grad
                one.grad = None
        self.losses.append(self.loss)
        self.loss = 0.0


def distinct(tiles: Tiles) -> Tiles:
    """What all devices have alike, once."""
    return list({id(tile): tile for tile in tiles}.values())


def leaves(tensor: OpTensor) -> Tiles:
    """The tiles of an input, of which autograd finds the gradients. Devices with the same box have the same leaf, whose
    gradient is then the sum over them."""
    known = {str(tile.boxes): tile.torch().clone().requires_grad_() for tile in tensor.tiles}
    return [known[str(tile.boxes)] for tile in tensor.tiles]


def write(tensor: OpTensor, values: Tiles) -> None:
    """Of what several devices have alike not all need to give it: there are tiles of those that do."""
    for tile in tensor.tiles:
        tile.torch().copy_(values[int(tile.device.rpartition(".")[2])].detach())


def train_stage(number: int, devices: str, controller: str) -> list[float]:
    torch.set_num_threads(1)
    stage = Stage(number)
    with crossmesh.Worker(f"stage-{number}", devices, controller) as worker, worker.pipeline(timeout=60) as loop:
        for step in loop:
            if isinstance(step, Complete):
                stage.complete()
            elif isinstance(step, Pair):
                stage.compute(step.forward)
                stage.compute(step.backward)
            else:
                stage.compute(step)
    return stage.losses


def train_in_four(steps: int, schedule: str) -> list[float]:
    devices = ["stage-0.0", "stage-1.0-1", "stage-2.0-3", "stage-3.0-2"]
    processes = concurrent.futures.ProcessPoolExecutor(4, multiprocessing.get_context("spawn"))
    with crossmesh.local_cluster(workers=0) as cluster, processes:
        stages = [processes.submit(train_stage, number, devices[number], cluster.address) for number in range(4)]
        cluster.await_workers(4)
        choice = PipelineChoice(schedule=schedule, delay_weight_gradients=True)
        run = cluster.client.pipelines.start(str(PIPELINE), choice, RunOptions(iterations=steps, stop_at_failure=True))
        losses = [stage.result() for stage in stages]
        run.wait(30)
    return losses[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--schedule", default="eager_1f1b")
    options = parser.parse_args()
    alone = train_alone(options.steps)
    four = train_in_four(options.steps, options.schedule)
    print("STEP         ALONE  FOUR PROCESSES  DIFFERENCE")
    for step, (one, other) in enumerate(zip(alone, four, strict=True)):
        print(f"{step:4}  {one:12.9f}  {other:14.9f}  {abs(other - one) / one:10.1e}")
    worst = max(abs(other - one) / one for one, other in zip(alone, four, strict=True))
    allowed = TOLERANCE * max(1, options.steps / 20)
    print(f"\nThe greatest difference is {worst:.1e} of the loss; {allowed:.0e} is allowed.")
    return 0 if worst <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
