#!/usr/bin/env python3
"""The movement of cluster_benchmark done by PyTorch's Gloo backend, to compare with: tensors cut on dimension 0 over
four processes of one host go to two replicas of two processes, matrices cut on dimension 1. Every intersection of a
source and a destination tile goes by one isend and one irecv, all of them in one batch.

    gloo_reshard.py MANIFEST [--repeats 5]

MANIFEST is a JSON file with "tensors": [{"name", "shape", "dtype"}]. Prints one line of JSON. Needs PyTorch: `setup`
beside this file installs it into a virtual environment.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PROCESSES = 4
MODEL = 2  # processes of a replica
TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def rows_of(length: int, rank: int) -> tuple[int, int]:
    """As torch.chunk cuts them: ceil(length / processes) each, the last ones shorter."""
    part = -(-length // PROCESSES)
    return min(rank * part, length), min((rank + 1) * part, length)


def columns_of(shape: list[int], rank: int) -> tuple[int, int]:
    part = shape[1] // MODEL
    return rank % MODEL * part, (rank % MODEL + 1) * part


class Tensor:
    """This process's tiles of one tensor."""

    def __init__(self, shape: list[int], dtype: torch.dtype, rank: int):
        self.shape, self.dtype, self.rank = shape, dtype, rank
        begin, end = rows_of(shape[0], rank)
        # Values that tell where they belong, exact in every type.
        self.source = self.expected(begin, end, slice(None))
        tile = list(shape)
        if len(shape) == 2:
            tile[1] //= MODEL
        self.destination = torch.zeros(tile, dtype=dtype)

    def expected(self, begin: int, end: int, columns: slice) -> torch.Tensor:
        values = torch.arange(begin, end).remainder(251).to(self.dtype)
        if len(self.shape) == 1:
            return values
        across = torch.arange(self.shape[1])[columns].remainder(3).to(self.dtype)
        return values[:, None] + across[None, :]

    def part_for(self, rank: int) -> torch.Tensor:
        """What `rank` needs of this process's rows."""
        if len(self.shape) == 1:
            return self.source
        begin, end = columns_of(self.shape, rank)
        return self.source[:, begin:end]

    def place_of(self, rank: int) -> torch.Tensor:
        """Where the rows of `rank` go in this process's destination."""
        begin, end = rows_of(self.shape[0], rank)
        return self.destination[begin:end]

    def check(self) -> None:
        columns = slice(*columns_of(self.shape, self.rank)) if len(self.shape) == 2 else slice(None)
        if not torch.equal(self.destination, self.expected(0, self.shape[0], columns)):
            raise ValueError(f"process {self.rank}: the destination of a tensor of shape {self.shape} is wrong")


def move(tensors: list[Tensor], rank: int) -> None:
    operations = []
    for tensor in tensors:
        tensor.place_of(rank).copy_(tensor.part_for(rank))
        for step in range(1, PROCESSES):
            to, source = (rank + step) % PROCESSES, (rank - step) % PROCESSES
            part, place = tensor.part_for(to), tensor.place_of(source)
            if part.numel() > 0:
                operations.append(dist.P2POp(dist.isend, part.contiguous(), to))
            if place.numel() > 0:
                # Rows of a destination tile lie together, so they are received in place.
                operations.append(dist.P2POp(dist.irecv, place, source))
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def run(rank: int, options: argparse.Namespace, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    manifest = json.loads(pathlib.Path(options.manifest).read_text())
    tensors = [Tensor(entry["shape"], TYPES[entry["dtype"]], rank) for entry in manifest["tensors"]]
    seconds = []
    for _ in range(1 + options.repeats):  # the first warms up
        dist.barrier()
        start = time.perf_counter()
        move(tensors, rank)
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    for tensor in tensors:
        tensor.check()
    size = torch.tensor([sum(t.destination.numel() * t.destination.element_size() for t in tensors)])
    dist.all_reduce(size)
    if rank == 0:
        median = statistics.median(seconds[1:])
        print(json.dumps({"seconds": median, "destination_bytes": size.item(),
                          "bytes_per_second": size.item() / median}), flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(options, os.path.join(folder, "store")), nprocs=PROCESSES)


if __name__ == "__main__":
    main()
