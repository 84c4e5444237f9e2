"""crossmesh.torch.redistribute beside DTensor's own: python_redistribute.py [--pairs 50] [--seed 1]

Four processes over Gloo change the placements of random tensors both ways, partial sums included, and compare what
every rank has, element by element.
"""

import argparse
import os
import random
import sys
import tempfile

import crossmesh.torch

SIZES = ((4,), (2, 2))


def random_placements(draw: random.Random, sizes, rank: int, partial: bool):
    from torch.distributed.tensor import Partial, Replicate, Shard

    kinds = [Replicate(), *(Shard(d) for d in range(rank))]
    if partial:
        kinds.append(Partial(draw.choice(["sum", "sum", "avg", "max"])))
    while True:
        placements = [draw.choice(kinds) for _ in sizes]
        if all(len([p for p in placements if p == Shard(d)]) < 3 for d in range(rank)):
            return placements


def compare(rank: int, file: str, pairs: int, seed: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor

    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=4)
    meshes = {sizes: init_device_mesh("cpu", sizes, mesh_dim_names=("x", "y")[:len(sizes)]) for sizes in SIZES}
    draw = random.Random(seed)  # alike on all ranks
    for pair in range(pairs):
        sizes = draw.choice(SIZES)
        rank_of_tensor = draw.choice([1, 2, 2, 3])
        shape = [draw.randint(1, 9) for _ in range(rank_of_tensor)]
        source = random_placements(draw, sizes, rank_of_tensor, True)
        wanted = random_placements(draw, sizes, rank_of_tensor, False)
        whole = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
        spread = [p for p in source if not p.is_partial()]
        local = whole
        if spread:
            from torch.distributed.tensor import Replicate, distribute_tensor
            flat = [Replicate() if p.is_partial() else p for p in source]
            local = distribute_tensor(whole, meshes[sizes], flat, src_data_rank=None).to_local()
        if any(p.is_partial() for p in source):
            local = local + rank  # each rank has a summand of its own
        tensor = DTensor.from_local(local.contiguous(), meshes[sizes], source, run_check=False, shape=whole.shape,
                                    stride=whole.stride())
        found = crossmesh.torch.redistribute(tensor, wanted)
        expected = tensor.redistribute(placements=wanted)
        assert found.placements == expected.placements
        if not torch.equal(found.to_local(), expected.to_local()):
            sys.exit(f"pair {pair}, seed {seed}, rank {rank}: {source} to {wanted} of {shape} over {sizes}: "
                     f"expected {expected.to_local()}, found {found.to_local()}")
    dist.barrier()
    if rank == 0:
        print(f"redistribute, seed {seed}: {pairs} pairs by 4 processes over Gloo, no difference")
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    import torch.multiprocessing

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(compare, (f"{folder}/rendezvous", arguments.pairs, arguments.seed), nprocs=4)
    return 0


if __name__ == "__main__":
    sys.exit(main())
