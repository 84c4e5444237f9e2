#!/usr/bin/env python3
"""What Python users would write to move a model from a training's FSDP2 to 2 x 2 serving processes, beside Crossmesh.

    python_movement.py [--rounds 5] [--tensors 300] [--ways crossmesh,...] [--cluster-benchmark PROGRAM]

300 matrices of [896, 1000] float32, 1.07 GB, are DTensors of FSDP2 in four torch processes of this machine, and go to
two replicas of two processes with half of the columns each, into tensors that are there already: 2.15 GB. All ways take
turns in one run, each begins at a barrier and ends with the slowest process, every element is compared, and medians are
shown. With --cluster-benchmark the same is done in C++ in each round (cluster_benchmark move --copies).

    crossmesh    storages of workers are filled, resharded and read
    in_place     the same where tensors lie in the storages: nothing is filled and read
    gloo         rank 0 gathers each tensor, and broadcasts it; each process takes its columns
    dcp          torch.distributed.checkpoint saves to tmpfs, and loads from it into the other placements
    ray          four Ray actors put their rows into its object store, and take their columns from all
    safetensors  each process writes its rows as a file in tmpfs, and takes its columns from the files of all

Needs PyTorch, the package crossmesh with its programs, safetensors, and Ray; ways whose package lacks are left out.
"""

import argparse
import contextlib
import importlib.util
import json
import multiprocessing
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

PROCESSES = 4
SHAPE = (896, 1000)
WAYS = ("crossmesh", "in_place", "gloo", "dcp", "ray", "safetensors")
SOURCE = "fsdp=4 on node-0.0,node-1.0,node-2.0,node-3.0"
TARGET = "replica=2,model=2 on node-0.0,node-1.0,node-2.0,node-3.0"


def names_of(tensors: int) -> list[str]:
    return [f"{number}.weight" for number in range(tensors)]


def whole_of(number: int):
    import torch

    return torch.arange(SHAPE[0] * SHAPE[1], dtype=torch.float32).add_(number).remainder_(65521).reshape(SHAPE)


