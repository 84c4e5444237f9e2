#!/usr/bin/env python3
"""The collectives of collective_benchmark by PyTorch's Gloo backend, to compare with: of the same sizes, timed alike.
Each process has one thread.

    gloo_collectives.py [--devices 4] [--mebibytes 256] [--repeats 5] [--only all_reduce]

Prints one line of JSON per collective. Needs PyTorch: `setup` beside this file installs it into a virtual environment.
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
VALUES = 61


def values(begin: int, count: int, rank: int = 0) -> torch.Tensor:
    """Small whole numbers, so that sums are exact in any order."""
    return torch.arange(begin + 7 * rank, begin + 7 * rank + count).remainder_(VALUES).to(torch.float32)


class Collective:
    """One process's arrays, of `size` elements the larger of both."""

    def __init__(self, name: str, size: int, rank: int, ranks: int):
        self.name, self.rank, self.ranks, self.size = name, rank, ranks, size
        part = size // ranks
        if name == "all_gather":
            self.source = values(rank * part, part)
        else:
            self.source = values(0, size, rank)
        # Its all-reduce is in place.
        self.destination = torch.zeros(part if name == "reduce_scatter" else size)

    def prepare(self) -> None:
        if self.name == "all_reduce":
            self.destination.copy_(self.source)

    def run(self) -> None:
        match self.name:
            case "all_reduce":
                dist.all_reduce(self.destination)
            case "all_gather":
                dist.all_gather_into_tensor(self.destination, self.source)
            case "reduce_scatter":
                dist.reduce_scatter_tensor(self.destination, self.source)
            case "all_to_all":
                dist.all_to_all_single(self.destination, self.source)

    def expected(self) -> torch.Tensor:
        part = self.size // self.ranks
        match self.name:
            case "all_reduce":
                return sum(values(0, self.size, rank) for rank in range(self.ranks))
            case "all_gather":
                return values(0, self.size)
            case "reduce_scatter":
                return sum(values(self.rank * part, part, rank) for rank in range(self.ranks))
        return torch.cat([values(self.rank * part, part, rank) for rank in range(self.ranks)])

    def least_bytes(self) -> int:
        once = 4 * self.size // self.ranks * (self.ranks - 1)
        return 2 * once if self.name == "all_reduce" else once


def measure(collective: Collective, repeats: int) -> float:
    seconds = []
    for _ in range(1 + repeats):  # the first warms up
        collective.prepare()
        dist.barrier()
        start = time.perf_counter()
        collective.run()
        slowest = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        seconds.append(slowest.item())
    if not torch.equal(collective.destination, collective.expected()):
        raise ValueError(f"process {collective.rank}: what {collective.name} leaves is wrong")
    return statistics.median(seconds[1:])


def run(rank: int, options: argparse.Namespace, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.devices)
    for name in COLLECTIVES:
        if options.only not in (None, name):
            continue
        collective = Collective(name, options.mebibytes << 18, rank, options.devices)
        seconds = measure(collective, options.repeats)
        if rank == 0:
            print(json.dumps({"collective": name, "devices": options.devices, "mebibytes": options.mebibytes,
                              "link": "tcp", "checksums": False, "seconds": seconds,
                              "bytes_per_second": collective.least_bytes() / seconds}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=COLLECTIVES)
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(options, os.path.join(folder, "store")), nprocs=options.devices)


if __name__ == "__main__":
    main()
