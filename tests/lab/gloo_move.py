"""One device's process of a case done by PyTorch's Gloo in three ways. Every slice (cell of a tensor with one set of
holders and one of receivers) comes from the holder that has been given fewest bytes so far:

    point_to_point   it goes to each receiver by one isend, all slices in one batch
    broadcast        one broadcast among its sender and its receivers, slice after slice
    all_gather       each receiver gets one part of it, then the receivers exchange parts by all-gather

    gloo_move.py WORK RANK

WORK is the file that gloo.py writes. Rank 0 prints seconds of each round by way, as JSON. Needs PyTorch.
"""

import itertools
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from layouts import Box, Mesh, Placement, Tensor, box_of

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
PRIME = 251  # values below it are exact in every type


@dataclass(frozen=True)
class Slice:
    """Ranks: who sends it, and who needs it and has it not."""

    tensor: int
    box: Box
    sender: int
    receivers: tuple[int, ...]


def read_placement(raw: dict) -> Placement:
    mesh = Mesh(tuple(map(tuple, raw["mesh"]["axes"])), tuple(raw["mesh"]["devices"]))
    return Placement(mesh, tuple(map(tuple, raw["rules"])))


def contains(outer: Box, inner: Box) -> bool:
    return all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner))


def inside_of(outer: Box, box: Box) -> tuple[slice, ...]:
    return tuple(slice(begin - first, end - first) for (first, _), (begin, end) in zip(outer, box))


def elements(box: Box) -> int:
    count = 1
    for begin, end in box:
        count *= end - begin
    return count


def cells(shape: tuple[int, ...], boxes: list[Box]) -> Iterator[Box]:
    """The grid of all cut points."""
    cuts = [sorted({point for box in boxes for point in box[dimension]}) for dimension in range(len(shape))]
    return itertools.product(*(itertools.pairwise(points) for points in cuts))


