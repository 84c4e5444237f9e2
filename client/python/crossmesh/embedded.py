"""A worker of a cluster in this process: it moves tensors from and into memory of this process, and says what a rank of
a pipeline, or of a layer program, computes next.

Whatever blocks here lets other threads run, and ends with what a signal raises, such as KeyboardInterrupt.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy

from crossmesh import _arguments, _core, memory, planning
from crossmesh._core import Layout, Manifest, Mesh, Rules
from crossmesh.errors import Error, InvalidArgumentError, NotFoundError, UnimplementedError
from crossmesh.memory import Storage, StorageState, WorkerMemory, numpy_type

# UCX, which the extension has for data over RDMA, would catch the signals of faults as soon as it is loaded.
os.environ.setdefault("UCX_HANDLE_ERRORS", "none")

from crossmesh import _worker

__all__ = ["Complete", "LentStorage", "Op", "OpTensor", "OpTile", "Pair", "RankLoop", "StateLost", "Worker"]

Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]


def _refused(what: str, expected: str, found: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{what}: expected {expected}, found {found}", what, expected, found)


def _bytes_of(what: str, given: Any) -> Bytes:
    """The memory of an array, a torch tensor, or whatever has the buffer protocol or DLPack, as it lies."""
    if type(given).__module__.partition(".")[0] == "torch":
        given = given.detach()
        if given.device.type != "cpu":
            raise _refused(what, "memory of the host", f"that of {given.device}")
        if not given.is_contiguous():
            raise _refused(what, "contiguous memory", f"strides {tuple(given.stride())}")
        flat: Bytes = given.reshape(-1).view(importlib.import_module("torch").uint8).numpy()
        return flat
    try:
        array = given if isinstance(given, numpy.ndarray) else numpy.asarray(memoryview(given))
    except (BufferError, TypeError, ValueError):
        if not hasattr(given, "__dlpack__"):
            raise _refused(
                what, "an array, a torch tensor, or an object with the buffer protocol or DLPack",
                type(given).__name__) from None
        try:
            array = numpy.from_dlpack(given)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise _refused(
                what, "memory of the host, of elements that numpy has", f"{type(given).__name__}: {error}") from error
    if array.dtype.hasobject:
        raise _refused(what, "memory of numbers", "references to objects")
    if not array.flags.c_contiguous:
        raise _refused(what, "contiguous memory", f"strides {array.strides}")
    if not array.flags.writeable:
        raise _refused(what, "memory that may be written", "memory that may only be read")
    return array.reshape(-1).view(numpy.uint8)


@_arguments.checked
class LentStorage(Storage):
    """Memory of this process as a storage of its worker, by Worker.lend(); as a Storage, whose tiles lie in it.

    The object is held until release(), so it is neither freed nor resized. Operations write it in place, so a view of
    it sees what they do: `state().dirty` says that one has not committed. What is of a generation that is over raises,
    as for any storage, until refresh().
    """

    def __init__(
        self, worker: Worker, name: str, device: str, memory: Bytes,
        tiles: Mapping[str, tuple[int, str, tuple[tuple[slice, ...], ...]]], manifest: Manifest,
    ):
        self.worker = worker
        self.name = name
        self.device = device
        self.bytes = memory.nbytes
        self._tiles = tiles
        self._manifest = manifest
        self._map = memory  # type: ignore[assignment]  # as a buffer
        worker._embedded.lend(name, device, memory)
        self._generation = self.state().generation

    def state(self) -> StorageState:
        size, generation, dirty = self.worker._embedded.status(self.name, self.device)
        return StorageState(self.name, self.device, size, generation, dirty, "", 0)

    def refresh(self) -> LentStorage:
        """Takes its latest generation for the one that is meant, and returns itself."""
        self._generation = self.state().generation
        return self

    def check(self) -> None:
        """Raises FailedPreconditionError unless it is of the latest generation; NotFoundError once it is released."""
        self._check_generation(self.state().generation)

    def release(self, timeout: float = 10.0) -> None:
        """Ends the loan once no operation uses it. FailedPreconditionError: one still does after `timeout` seconds,
        which it names. NotFoundError: the loan has ended."""
        self.worker._embedded.release(self.name, self.device, timeout)
        self.worker._lent.pop((self.name, self.device), None)

    def __repr__(self) -> str:
        return f"<LentStorage {self.name!r} of {self.device}: {self.bytes} bytes>"


@dataclass(frozen=True)
class OpTile:
    """The part of an op's tensor that a device of this process has: its boxes, one after the other in `data`."""

    device: str
    dtype: str
    boxes: tuple[tuple[slice, ...], ...]
    data: numpy.ndarray[Any, Any]

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """Over the worker's memory, in the shape of the box. UnimplementedError: it has several, which `data` has."""
        if len(self.boxes) != 1:
            raise UnimplementedError(
                f"tile of {self.device}: expected one box, found {len(self.boxes)}; data has them all",
                f"tile of {self.device}", "one box", str(len(self.boxes)))
        return self.data.reshape([interval.stop - interval.start for interval in self.boxes[0]])

    def torch(self) -> Any:
        """The same as a torch tensor. Needs torch."""
        return memory.torch_tensor(self.array, self.dtype)


