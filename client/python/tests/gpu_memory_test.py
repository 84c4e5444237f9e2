"""Storages in a GPU's memory, mapped by the stand-in for the CUDA driver, whose memory is the host's."""

import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import pathlib
import socket
import struct
import threading

import numpy
import pytest

import crossmesh
from crossmesh import cluster, errors, programs
from crossmesh.gpu_memory import _crossmesh_memory

STAND_INS = programs.folder().parent / "standin"
DRIVER = str(STAND_INS / "libcuda.so.1")
pytestmark = pytest.mark.skipif(
    not pathlib.Path(DRIVER).exists(), reason="needs the stand-in for the CUDA driver, which a build of all has")
MANIFEST = crossmesh.Manifest([
    crossmesh.Tensor("w", "F32", [7, 5]), crossmesh.Tensor("b", "BF16", [3]), crossmesh.Tensor("s", "F64", [])])
MESH, RULES = "x=2 on a.0,a.1", "s []\n* [x, ...] chunk"


class PlainWorker(threading.Thread):
    """A worker as plain as can be: one storage, of whose memory it gives everyone a descriptor."""

    def __init__(self, path, size, gpu="GPU-0"):
        super().__init__(daemon=True)
        self.size, self.gpu, self.generation = size, gpu, 1
        self.own = _crossmesh_memory().Memory.allocate(_crossmesh_memory().Driver(DRIVER), max(size, 1), 0)
        self.page = os.memfd_create("sequence")
        os.ftruncate(self.page, 4096)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen()

    def commit(self):
        """The next version is in other memory."""
        former, self.own = self.own, _crossmesh_memory().Memory.allocate(
            _crossmesh_memory().Driver(DRIVER), self.size, 0)
        self.generation += 1
        os.pwrite(self.page, struct.pack("=Q", self.generation), 64)
        former.close()

    def run(self):
        os.pwrite(self.page, struct.pack("=Q", self.generation), 64)
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                with client:
                    self._answer(client, json.loads(client.recv(65536)))

    def _answer(self, client, request):
        storage = {"storage": request["storage"], "device": request["device"], "bytes": self.size, "dirty": False,
                   "generation": self.generation, "gpu": self.gpu, "shadow_bytes": 0}
        descriptor = os.dup(self.page) if request["op"] == "sequence" else self.own.export()
        socket.send_fds(client, [json.dumps({"code": 0, "message": "", "storages": [storage]}).encode()], [descriptor])
        os.close(descriptor)

    def stop(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join(10)
        os.close(self.page)
        self.own.close()


@pytest.fixture(scope="module", autouse=True)
def contexts():
    """Of two devices, of which the first is current."""
    os.environ["CROSSMESH_STANDIN_DEVICES"] = "2"
    driver = _crossmesh_memory().Driver(DRIVER)
    driver.call("cuInit", 0)
    made = [ctypes.c_void_p(), ctypes.c_void_p()]
    for number, one in enumerate(made):
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(one), number)
    driver.call("cuCtxSetCurrent", made[0])
    yield made
    gc.collect()
    driver.call("cuCtxSetCurrent", None)
    for number in range(2):
        driver.call("cuDevicePrimaryCtxRelease_v2", number)


@pytest.fixture
def worker(tmp_path):
    size, _ = crossmesh._core.storage_layout(MANIFEST, crossmesh.Mesh(MESH), crossmesh.Rules(RULES), "a.1")
    running = PlainWorker(str(tmp_path / "memory"), size)
    running.start()
    yield running
    running.stop()


def _storage(tmp_path, **options):
    return crossmesh.worker_memory(tmp_path / "memory").gpu_storage(
        "s", "a.1", MANIFEST, MESH, RULES, driver=DRIVER, **options)


def _bytes_at(address, count):
    return (ctypes.c_ubyte * count).from_address(address)