class Movement:
    """What this rank has and gets, and all slices that cross between devices."""

    def __init__(self, work: dict, rank: int):
        case = work["case"]
        self.rank = rank
        self.tensors = [Tensor(raw["name"], tuple(raw["shape"]), raw["dtype"]) for raw in case["tensors"]]
        rank_of = {device: number for number, device in enumerate(work["devices"])}
        self.boxes = {side: [self.boxes_of(read_placement(case[side]), tensor, rank_of) for tensor in self.tensors]
                      for side in ("source", "destination")}
        self.sources = [self.values(number, boxes.get(rank)) for number, boxes in enumerate(self.boxes["source"])]
        self.destinations = [None if tensor is None else torch.zeros_like(tensor) for tensor in
                             (self.values(number, boxes.get(rank))
                              for number, boxes in enumerate(self.boxes["destination"]))]
        self.slices = self.cut_slices()
        # Every process makes all groups, in one order.
        members = dict.fromkeys(group for piece in self.slices
                                for group in ((piece.sender, *piece.receivers), piece.receivers))
        self.groups = {group: dist.new_group(sorted(group)) for group in members}

    @staticmethod
    def boxes_of(placement: Placement, tensor: Tensor, rank_of: dict[str, int]) -> dict[int, Box]:
        layout = placement.layout(tensor.name)
        return {rank_of[device]: box_of(placement.mesh, layout, tensor.shape, slot)
                for slot, device in enumerate(placement.mesh.devices)}

    def values(self, number: int, box: Box | None) -> torch.Tensor | None:
        """Values of a box that tell where they belong."""
        if box is None:
            return None
        tensor = self.tensors[number]
        total = torch.zeros((), dtype=TYPES[tensor.dtype])
        for dimension, (begin, end) in enumerate(box):
            line = torch.arange(begin, end).remainder(PRIME // (dimension + 1)).to(total.dtype)
            total = total + line.reshape(-1, *[1] * (len(box) - dimension - 1))
        return total.contiguous()

    def cut_slices(self) -> list[Slice]:
        load = dict.fromkeys(itertools.chain(*self.boxes["source"]), 0)
        found = []
        for number, tensor in enumerate(self.tensors):
            sources, destinations = self.boxes["source"][number], self.boxes["destination"][number]
            for cell in cells(tensor.shape, [*sources.values(), *destinations.values()]):
                holders = [rank for rank, box in sources.items() if contains(box, cell)]
                receivers = tuple(rank for rank, box in destinations.items()
                                  if contains(box, cell) and rank not in holders)
                if receivers:
                    sender = min(holders, key=lambda rank: (load[rank], rank))
                    load[sender] += elements(cell)
                    found.append(Slice(number, cell, sender, receivers))
        return found

    def read(self, piece: Slice) -> torch.Tensor:
        box = self.boxes["source"][piece.tensor][self.rank]
        return self.sources[piece.tensor][inside_of(box, piece.box)].contiguous()

    def place(self, piece: Slice) -> torch.Tensor:
        box = self.boxes["destination"][piece.tensor][self.rank]
        return self.destinations[piece.tensor][inside_of(box, piece.box)]

    def empty(self, piece: Slice) -> torch.Tensor:
        return torch.empty(elements(piece.box), dtype=TYPES[self.tensors[piece.tensor].dtype])

    def store(self, piece: Slice, flat: torch.Tensor) -> None:
        place = self.place(piece)
        place.copy_(flat.reshape(place.shape))

    def keep_local(self) -> None:
        """What a device needs and has is copied."""
        for number, destination in enumerate(self.destinations):
            source = self.boxes["source"][number].get(self.rank)
            if destination is not None and source is not None:
                box = self.boxes["destination"][number][self.rank]
                common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(source, box))
                if all(begin < end for begin, end in common):
                    destination[inside_of(box, common)] = self.sources[number][inside_of(source, common)]

    def point_to_point(self) -> None:
        operations, arriving = [], []
        for piece in self.slices:
            if piece.sender == self.rank:
                content = self.read(piece)
                operations += [dist.P2POp(dist.isend, content, receiver) for receiver in piece.receivers]
            elif self.rank in piece.receivers:
                arriving.append((piece, self.empty(piece)))
                operations.append(dist.P2POp(dist.irecv, arriving[-1][1], piece.sender))
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
        for piece, flat in arriving:
            self.store(piece, flat)

    def broadcast(self) -> None:
        begun = []
        for piece in self.slices:
            if self.rank == piece.sender or self.rank in piece.receivers:
                flat = self.read(piece).reshape(-1) if self.rank == piece.sender else self.empty(piece)
                group = self.groups[(piece.sender, *piece.receivers)]
                begun.append((piece, flat, dist.broadcast(flat, piece.sender, group, async_op=True)))
        for piece, flat, work in begun:
            work.wait()
            if self.rank != piece.sender:
                self.store(piece, flat)

    def all_gather(self) -> None:
        scattered, begun = [], []
        for piece in self.slices:
            count = len(piece.receivers)
            part = -(-elements(piece.box) // count)
            if self.rank == piece.sender:
                padded = torch.nn.functional.pad(self.read(piece).reshape(-1), (0, part * count - elements(piece.box)))
                begun += [dist.isend(padded[number * part:(number + 1) * part], receiver)
                          for number, receiver in enumerate(piece.receivers)]
            elif self.rank in piece.receivers:
                own = torch.empty(part, dtype=TYPES[self.tensors[piece.tensor].dtype])
                scattered.append((piece, own, dist.irecv(own, piece.sender)))
        gathered = []
        for piece, own, arrival in scattered:
            arrival.wait()
            whole = torch.empty(own.numel() * len(piece.receivers), dtype=own.dtype)
            group = self.groups[piece.receivers]
            gathered.append((piece, whole, dist.all_gather_into_tensor(whole, own, group, async_op=True)))
        for piece, whole, work in gathered:
            work.wait()
            self.store(piece, whole[:elements(piece.box)])
        for work in begun:
            work.wait()

    def check(self) -> None:
        """That all is where it should be; then forgets it."""
        for number, destination in enumerate(self.destinations):
            if destination is not None:
                expected = self.values(number, self.boxes["destination"][number][self.rank])
                if not torch.equal(destination, expected):
                    raise ValueError(f"rank {self.rank}: tensor {self.tensors[number].name} is wrong")
                destination.zero_()

    def move(self, way: str) -> float:
        dist.barrier()
        start = time.perf_counter()
        self.keep_local()
        getattr(self, way)()
        dist.barrier()
        return time.perf_counter() - start


def main() -> None:
    work, rank = json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2])
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{work['store']}", rank=rank, world_size=len(work["devices"]))
    movement = Movement(work, rank)
    seconds: dict[str, list[float]] = {way: [] for way in work["ways"]}
    for _ in range(1 + work["rounds"]):
        for way in work["ways"]:
            seconds[way].append(movement.move(way))
            movement.check()
    if rank == 0:
        print(json.dumps({way: values[1:] for way, values in seconds.items()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