@_arguments.checked
@dataclass(frozen=True)
class OpTensor:
    """A tensor that an op reads or fills, in the worker's memory.

    `peer` is the stage that it comes from, or goes to; in a layer program the rank. `transfer` is what carries it:
    "0>1"; in a layer program its name. `shape` is that of the whole.
    """

    name: str
    peer: int
    transfer: str
    dtype: str
    shape: tuple[int, ...]
    tiles: tuple[OpTile, ...]

    def tile(self, device: str) -> OpTile:
        """Of a device. NotFoundError: it has none."""
        for tile in self.tiles:
            if tile.device == device:
                return tile
        what, expected = f'tensor "{self.name}" of {self.transfer}', f"a tile on {device}"
        found = ", ".join(tile.device for tile in self.tiles) or "none"
        raise NotFoundError(f"{what}: expected {expected}, found {found}", what, expected, found)

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """Of a rank that has one device here. UnimplementedError: there are several tiles."""
        return self._only().array

    def torch(self) -> Any:
        """The same as a torch tensor. Needs torch."""
        return self._only().torch()

    def _only(self) -> OpTile:
        if len(self.tiles) != 1:
            what, found = f'tensor "{self.name}" of {self.transfer}', str(len(self.tiles))
            raise UnimplementedError(
                f"{what}: expected one tile, found {found}; tile(device) has each", what, "one tile", found)
        return self.tiles[0]


@_arguments.checked
class _Answered:
    """A step that the other ranks wait for."""

    _loop: RankLoop

    def done(self) -> None:
        """It is computed: what it gives begins to move."""
        self._loop._answer(self, None)

    def fail(self, why: BaseException | str) -> None:
        """It cannot be done: the iteration fails everywhere, with this reason."""
        self._loop._answer(self, why)


@_arguments.checked
@dataclass(frozen=True, eq=False)
class Op(_Answered):
    """What to compute next. Inputs may be read until it is done: copy what is needed later. Outputs are to be filled.

    `kind` is "forward", "backward", "input_gradient" or "weight_gradient"; "op" in a layer program, whose `name` alone
    says what it is; stage, microbatch and samples are of a pipeline. `place` is its place among the rank's ops.
    `seconds` is what it is profiled to take.
    """

    kind: str
    name: str
    stage: int
    microbatch: int
    samples: int
    seconds: float
    iteration: int
    place: int
    inputs: tuple[OpTensor, ...]
    outputs: tuple[OpTensor, ...]
    _loop: RankLoop

    def input(self, of: int | str) -> OpTensor:
        """By peer, or by the name of its transfer. NotFoundError."""
        return self._find("input", self.inputs, of)

    def output(self, of: int | str) -> OpTensor:
        """By peer, or by the name of its transfer. NotFoundError."""
        return self._find("output", self.outputs, of)

    def _find(self, noun: str, tensors: tuple[OpTensor, ...], of: int | str) -> OpTensor:
        for tensor in tensors:
            if of in (tensor.peer, tensor.transfer):
                return tensor
        what, expected = f"op {self.name}", f"an {noun} of {of}"
        found = ", ".join(tensor.transfer for tensor in tensors) or "none"
        raise NotFoundError(f"{what}: expected {expected}, found {found}", what, expected, found)


@dataclass(frozen=True, eq=False)
class Pair(_Answered):
    """A forward op and the backward op that is fused with it."""

    forward: Op
    backward: Op
    _loop: RankLoop


@dataclass(frozen=True)
class Complete:
    """The iteration is complete on all ranks: weights may change."""

    iteration: int


@dataclass(frozen=True, eq=False)
class StateLost(_Answered):
    """The processes of these ranks were replaced, and what they knew of iterations is gone. done() when this process
    can go on with all others, for example since it has read the checkpoint that they read; going on without it ends
    the run. `iteration` is the last that is complete on all ranks; -1: none is.
    """

    iteration: int
    lost_ranks: tuple[int, ...]
    _loop: RankLoop