def test_a_tile_is_the_memory_of_the_worker(tmp_path, worker):
    storage = _storage(tmp_path)
    (tile,) = storage.tiles("w")
    assert (tile.box, tile.__dlpack_device__()) == ((slice(4, 7), slice(0, 5)), (2, 0))
    interface = tile.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"]) == ((3, 5), "<f4")
    _bytes_at(worker.own.address + tile.offset, 60)[:] = numpy.arange(15, dtype="f4").tobytes()
    assert bytes(_bytes_at(interface["data"][0], 60)) == numpy.arange(15, dtype="f4").tobytes()
    _bytes_at(interface["data"][0], 4)[:] = numpy.float32(7).tobytes()
    assert bytes(_bytes_at(worker.own.address + tile.offset, 4)) == numpy.float32(7).tobytes()
    (scalar,) = storage.tiles("s")
    _bytes_at(worker.own.address + scalar.offset, 8)[:] = numpy.float64(9).tobytes()
    assert scalar.offset > 0
    assert bytes(_bytes_at(scalar.__cuda_array_interface__["data"][0], 8)) == numpy.float64(9).tobytes()
    (bf16,) = storage.tiles("b")
    assert not hasattr(bf16, "__cuda_array_interface__")  # has no such type; DLPack has
    assert "dltensor" in repr(bf16.__dlpack__())


def test_arrays_of_numpy_are_refused(tmp_path, worker):
    (tile,) = _storage(tmp_path).tiles("w")
    for use in (lambda: tile.array, lambda: numpy.asarray(tile), lambda: _storage(tmp_path)["w"]):
        with pytest.raises(errors.UnimplementedError, match=r"found that of a GPU; torch\(\)"):
            use()


def test_a_generation_that_is_over_says_so_and_its_memory_goes_with_its_last_tensor(tmp_path, worker):
    storage = _storage(tmp_path)
    (tile,) = storage.tiles("w")
    capsule = tile.__dlpack__()
    old = tile.__cuda_array_interface__["data"][0]
    _bytes_at(old, 4)[:] = b"over"
    worker.commit()
    with pytest.raises(errors.FailedPreconditionError, match="found generation 2; refresh"):
        tile.__dlpack__()
    storage.refresh()
    with pytest.raises(errors.FailedPreconditionError, match="take it from the storage again"):
        tile.__dlpack__()
    assert storage.tiles("w")[0].__cuda_array_interface__["data"][0] != old
    assert bytes(_bytes_at(old, 4)) == b"over"  # mapped as long as the capsule is
    assert old in _mapped_addresses()
    del capsule
    gc.collect()
    assert old not in _mapped_addresses()


