#!/usr/bin/env python3
"""How long crossmesh.torch.redistribute and DTensor's own take: 50 random pairs of placements, four processes, Gloo.

    dtensor_redistribute.py [--pairs 50] [--rounds 15] [--seed 1] [--pair N]

Each pair is first done both ways, compared element by element, and planned by both with that. Then both take turns,
who begins as well, after a barrier each; a round is as long as its slowest process, and medians are set side by side.
DTensor's own stands beside itself likewise, in halves of its rounds, which shows the noise. Prints a line for each
pair, then one of all. --pair measures one of them alone. Needs PyTorch and the package crossmesh with its programs.
"""

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

PROCESSES = 4
SIZES = ((4,), (2, 2))
BYTES = (1 << 16, 1 << 24)  # of a tensor of float32: the least and the most


def random_case(draw: random.Random) -> tuple:
    """Sizes of the mesh, shape, placements before and after; three in ten have a length that does not divide."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    sizes = draw.choice(SIZES)
    rank = draw.choice([1, 2, 2, 3])
    elements = math.exp(draw.uniform(math.log(BYTES[0] / 4), math.log(BYTES[1] / 4)))
    shape = [max(4, round(elements ** (1 / rank) * draw.uniform(0.7, 1.4) / 8) * 8) for _ in range(rank)]
    if draw.random() < 0.3:
        shape[draw.randrange(rank)] += draw.randint(1, 3)
    reduction = draw.choice(["sum", "sum", "avg", "max"])

    def placements(partial: bool) -> list:
        kinds = [Replicate(), *(Shard(d) for d in range(rank)), *([Partial(reduction)] if partial else [])]
        return [draw.choice(kinds) for _ in sizes]

    while True:
        source, wanted = placements(True), placements(False)
        if source != wanted:
            return sizes, shape, source, wanted


def seconds_of(work: Callable[[], object]) -> float:
    import torch.distributed as dist

    dist.barrier()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(case: tuple, mesh, rank: int, rounds: int) -> tuple[list[float], list[float]]:
    """Of every round, the seconds of crossmesh and of DTensor in this process."""
    import torch
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

    import crossmesh.torch

    _, shape, source, wanted = case
    whole = torch.arange(float(math.prod(shape))).remainder_(251).reshape(shape)
    flat = [Replicate() if p.is_partial() else p for p in source]
    local = distribute_tensor(whole, mesh, flat, src_data_rank=None).to_local().contiguous()
    if any(p.is_partial() for p in source):
        local = local + rank  # each process has a summand of its own
    tensor = DTensor.from_local(local, mesh, source, run_check=False, shape=whole.shape, stride=whole.stride())
    ways = [lambda: crossmesh.torch.redistribute(tensor, wanted), lambda: tensor.redistribute(placements=wanted)]
    found, expected = (way().to_local() for way in ways)
    if not torch.equal(found, expected):
        sys.exit(f"rank {rank}: {source} to {wanted} of {shape}: expected {expected}, found {found}")
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(2 + rounds):
        for way in (0, 1) if turn % 2 else (1, 0):
            taken = seconds_of(ways[way])
            if turn >= 2:
                seconds[way].append(taken)
    return seconds


def text_of(placements: list) -> str:
    return ", ".join(repr(p).replace("(dim=", "(") for p in placements)


def run(rank: int, file: str, options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=PROCESSES)
    meshes = {sizes: init_device_mesh("cpu", sizes, mesh_dim_names=("x", "y")[:len(sizes)]) for sizes in SIZES}
    draw = random.Random(options.seed)  # alike in all processes
    ratios, noise = [], []
    with torch.no_grad():
        for pair in range(options.pairs):
            case = random_case(draw)
            if options.pair not in (None, pair):
                continue
            seconds = torch.tensor(measure(case, meshes[case[0]], rank, options.rounds), dtype=torch.float64)
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            ours, dtensor = (statistics.median(of.tolist()) for of in seconds)
            halves = [statistics.median(seconds[1][first::2].tolist()) for first in (0, 1)]
            ratios.append(dtensor / ours)
            noise.append(halves[0] / halves[1])
            if rank == 0:
                print(f"{pair:3}  {case[1]!s:18} {text_of(case[2])} -> {text_of(case[3])}: "
                      f"{ours * 1e3:.2f} ms, DTensor {dtensor * 1e3:.2f} ms, {ratios[-1]:.2f}; noise {noise[-1]:.2f}",
                      flush=True)
    if rank == 0:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(json.dumps({
            "pairs": len(ratios), "geometric_mean": round(mean, 3), "least": round(min(ratios), 3),
            "greatest": round(max(ratios), 3), "slower_by_a_tenth": sum(ratio < 1 / 1.1 for ratio in ratios),
            "noise": [round(min(noise), 3), round(max(noise), 3)], "load": os.getloadavg()[0]}))
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pair", type=int)
    options = parser.parse_args()
    import torch.multiprocessing

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, (f"{folder}/rendezvous", options), nprocs=PROCESSES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