#: What a rank does next.
Step = Op | Pair | Complete | StateLost


class RankLoop:
    """What a rank of a run does, step by step, by Worker.pipeline(). Of one thread.

    An op or a pair is done when the next step is asked for, unless it was before. Iterating ends when the run is done;
    when it is cut short, that is raised, and the run goes on with another loop. A loop that is given up fails its run;
    as a context manager, with what was raised inside.
    """

    def __init__(self, loop: _worker.RankLoop):
        self._loop = loop
        self._tensors: dict[int, tuple[tuple[OpTensor, ...], tuple[OpTensor, ...]]] = {}
        self._unanswered: _Answered | None = None

    @property
    def rank(self) -> int:
        """Of the pipeline, or of the layer program."""
        return self._loop.rank

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        if isinstance(self._unanswered, (Op, Pair)):
            self._unanswered.done()
        kind, op, backward, iteration, lost_ranks = self._loop.next()
        if kind == "over":
            raise StopIteration
        if kind == "complete":
            return Complete(iteration)
        step: Op | Pair | StateLost
        if kind == "state_lost":
            step = StateLost(iteration, lost_ranks, self)
        elif kind == "pair":
            step = Pair(self._op(*op), self._op(*backward), self)
        else:
            step = self._op(*op)
        self._unanswered = step
        return step

    def _op(self, *described: Any) -> Op:
        name, kind, stage, microbatch, samples, seconds, iteration, place, inputs, outputs = described
        # The memory of an op is the same in every iteration.
        if place not in self._tensors:
            self._tensors[place] = (_tensors_of(inputs), _tensors_of(outputs))
        return Op(kind, name, stage, microbatch, samples, seconds, iteration, place, *self._tensors[place], self)

    def _answer(self, step: _Answered, why: BaseException | str | None) -> None:
        if step is not self._unanswered:
            raise _refused(f"rank {self.rank}", "an answer to its last step", "one to a step that has one")
        if why is None:
            self._loop.done()
        elif isinstance(why, str):
            self._loop.fail(Error.code, why)
        else:
            self._loop.fail(getattr(why, "code", Error.code), f"{type(why).__name__}: {why}")
        self._unanswered = None

    def leave(self) -> None:
        """This process computes nothing more of the run, which fails unless it is over."""
        self._unanswered = None
        self._loop.leave()

    def __enter__(self) -> RankLoop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and self._unanswered is not None:
            with contextlib.suppress(Error):  # of a process that was forked off, less than what was raised
                self._unanswered.fail(error)
        self.leave()

    def __del__(self) -> None:
        self._loop.leave()  # raises nothing, and needs nothing that is gone at the interpreter's end


def _tensors_of(described: Sequence[Any]) -> tuple[OpTensor, ...]:
    tensors = []
    for name, peer, transfer, dtype, shape, tiles in described:
        kind = numpy_type(dtype)
        made = tuple(OpTile(device, dtype, boxes, data.view(kind)) for device, boxes, data in tiles)
        tensors.append(OpTensor(name, peer, transfer, dtype, shape, made))
    return tuple(tensors)


# Those that are stopped before the interpreter ends, while their threads may still come back to it.
_running: weakref.WeakSet[Worker] = weakref.WeakSet()


def _stop_all() -> None:
    for worker in list(_running):
        with contextlib.suppress(Error):
            worker.stop()


atexit.register(_stop_all)


def _remove(folder: str, process: int) -> None:
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


