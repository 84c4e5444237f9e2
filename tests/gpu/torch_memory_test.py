"""Storages of GPUs as tensors of torch, through a controller, workers and processes of GPUs.

Over this machine's GPUs where torch has some, which may be one for both workers; else over the stand-ins, whose memory
is the host's. `tests/peers/run FOLDER package` runs it. On GPUs it needs a torch with CUDA, and NCCL 2.30.3.
"""

import contextlib
import ctypes
import gc
import importlib.util
import os
import pathlib
from dataclasses import dataclass

import pytest

import crossmesh
from crossmesh import cluster, errors, gpu_memory, programs

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch, which tests/peers/run FOLDER package installs")

STAND_INS = programs.folder().parent / "standin"
MANIFEST = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [101, 64]), crossmesh.Tensor("b", "BF16", [64])])
MESH, CUT, WHOLE = "x=2 on node-0.1,node-1.1", "* [x, ...] chunk", "* [...]"


@dataclass
class Gpus:
    """Of each worker the GPU and its number here; the libraries; where torch has the memory."""

    names: list[str]
    numbers: list[int]
    libraries: dict[str, str]
    device: str
    contexts: list[ctypes.c_void_p] | None = None

    def use(self, rank):
        if self.contexts is None:
            import torch

            torch.cuda.set_device(self.numbers[rank])
        else:
            _driver(self).call("cuCtxSetCurrent", self.contexts[rank])


def _driver(gpus):
    return gpu_memory._crossmesh_memory().Driver(gpus.libraries["cuda"])


def _nccl_of_torch():
    """As tests/gpu/run finds it."""
    spec = importlib.util.find_spec("nvidia.nccl") if importlib.util.find_spec("nvidia") else None
    return f"{next(iter(spec.submodule_search_locations))}/lib/libnccl.so.2" if spec else "libnccl.so.2"


def _real():
    import torch

    torch.cuda.init()
    numbers = [0, 1 % torch.cuda.device_count()]
    names = [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in numbers]
    if numbers == [0, 0]:
        names = [f"{name}:{share}" for share, name in enumerate(names)]
    return Gpus(names, numbers, {"cuda": "libcuda.so.1", "nccl": _nccl_of_torch()}, "cuda")


def _stood_in(monkeypatch):
    monkeypatch.setenv("CROSSMESH_STANDIN_KERNELS", str(STAND_INS / "libcrossmesh_host_kernels.so.1"))
    monkeypatch.setenv("CROSSMESH_STANDIN_DEVICES", "2")
    monkeypatch.setattr(gpu_memory._Mapped, "dlpack_device", (1, 0))  # this torch knows host memory alone
    files = {"cuda": "libcuda.so.1", "nccl": "libnccl.so.2", "m2n": "libnccl_m2n.so.0"}
    gpus = Gpus([f"GPU-7374616e-6469-6e00-{number:02x}00-000000000000" for number in range(2)], [0, 1],
                {name: str(STAND_INS / file) for name, file in files.items()}, "cpu",
                [ctypes.c_void_p(), ctypes.c_void_p()])
    driver = _driver(gpus)
    driver.call("cuInit", 0)
    for number, one in enumerate(gpus.contexts):
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(one), number)
    return gpus


@pytest.fixture
def gpus(monkeypatch):
    import torch

    if torch.cuda.is_available():
        yield _real()
        return
    if not pathlib.Path(STAND_INS / "libcuda.so.1").exists():
        pytest.skip("needs a GPU, or the stand-in for the CUDA driver, which a build of all has")
    made = _stood_in(monkeypatch)
    yield made
    gc.collect()
    _driver(made).call("cuCtxSetCurrent", None)
    for number in made.numbers:
        _driver(made).call("cuDevicePrimaryCtxRelease_v2", number)


@contextlib.contextmanager
def _cluster(gpus):
    class ClusterOfGpus(cluster.LocalCluster):
        def _worker_words(self, worker):
            words = [word for name, file in gpus.libraries.items() for word in (f"--{name}-library", file)]
            if ":" in gpus.names[worker]:
                words.append("--gpu-shares")
            return [*super()._worker_words(worker), *words, "--gpu", f"node-{worker}.1={gpus.names[worker]}"]

    with ClusterOfGpus(2, 1) as running:
        yield running


def test_what_torch_fills_on_gpus_torch_reads_on_others(gpus):
    import torch

    generator = torch.Generator().manual_seed(int(os.environ.get("CROSSMESH_TEST_SEED", 1)))
    values = {"w": torch.rand(101, 64, generator=generator), "b": torch.rand(64, generator=generator).bfloat16()}
    with _cluster(gpus) as running:
        def storage(rank, name, layouts, **options):
            gpus.use(rank)
            return running.memory(rank).gpu_storage(
                name, f"node-{rank}.1", MANIFEST, MESH, layouts, cuda_device=gpus.numbers[rank],
                driver=gpus.libraries["cuda"], **options)

        for rank in range(2):
            storage(rank, "trained", CUT).fill({name: value.to(gpus.device) for name, value in values.items()})
        running.client.reshard(
            MANIFEST, (MESH, CUT, "trained"), (MESH, WHOLE, "serving"), create_destination=True, timeout=120)
        targets = [storage(rank, "serving", WHOLE, create=False) for rank in range(2)]
        for rank, target in enumerate(targets):
            gpus.use(rank)
            (tile,) = target.tiles("w")
            held = tile.torch()
            assert held.device.type == gpus.device and torch.equal(held.cpu(), values["w"])
            got = {name: torch.zeros_like(value, device=gpus.device) for name, value in values.items()}
            target.read(got)
            assert all(torch.equal(got[name].cpu(), value) for name, value in values.items())
            # Another mapping of the same memory sees what is written to the tile.
            held[0, 0] = -1.0
            target._copied()
            assert storage(rank, "serving", WHOLE, create=False).tiles("w")[0].torch()[0, 0] == -1.0
        running.client.reshard(MANIFEST, (MESH, CUT, "trained"), (MESH, WHOLE, "serving"), timeout=120)
        gpus.use(0)
        with pytest.raises(errors.FailedPreconditionError, match="expected generation 2, found generation 3"):
            targets[0].tiles("w")
        assert torch.equal(targets[0].refresh().tiles("w")[0].torch().cpu(), values["w"])
        del target, targets, tile, held
        gc.collect()