def _mapped_addresses():
    """Where mappings begin that can be read, since an address that was reserved alone may stay."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    ranges = [(int(line.split("-")[0], 16), int(line.split("-")[1].split()[0], 16)) for line in lines if " r" in line]

    class Ranges:
        def __contains__(self, address):
            return any(begin <= address < end for begin, end in ranges)

    return Ranges()


def test_a_thousand_versions_leave_no_mapping(tmp_path, worker):
    storage = _storage(tmp_path)
    lines = []
    for _ in range(3):
        for _ in range(300):
            worker.commit()
            storage.refresh().tiles("w")[0].__dlpack__()
        gc.collect()
        lines.append(len(pathlib.Path("/proc/self/maps").read_text().splitlines()))
    assert lines[2] <= lines[0] + 2


def test_memory_of_a_host_and_of_another_gpu_are_refused(tmp_path, worker):
    worker.gpu = ""
    with pytest.raises(errors.FailedPreconditionError, match=r"found that of a host; storage\(\)"):
        _storage(tmp_path)
    worker.gpu = "GPU-1"
    with pytest.raises(errors.FailedPreconditionError, match="of GPU GPU-1: expected that CUDA device 7 maps it"):
        _storage(tmp_path, cuda_device=7)
    with pytest.raises(errors.UnimplementedError, match=r"found that of GPU GPU-1; gpu_storage\(\)"):
        crossmesh.worker_memory(tmp_path / "memory").storage("s", "a.1", MANIFEST, MESH, RULES)


class ClusterOfGpus(cluster.LocalCluster):
    """Worker N has the stand-in for GPU N as device node-N.1."""

    def _worker_words(self, worker):
        libraries = [("cuda", "libcuda.so.1"), ("nccl", "libnccl.so.2"), ("m2n", "libnccl_m2n.so.0")]
        return [*super()._worker_words(worker),
                *(word for name, file in libraries for word in (f"--{name}-library", str(STAND_INS / file))),
                "--gpu", f"node-{worker}.1=GPU-7374616e-6469-6e00-{worker:02x}00-000000000000"]


def _elements(tile):
    interface = tile.__cuda_array_interface__
    count = int(numpy.prod(interface["shape"]))
    memory = (ctypes.c_float * count).from_address(interface["data"][0])
    return numpy.ctypeslib.as_array(memory).reshape(interface["shape"])


def test_what_is_written_to_tiles_of_gpus_arrives_in_those_of_others(monkeypatch, contexts):
    """Real workers and processes of GPUs, over stand-ins."""
    monkeypatch.setenv("CROSSMESH_STANDIN_KERNELS", str(STAND_INS / "libcrossmesh_host_kernels.so.1"))
    driver = _crossmesh_memory().Driver(DRIVER)
    manifest = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [101, 64]), crossmesh.Tensor("b", "F32", [64])])
    values = {tensor.name: numpy.random.default_rng(1).random(tensor.shape, numpy.float32) for tensor in manifest}
    mesh, cut, whole = "x=2 on node-0.1,node-1.1", "* [x, ...] chunk", "* [...]"
    with ClusterOfGpus(2, 1) as running:
        def storage(rank, *named, **options):
            driver.call("cuCtxSetCurrent", contexts[rank])
            return running.memory(rank).gpu_storage(
                named[0], f"node-{rank}.1", manifest, mesh, named[1], cuda_device=rank, driver=DRIVER, **options)

        for rank in range(2):
            source = storage(rank, "trained", cut)
            for tile in (tile for name in source for tile in source.tiles(name)):
                _elements(tile)[...] = values[tile.tensor][tile.box]
        running.client.reshard(
            manifest, (mesh, cut, "trained"), (mesh, whole, "serving"), create_destination=True, timeout=120)
        for rank in range(2):
            target = storage(rank, "serving", whole, create=False)
            assert target.generation == 2 and target.tiles("w")[0].__dlpack_device__() == (2, rank)
            for tile in (tile for name in target for tile in target.tiles(name)):
                assert numpy.array_equal(_elements(tile), values[tile.tensor][tile.box])
        del source, target, tile
        gc.collect()
    driver.call("cuCtxSetCurrent", contexts[0])


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch, which tests/peers/run installs")
def test_torch_has_the_tiles_fills_them_and_reads_them(tmp_path, worker, monkeypatch):
    """This torch knows host memory alone, which the stand-in's is: only its place is told otherwise."""
    import torch

    from crossmesh import gpu_memory

    monkeypatch.setattr(gpu_memory._Mapped, "dlpack_device", (1, 0))
    storage = _storage(tmp_path)
    values = {"w": torch.arange(35.0).reshape(7, 5), "b": torch.tensor([1.5, 2.5, 3.5], dtype=torch.bfloat16),
              "s": torch.tensor(9.0, dtype=torch.float64)}
    storage.fill(values)
    (tile,) = storage.tiles("w")
    assert torch.equal(tile.torch(), values["w"][4:7]) and storage.tiles("b")[0].torch().dtype == torch.bfloat16
    tile.torch()[0, 0] = -1.0
    assert bytes(_bytes_at(worker.own.address + tile.offset, 4)) == numpy.float32(-1).tobytes()
    got = {name: torch.zeros_like(value) for name, value in values.items()}
    storage.read(got)
    assert got["w"][4, 0] == -1 and torch.equal(got["w"].reshape(-1)[21:], values["w"].reshape(-1)[21:])
    assert got["w"][:4].abs().sum() == 0 and got["b"].tolist() == [0, 0, 3.5] and got["s"] == 9
    for wrong, message in (
            ({"w": values["w"].double()}, "expected elements of F32, found F64"), ({"w": "text"}, "found str"),
            ({"s": torch.zeros(2, dtype=torch.float64)}, "expected shape")):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            storage.fill({**values, **wrong})