@_arguments.checked
class Worker:
    """A worker with devices in memory of the host, which joins a cluster; as crossmesh-worker, in this process.

    The controller knows it some time after it is made. Thread-safe. In a process that was forked off it raises
    FailedPreconditionError. It is stopped by stop(), the end of its block, or that of the interpreter. What waits
    raises why the controller refuses it, its name or its version, once it has done so for 20 s. `memory` has its
    storages.
    """

    @_arguments.checked
    def __init__(
        self, name: str, devices: str | Sequence[str], controllers: str | Sequence[str], *,
        listen: str = "127.0.0.1:0", interfaces: Sequence[str] = ("lo",), trusted_networks: Sequence[str] = (),
        insecure: bool = False, memory_socket: str = "", metrics_listen: str = "", memory_max: int = 0,
        state_folder: str = "", log_level: str = "warning",
    ):
        """Starts it.

        `devices` and `controllers` are texts, or sequences of them: "node-a.0-3", "unix:/run/crossmesh.sock". All other
        arguments are as the daemon's flags: it serves controllers and other workers at `listen`, and its peers' data
        goes over `interfaces`; addresses beyond this machine need `trusted_networks` or `insecure`. By default
        `memory_socket` is in a temporary folder, and there are no `metrics_listen` and `state_folder`. `memory_max` is
        in bytes; 0 is the daemon's default. `log_level` is of all workers of the process. Raises InvalidArgumentError,
        FailedPreconditionError, UnavailableError as the daemon does not start.
        """
        _worker.set_log_level(log_level)
        options = _worker.WorkerOptions()
        options.name = name
        options.devices = devices if isinstance(devices, str) else ",".join(devices)
        options.controllers = [controllers] if isinstance(controllers, str) else list(controllers)
        options.listen = listen
        options.interfaces = list(interfaces)
        options.trusted_networks = list(trusted_networks)
        options.insecure = insecure
        options.metrics_listen = metrics_listen
        options.memory_max = memory_max
        options.state_folder = state_folder
        if not memory_socket:
            folder = tempfile.mkdtemp(prefix="cm-")
            self._folder_ends = weakref.finalize(self, _remove, folder, os.getpid())
            memory_socket = f"{folder}/memory.sock"
        options.memory_socket = memory_socket
        self._embedded = _worker.EmbeddedWorker(options)
        self._process = os.getpid()
        self._lent: dict[tuple[str, str], LentStorage] = {}
        self.name = name
        self.devices = options.devices
        self.memory: WorkerMemory = memory.worker_memory(memory_socket)
        _running.add(self)

    @property
    def address(self) -> str:
        """Where controllers reach it."""
        return self._embedded.execution_address

    def storage(
        self, name: str, device: str, manifest: Manifest, mesh: Mesh | str,
        layouts: Rules | str | Layout | Mapping[str, Layout | str], *, create: bool = True,
    ) -> Storage:
        """A storage of `device` in memory of the worker, created unless it is there, or unless not `create`; arguments
        and errors are as of WorkerMemory.storage(): `manifest`, and `mesh` and `layouts` of a reshard's side."""
        return self.memory.storage(name, device, manifest, mesh, layouts, create=create)

    def lend(
        self, name: str, device: str, memory: Any, manifest: Manifest | None = None, mesh: Mesh | str = "",
        layouts: Rules | str | Layout | Mapping[str, Layout | str] = "",
    ) -> LentStorage:
        """Lends memory of this process as a storage, for operations in place (binding="in_place").

        `memory` is a contiguous numpy array, torch tensor in host memory, or another object with the buffer protocol
        or DLPack. With `manifest`, `mesh` and `layouts`, as of a reshard's side, its first bytes are what the device
        holds of the tensors, as many as that takes, each tile at a multiple of 64 bytes; else all of it is one storage.
        Raises InvalidArgumentError for memory that is too small, not contiguous or not to be written,
        AlreadyExistsError for a name that is taken.
        """
        what = f'storage "{name}" of device {device}'
        lent = _bytes_of(what, memory)
        tiles: Mapping[str, tuple[int, str, tuple[tuple[slice, ...], ...]]] = {}
        if manifest is not None:
            given = mesh if isinstance(mesh, Mesh) else Mesh(mesh)
            size, tiles = _core.storage_layout(manifest, given, planning.rules(layouts), device)
            if lent.nbytes < size:
                raise _refused(what, f"memory of {size} bytes", f"{lent.nbytes}")
            lent = lent[:size]
        storage = LentStorage(self, name, device, lent, tiles, manifest if manifest is not None else Manifest([]))
        self._lent[name, device] = storage
        return storage

    def pipeline(self, timeout: float | None = None) -> RankLoop:
        """The next rank of a pipeline or layer program that this process is to compute, once a controller starts one.

        A program with several ranks here wants a thread for each. `timeout` is in seconds: DeadlineExceededError then.
        CancelledError: the worker is stopped.
        """
        return RankLoop(self._embedded.wait_for_pipeline(timeout))

    def wait(self, timeout: float | None = None) -> bool:
        """Until the controller has asked for a drain and nothing runs any more, or another thread has stopped it; False
        when `timeout` seconds are over. Raises why the controller refuses the worker."""
        return self._embedded.wait(timeout)

    def stop(self, drain: float = 0.0) -> None:
        """Leaves the cluster, at most `drain` seconds later, in which what runs may end. Repeatable. What was lent is
        given back."""
        self._embedded.stop(drain)
        _running.discard(self)
        for storage in list(self._lent.values()):
            with contextlib.suppress(Error):
                storage.release(0.0)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process == os.getpid():  # else it is the parent's
            self.stop()

    def __repr__(self) -> str:
        return f"<Worker {self.name!r} with {self.devices}>"