def rows_of(rank: int) -> slice:
    return slice(rank * SHAPE[0] // PROCESSES, (rank + 1) * SHAPE[0] // PROCESSES)


def columns_of(rank: int) -> slice:
    return slice(rank % 2 * SHAPE[1] // 2, (rank % 2 + 1) * SHAPE[1] // 2)


class Process:
    """One of the torch processes: its part of the model before, and after."""

    def __init__(self, rank: int, options: argparse.Namespace, folder: str, controller: str, memory: str):
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import DTensor, Replicate, Shard

        import crossmesh.torch

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=PROCESSES)
        self.rank, self.folder = rank, folder
        self.names = names_of(options.tensors)
        fsdp = init_device_mesh("cpu", (PROCESSES,), mesh_dim_names=("fsdp",))
        serving = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "model"))
        model = torch.nn.ModuleList()
        for number in range(options.tensors):
            layer = torch.nn.Module()
            layer.weight = torch.nn.Parameter(whole_of(number), requires_grad=False)
            model.append(fully_shard(layer, mesh=fsdp))
        self.source = model.state_dict()
        local = [torch.zeros(SHAPE[0], SHAPE[1] // 2) for _ in self.names]
        self.target = {name: DTensor.from_local(of, serving, [Replicate(), Shard(1)], run_check=False)
                       for name, of in zip(self.names, local, strict=True)}
        self.manifest = crossmesh.torch.manifest(self.source)
        first = self.names[0]
        self.layouts = (crossmesh.torch.layout_of(self.source[first]), crossmesh.torch.layout_of(self.target[first]))
        device, worker = f"node-{rank}.0", crossmesh.worker_memory(memory)
        self.storages = (worker.storage("trained", device, self.manifest, SOURCE, self.layouts[0]),
                         worker.storage("serving", device, self.manifest, TARGET, self.layouts[1]))
        self.client = crossmesh.connect(controller) if rank == 0 else None

    def do(self, way: str) -> dict[str, float]:
        """The seconds of the whole, and of its parts."""
        import torch.distributed as dist

        for name in self.names:
            self.target[name].to_local().zero_()
        dist.barrier()
        parts: dict[str, float] = {}
        start = time.perf_counter()
        getattr(self, way)(parts)
        dist.barrier()
        parts["seconds"] = time.perf_counter() - start
        self.check(way)
        return parts

    def check(self, way: str) -> None:
        import torch

        if way == "in_place":
            self.storages[1].refresh().read(self.target)
        for number, name in enumerate(self.names):
            if not torch.equal(self.target[name].to_local(), whole_of(number)[:, columns_of(self.rank)]):
                raise ValueError(f"{way}: rank {self.rank} has other values of {name}")

    def crossmesh(self, parts: dict[str, float]) -> None:
        with timed(parts, "fill"):
            self.storages[0].refresh().fill(self.source)
            barrier()
        with timed(parts, "reshard"):
            self.in_place(parts)
        with timed(parts, "read"):
            self.storages[1].refresh().read(self.target)

    def in_place(self, _: dict[str, float]) -> None:
        if self.client is not None:
            sides = ((SOURCE, self.layouts[0], "trained"), (TARGET, self.layouts[1], "serving"))
            self.client.reshard(
                self.manifest, *sides, replica_axes=["replica"], binding="in_place", show_progress=False)
        barrier()

    def gloo(self, _: dict[str, float]) -> None:
        import torch
        import torch.distributed as dist

        whole = torch.empty(SHAPE)
        for name in self.names:
            rows = list(whole.chunk(PROCESSES)) if self.rank == 0 else None
            dist.gather(self.source[name].to_local(), rows, dst=0)
            dist.broadcast(whole, src=0)
            self.target[name].to_local().copy_(whole[:, columns_of(self.rank)])

    def dcp(self, _: dict[str, float]) -> None:
        from torch.distributed import checkpoint

        path = f"{self.folder}/checkpoint"
        checkpoint.save(self.source, checkpoint_id=path)
        checkpoint.load(self.target, checkpoint_id=path)

    def safetensors(self, _: dict[str, float]) -> None:
        import safetensors
        from safetensors.torch import save_file

        save_file({name: self.source[name].to_local() for name in self.names}, f"{self.folder}/{self.rank}.safetensors")
        barrier()
        for rank in range(PROCESSES):
            with safetensors.safe_open(f"{self.folder}/{rank}.safetensors", "pt") as file:
                for name in self.names:
                    rows = file.get_slice(name)[:, columns_of(self.rank)]
                    self.target[name].to_local()[rows_of(rank)] = rows


def barrier() -> None:
    import torch.distributed as dist

    dist.barrier()


@contextlib.contextmanager
def timed(parts: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    parts[name] = time.perf_counter() - start


def serve(rank: int, pipe, *arguments) -> None:
    process = Process(rank, *arguments)
    pipe.send("ready")
    while (way := pipe.recv()) != "end":
        pipe.send(process.do(way))


@contextlib.contextmanager
def torch_processes(options: argparse.Namespace, folder: str, cluster) -> Iterator[Callable[[str], dict[str, float]]]:
    """A function that has all do something, and returns what the slowest took."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for rank in range(PROCESSES):
        ours, theirs = context.Pipe()
        pipes.append(ours)
        processes.append(context.Process(
            target=serve, args=(rank, theirs, options, folder, cluster.address, cluster.memory_socket(rank))))
        processes[-1].start()
        theirs.close()
    for pipe in pipes:
        pipe.recv()

    def do(way: str) -> dict[str, float]:
        for pipe in pipes:
            pipe.send(way)
        found = [pipe.recv() for pipe in pipes]
        return {part: max(one[part] for one in found) for part in found[0]}

    yield do
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send("end")
        process.join()


@contextlib.contextmanager
def ray_actors(options: argparse.Namespace) -> Iterator[Callable[[], dict[str, float]]]:
    import ray

    size = options.tensors * SHAPE[0] * SHAPE[1] * 4
    ray.init(num_cpus=PROCESSES, object_store_memory=max(2 * size, 1 << 27), include_dashboard=False,
             log_to_driver=False, logging_level="error")

    @ray.remote(num_cpus=1)
    class Actor:
        def __init__(self, rank: int):
            self.rank = rank
            self.source = [whole_of(number)[rows_of(rank)].numpy().copy() for number in range(options.tensors)]
            self.target = [whole_of(0)[:, columns_of(rank)].numpy() * 0 for _ in range(options.tensors)]

        def put(self):
            return [ray.put(self.source)]

        def take(self, references):
            for rank, (reference,) in enumerate(references):
                for target, rows in zip(self.target, ray.get(reference), strict=True):
                    target[rows_of(rank)] = rows[:, columns_of(self.rank)]

        def check(self):
            for number, target in enumerate(self.target):
                if (target != whole_of(number)[:, columns_of(self.rank)].numpy()).any():
                    raise ValueError(f"ray: actor {self.rank} has other values of tensor {number}")
                target[...] = 0

    actors = [Actor.remote(rank) for rank in range(PROCESSES)]
    ray.get([actor.__ray_ready__.remote() for actor in actors])

    def do() -> dict[str, float]:
        start = time.perf_counter()
        references = ray.get([actor.put.remote() for actor in actors])
        ray.get([actor.take.remote(references) for actor in actors])
        seconds = time.perf_counter() - start
        del references
        ray.get([actor.check.remote() for actor in actors])
        return {"seconds": seconds}

    yield do
    ray.shutdown()


def in_cpp(program: str, tensors: int, folder: str) -> dict[str, float]:
    manifest = pathlib.Path(folder) / "manifest.json"
    manifest.write_text(json.dumps({"tensors": [
        {"name": name, "shape": list(SHAPE), "dtype": "F32"} for name in names_of(tensors)]}))
    done = subprocess.run([program, "move", manifest, "--copies", "--repeats", "1"], capture_output=True, check=True)
    found = json.loads(done.stdout)
    parts = {"fill": found["fill_seconds"], "reshard": found["seconds"], "read": found["read_seconds"]}
    return {**parts, "seconds": sum(parts.values())}


def measure(options: argparse.Namespace, ways: list[str]) -> dict[str, list[dict[str, float]]]:
    import crossmesh

    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        cluster = stack.enter_context(crossmesh.local_cluster(workers=PROCESSES))
        do = stack.enter_context(torch_processes(options, folder, cluster))
        ray = stack.enter_context(ray_actors(options)) if "ray" in ways else None
        for turn in range(1 + options.rounds):  # the first one warms up
            for way in ways[turn % len(ways):] + ways[:turn % len(ways)]:
                if way == "cpp":
                    parts = in_cpp(options.cluster_benchmark, options.tensors, folder)
                else:
                    parts = ray() if way == "ray" and ray is not None else do(way)
                shutil.rmtree(f"{folder}/checkpoint", ignore_errors=True)
                for file in pathlib.Path(folder).glob("*.safetensors"):
                    file.unlink()
                if turn:
                    found[way].append(parts)
                print(f"round {turn}, load {os.getloadavg()[0]:.1f}: {way} "
                      + ", ".join(f"{part} {seconds:.3f} s" for part, seconds in parts.items()), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tensors", type=int, default=300)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--cluster-benchmark", help="the program, of a build of preset release")
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    ways = [way for way in options.ways.split(",")
            if way not in ("ray", "safetensors") or importlib.util.find_spec(way) is not None]
    if options.cluster_benchmark:
        ways.append("cpp")
    found = measure(options, ways)
    medians = {way: {part: statistics.median(one[part] for one in of) for part in of[0]} for way, of in found.items()}
    print("\n| Way | Time | Beside Crossmesh | Parts |\n|---|---|---|---|")
    for way in ways:
        ratios = [one["seconds"] / ours["seconds"] for one, ours in zip(found[way], found[ways[0]], strict=True)]
        parts = ", ".join(f"{part} {s:.2f} s" for part, s in medians[way].items() if part != "seconds")
        print(f"| {way} | {medians[way]['seconds']:.2f} s | {statistics.median(ratios):.2f} | {parts} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
