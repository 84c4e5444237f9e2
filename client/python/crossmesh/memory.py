"""Memory that a worker of this host and this process share: storages, and the tiles in them, without a copy.

A storage belongs to its worker. What it holds of each tensor follows from manifest, mesh and layouts (docs/running.md),
and lies in this process as arrays over the same memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import math
import mmap
import os
import select
import socket
import struct
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from crossmesh import _arguments, _core, _dtypes, planning
from crossmesh._core import Layout, Manifest, Mesh, Rules
from crossmesh.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnimplementedError,
    error_of,
)

if TYPE_CHECKING:
    from crossmesh.gpu_memory import GpuStorage

__all__ = ["Storage", "StorageState", "Tile", "WorkerMemory", "worker_memory"]

_DATAGRAM_BYTES_MAX = 64 * 1024
_PAGE_BYTES = 4096
# What is copied past the processor's caches; less may be used while it is still there.
_STREAMED_BYTES_MIN = 256 * 1024
# Of the page that a storage's worker and its users share (common/memory_protocol/storage_sequence.h).
_GENERATION_AT = 64

_NUMPY_NAMES = {name: numpy_name for numpy_name, name in _dtypes.NAMES.items()}
# Where ml_dtypes is not there, elements are seen as integers of their size.
_RAW_NAMES = {"BF16": "uint16", "F8_E4M3": "uint8", "F8_E5M2": "uint8"}


@functools.cache
def numpy_type(name: str) -> numpy.dtype[Any]:
    """Of a type of safetensors: BF16 and F8 are those of ml_dtypes if that is there, else unsigned integers."""
    if name not in _RAW_NAMES:
        return numpy.dtype(_NUMPY_NAMES[name])
    try:
        kind = getattr(importlib.import_module("ml_dtypes"), _NUMPY_NAMES[name])
    except ImportError:
        kind = _RAW_NAMES[name]
    found: numpy.dtype[Any] = numpy.dtype(kind)
    return found


def torch_tensor(array: numpy.ndarray[Any, Any], dtype: str) -> Any:
    """The memory of an array of a type of safetensors as a torch tensor, of torch's own type also for BF16 and F8."""
    torch = importlib.import_module("torch")
    if dtype not in _RAW_NAMES:
        return torch.from_numpy(array)
    # torch takes no uint16 of older numpys: by bytes of the same width.
    return torch.from_numpy(array.view(f"i{array.itemsize}")).view(getattr(torch, _NUMPY_NAMES[dtype]))


@dataclass(frozen=True)
class StorageState:
    """A storage as its worker has it, and its size in bytes; `gpu` is empty for host memory.

    `generation` is 1 when it is made, and one more with each commit. `dirty` is what was received in place and not
    committed. `shadow_bytes` is the second piece, which the next version is received into.
    """

    storage: str
    device: str
    bytes: int
    generation: int
    dirty: bool
    gpu: str
    shadow_bytes: int


_STATE_NAMES = tuple(field.name for field in dataclasses.fields(StorageState))


class _Peer:
    """The process that a memory socket's worker is, to see that it has ended."""

    def __init__(self, pid: int):
        self.pid = pid
        self._descriptor = -1
        with contextlib.suppress(OSError):  # in another namespace of processes, it is not seen
            self._descriptor = os.pidfd_open(pid)
            weakref.finalize(self, os.close, self._descriptor).atexit = False

    def has_ended(self) -> bool:
        if self._descriptor < 0:
            return False
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(0))


@_arguments.checked
class WorkerMemory:
    """The memory socket of a worker of this host, by worker_memory(). Thread-safe; it keeps no connection.

    A storage has a `name`, and is of a `device` HOST.INDEX of the worker. Every call may raise UnavailableError (no
    worker serves there) and DeadlineExceededError.
    """

    def __init__(self, path: str, timeout: float):
        self.path = path
        self._timeout = timeout

    def _ask(self, request: Mapping[str, Any]) -> tuple[list[StorageState], int, int]:
        """The storages of the answer, the descriptor that came with it or -1, and the worker's process."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(self._timeout)
            try:
                connection.connect(self.path)
                connection.send(json.dumps(request).encode())
                reply, descriptors, _, _ = socket.recv_fds(connection, _DATAGRAM_BYTES_MAX, 1)
            except TimeoutError:
                raise DeadlineExceededError(
                    f"worker at {self.path}: expected an answer within {self._timeout:g} s, found none",
                    f"worker at {self.path}", f"an answer within {self._timeout:g} s", "none") from None
            except OSError as error:
                raise UnavailableError(
                    f"worker at {self.path}: expected one that serves, found {error.strerror}; is it up, with this "
                    "--memory-socket?", f"worker at {self.path}", "one that serves", str(error.strerror)) from None
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        descriptor = descriptors[0] if descriptors else -1
        try:
            return self._decode(reply), descriptor, struct.unpack("3i", credentials)[0]
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            raise

    def _decode(self, reply: bytes) -> list[StorageState]:
        if not reply:
            raise UnavailableError(
                f"worker at {self.path}: expected an answer, found the connection closed", f"worker at {self.path}",
                "an answer", "the connection closed")
        try:
            document = json.loads(reply)
            code, message = document["code"], document["message"]
            # A later worker may say more of a storage.
            states = [StorageState(*(storage[name] for name in _STATE_NAMES)) for storage in document["storages"]]
        except (ValueError, KeyError, TypeError) as error:
            raise InternalError(
                f"worker at {self.path}: expected an answer of its protocol, found {reply[:100]!r}; is it of another "
                "version?", f"worker at {self.path}", "an answer of its protocol", repr(reply[:100])) from error
        if code != 0:
            raise error_of(code, message)
        return states

    def list(self) -> list[StorageState]:
        """All storages of the worker, as far as they fit into one answer of 64 KiB."""
        return self._ask({"op": "list"})[0]

    def state(self, name: str, device: str) -> StorageState:
        """A storage as it is now. NotFoundError: there is none."""
        states, descriptor, _ = self._ask({"op": "open", "storage": name, "device": device})
        os.close(descriptor)
        return states[0]

    def trim(self, name: str, device: str) -> None:
        """Frees a storage's shadow. FailedPreconditionError: an operation uses it."""
        self._ask({"op": "trim", "storage": name, "device": device})

    def delete(self, name: str, device: str) -> None:
        """Takes a storage from the worker; what has its memory keeps that. FailedPreconditionError: an operation uses
        it. NotFoundError."""
        self._ask({"op": "delete", "storage": name, "device": device})

    def storage(
        self, name: str, device: str, manifest: Manifest, mesh: Mesh | str,
        layouts: Rules | str | Layout | Mapping[str, Layout | str], *, create: bool = True,
    ) -> Storage:
        """A storage with what `device` holds of a manifest's tensors on one side, created unless it is there.

        `mesh` and `layouts` are those of a reshard's side. Raises NotFoundError for a device that is not in the mesh,
        FailedPreconditionError for a storage of another size, and, unless `create`, NotFoundError for one that is not
        there. Cost: linear in the tensors; no tensor is touched.
        """
        given = mesh if isinstance(mesh, Mesh) else Mesh(mesh)
        size, tiles = _core.storage_layout(manifest, given, planning.rules(layouts), device)
        return Storage(self, name, device, size, tiles, manifest, create)

    def gpu_storage(
        self, name: str, device: str, manifest: Manifest, mesh: Mesh | str,
        layouts: Rules | str | Layout | Mapping[str, Layout | str], *, create: bool = True, cuda_device: int = 0,
        driver: str = "libcuda.so.1",
    ) -> GpuStorage:
        """As storage(), of a device that is a GPU, which this process has as CUDA device `cuda_device` and whose
        context is current; `create` is as there. `driver` is CUDA's library. FailedPreconditionError: the driver does
        not map it here."""
        from crossmesh.gpu_memory import GpuStorage

        given = mesh if isinstance(mesh, Mesh) else Mesh(mesh)
        size, tiles = _core.storage_layout(manifest, given, planning.rules(layouts), device)
        return GpuStorage(cuda_device, driver, self, name, device, size, tiles, manifest, create)

    def __repr__(self) -> str:
        return f"<WorkerMemory at {self.path}>"


@_arguments.checked
def worker_memory(path: str | os.PathLike[str], timeout: float = 10.0) -> WorkerMemory:
    """The memory of the worker of this host that was started with `--memory-socket PATH`, of which `path` is this. It
    is asked when something is wanted, for at most `timeout` seconds: UnavailableError, DeadlineExceededError then."""
    return WorkerMemory(os.fspath(path), timeout)


@dataclass(frozen=True)
class Tile:
    """A part of a tensor in a storage: the box that it is, and an array over the storage's memory.

    Array libraries take it as it is: `numpy.asarray(tile)`, `torch.from_dlpack(tile)`, `memoryview(tile.array)`. `box`
    is what indexes the whole tensor; `offset` is where the tile begins in the storage, in bytes. It is of one
    generation of the storage; `array` raises FailedPreconditionError once that is over. Arrays that were taken before
    then keep the old memory, which the worker uses for the version after next.
    """

    storage: Storage
    tensor: str
    dtype: str
    box: tuple[slice, ...]
    offset: int
    generation: int

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """Of the box."""
        return tuple(interval.stop - interval.start for interval in self.box)

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """Over the storage's memory, in the shape of the box: what is written to it is in the storage.

        FailedPreconditionError: its generation is over.
        """
        found: numpy.ndarray[Any, Any] = self.storage._array(self)
        return found

    def torch(self) -> Any:
        """The same memory as a torch tensor, of torch's own type also for BF16 and F8. Needs torch."""
        return torch_tensor(self.array, self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        found = numpy.array(self.array, dtype) if copy else numpy.asarray(self.array, dtype)
        if copy is False and found.size and not numpy.may_share_memory(found, self.array):
            raise ValueError(f"tile of {self.dtype}: expected elements of {dtype} without a copy, found none")
        return found

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # host memory


@_arguments.checked
class Storage:
    """A storage of a worker, mapped into this process, by WorkerMemory.storage(). A mapping of tensors' names.

    `bytes` is its size. It is of one generation: after a commit the worker has the next version in other memory, and
    everything here raises FailedPreconditionError until refresh(). Thread-compatible. In a process that was forked off,
    arrays see the same memory.
    """

    _tile: type[Tile] = Tile

    def __init__(
        self, memory: WorkerMemory, name: str, device: str, size: int,
        tiles: Mapping[str, tuple[int, str, tuple[tuple[slice, ...], ...]]], manifest: Manifest, create: bool,
    ):
        self.memory = memory
        self.name = name
        self.device = device
        self.bytes = size
        self._tiles = tiles
        self._manifest = manifest
        self._file: tuple[int, int] | None = None  # that is mapped
        self._open({"op": "create", "bytes": size} if create else {"op": "open"})

    def _open(self, request: Mapping[str, Any]) -> None:
        states, descriptor, pid = self.memory._ask({**request, "storage": self.name, "device": self.device})
        try:
            state = states[0]
            if state.bytes != self.bytes:
                raise FailedPreconditionError(
                    f"{self._text()}: expected {self.bytes} bytes, found {state.bytes}; it was made for another "
                    "manifest, mesh or layouts: delete and create it", self._text(), f"{self.bytes} bytes",
                    f"{state.bytes}")
            self._map_memory(state, descriptor)
        finally:
            os.close(descriptor)
        self._generation = state.generation
        self._peer = _Peer(pid)
        self._words = self._sequence()

    def _map_memory(self, state: StorageState, descriptor: int) -> None:
        if state.gpu:
            raise UnimplementedError(
                f"{self._text()}: expected host memory, found that of GPU {state.gpu}; gpu_storage() maps it",
                self._text(), "host memory", f"that of GPU {state.gpu}")
        found = os.fstat(descriptor)
        # After an operation in place the memory is the same: mapping it anew would touch every page again.
        if (found.st_dev, found.st_ino) != self._file:
            # None: what holds nothing has no memory.
            self._map = mmap.mmap(descriptor, self.bytes) if self.bytes else None
            self._file = (found.st_dev, found.st_ino)

    def _sequence(self) -> mmap.mmap:
        _, descriptor, _ = self.memory._ask({"op": "sequence", "storage": self.name, "device": self.device})
        try:
            return mmap.mmap(descriptor, _PAGE_BYTES, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)

    def _text(self) -> str:
        return f'storage "{self.name}" of device {self.device}'

    @property
    def generation(self) -> int:
        """Of what is mapped here."""
        return self._generation

    def state(self) -> StorageState:
        """As the worker has it now, DIRTY or not."""
        return self.memory.state(self.name, self.device)

    def refresh(self) -> Storage:
        """Maps the latest generation, and returns itself. Tiles and arrays of the one before stay what they were."""
        try:
            self.check()  # takes no call
        except (FailedPreconditionError, UnavailableError):
            self._open({"op": "open"})
        return self

    def check(self) -> None:
        """Raises unless what is mapped is the storage's latest generation, of a worker that lives. Takes no call.

        FailedPreconditionError: another generation has been committed. UnavailableError: the worker's process has
        ended, and with it the storage.
        """
        if self._peer.has_ended():
            raise UnavailableError(
                f"{self._text()}: expected the worker that it was opened at (process {self._peer.pid}), found that it "
                "has ended; storages in host memory end with their worker: create it again at the new one, and fill it",
                self._text(), f"the worker of process {self._peer.pid}", "that it has ended")
        self._check_generation(struct.unpack_from("<Q", self._words, _GENERATION_AT)[0])

    def _check_generation(self, now: int) -> None:
        if now != self._generation:
            found = f"generation {now}" if now else "that it was deleted"
            raise FailedPreconditionError(
                f"{self._text()}: expected generation {self._generation}, found {found}; refresh() maps the latest one",
                self._text(), f"generation {self._generation}", found)

    def tiles(self, tensor: str) -> tuple[Tile, ...]:
        """What the device holds of a tensor, box by box in the order of memory. NotFoundError: it holds nothing."""
        return self._tiles_now(tensor)

    def _tiles_now(self, tensor: str) -> tuple[Tile, ...]:
        self.check()
        if tensor not in self._tiles:
            raise NotFoundError(
                f'tensor "{tensor}": expected one that {self._text()} has a part of, found none',
                f'tensor "{tensor}"', f"one that {self._text()} has a part of", "none")
        return self._tiles_of(tensor)

    def _tiles_of(self, tensor: str) -> tuple[Tile, ...]:
        offset, dtype, boxes = self._tiles[tensor]
        tiles = []
        for box in boxes:
            tiles.append(self._tile(self, tensor, dtype, box, offset, self._generation))
            offset += math.prod(tiles[-1].shape) * numpy_type(dtype).itemsize
        return tuple(tiles)

    def _array(self, tile: Tile) -> Any:
        self.check()
        if tile.generation != self._generation:
            raise FailedPreconditionError(
                f'tile of tensor "{tile.tensor}": expected generation {self._generation}, found generation '
                f"{tile.generation}; take it from the storage again", f'tile of tensor "{tile.tensor}"',
                f"generation {self._generation}", f"generation {tile.generation}")
        return self._mapped(tile)

    def _mapped(self, tile: Tile) -> Any:
        kind = numpy_type(tile.dtype)
        count = math.prod(tile.shape)
        if count == 0:
            return numpy.empty(tile.shape, kind)
        assert self._map is not None  # a storage without memory has no element
        return numpy.frombuffer(self._map, kind, count, tile.offset).reshape(tile.shape)

    def __getitem__(self, tensor: str) -> numpy.ndarray[Any, Any]:
        """The array of a tensor's tile. UnimplementedError: it has several boxes, which tiles() gives."""
        tiles = self._tiles_now(tensor)
        if len(tiles) != 1:
            raise UnimplementedError(
                f'tensor "{tensor}": expected a tile of one box, found {len(tiles)}; tiles() has each',
                f'tensor "{tensor}"', "a tile of one box", str(len(tiles)))
        return tiles[0].array

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._tiles

    def __iter__(self) -> Iterator[str]:
        return iter(self._tiles)

    def __len__(self) -> int:
        return len(self._tiles)

    def fill(self, values: Mapping[str, Any]) -> None:
        """Writes every tile from `values`, by name. A value is the whole tensor, of which the boxes are taken, or this
        device's tile of one box: an array, a torch tensor in host memory, or a DTensor, of which the local tensor is
        taken, also where it is several boxes.

        InvalidArgumentError names the tensor that lacks, or has another shape or type; then nothing is written.
        """
        for target, source in self._pairs(values):
            self._copy(target, source)
        self._copied()

    def read(self, values: Mapping[str, Any]) -> None:
        """Copies every tile into `values`, in place; what these may be is as for fill. A whole tensor gets the boxes
        that this device holds.

        InvalidArgumentError as of fill, and for what has no memory that may be written, such as a list, an array that
        may only be read, or one of JAX; then nothing is written.
        """
        for source, target in self._pairs(values, written=True):
            self._copy(target, source)
        self._copied()

    def _target(self, tile: Tile) -> Any:
        """The storage's side of a copy."""
        return self._mapped(tile)

    def _value(self, name: str, value: Any, dtype: str, written: bool) -> Any:
        """The other side; where it is to be written, over the value's own memory."""
        return _array_of(name, value, dtype, written)

    def _is_one_piece(self, local: Any) -> bool:
        return bool(local.flags.c_contiguous)

    def _copy(self, target: Any, source: Any) -> None:
        """Of elements of one type."""
        if target.nbytes >= _STREAMED_BYTES_MIN and target.flags.c_contiguous and source.flags.c_contiguous:
            _core.copy_bytes(target.reshape(-1).view(numpy.uint8), source.reshape(-1).view(numpy.uint8))
        else:
            target[...] = source

    def _copied(self) -> None:
        """Returns when all that was to be copied is there."""

    def _pairs(self, values: Mapping[str, Any], written: bool = False) -> list[tuple[Any, Any]]:
        """By box the storage's array, and the part of the value, which may be written, that is the same box."""
        self.check()  # once for all of them
        pairs = []
        for name in self._tiles:
            tiles = self._tiles_of(name)
            if name not in values:
                raise _refused(name, "a value", "none")
            given = self._value(name, values[name], tiles[0].dtype, written)
            whole = tuple(self._manifest[name].shape)
            if hasattr(values[name], "to_local") and given.shape != whole and len(tiles) > 1:
                pairs += self._pairs_of_local(name, tiles, given)
            elif given.shape == whole:
                pairs += [(self._target(tile), _part_of(given, tile.box)) for tile in tiles]
            elif len(tiles) == 1 and given.shape == tiles[0].shape:
                pairs.append((self._target(tiles[0]), given))
            else:
                expected = f"shape {list(whole)} or that of its tile, {[list(tile.shape) for tile in tiles]}"
                raise _refused(name, expected, str(list(given.shape)))
        return pairs

    def _pairs_of_local(self, name: str, tiles: tuple[Tile, ...], local: Any) -> list[tuple[Any, Any]]:
        """What a DTensor has here, which are the boxes of its tile one after the other, in memory of one piece."""
        counts = [math.prod(tile.shape) for tile in tiles]
        size, is_one_piece = math.prod(local.shape), self._is_one_piece(local)
        if not is_one_piece or size != sum(counts):
            found = f"{size} in {'one piece' if is_one_piece else 'pieces'}"
            raise _refused(name, f"{sum(counts)} elements in one piece", found)
        pairs, first = [], 0
        for tile, count in zip(tiles, counts, strict=True):
            pairs.append((self._target(tile), local.reshape(-1)[first:first + count].reshape(tile.shape)))
            first += count
        return pairs

    def __repr__(self) -> str:
        return f"<Storage {self.name!r} of {self.device}: {len(self)} tensors, generation {self._generation}>"


def _part_of(whole: Any, box: tuple[Any, ...]) -> Any:
    place = (*box, ...)  # so that of a scalar it is an array as well
    return whole[place]


def _array_of(name: str, value: Any, dtype: str, written: bool) -> numpy.ndarray[Any, Any]:
    """An array of the value's elements; where it is to be written, over the value's own memory. Raises
    InvalidArgumentError for another type of elements, and for memory that is not like that."""
    if hasattr(value, "to_local"):  # a DTensor
        with importlib.import_module("torch").no_grad():  # else autograd takes part in it
            value = value.to_local()
    kind = numpy_type(dtype)
    if type(value).__module__.partition(".")[0] == "torch":
        if value.device.type != "cpu":
            raise _refused(name, "memory of the host", f"that of {value.device}")
        value = value.detach()
        if dtype in _RAW_NAMES and _dtypes.name_of(f'tensor "{name}"', value.dtype) == dtype:
            torch = importlib.import_module("torch")
            return value.view(getattr(torch, f"int{8 * kind.itemsize}")).numpy().view(kind)  # type: ignore[no-any-return]
        try:
            value = value.numpy()
        except TypeError as error:  # elements that numpy does not have
            raise _refused(name, f"elements of {dtype} ({kind})", str(value.dtype)) from error
    found = checked_array(name, value, written)
    if found.dtype != kind:
        raise _refused(name, f"elements of {dtype} ({kind})", str(found.dtype))
    return found


def checked_array(name: str, value: Any, written: bool) -> numpy.ndarray[Any, Any]:
    """What numpy makes of a value. Raises InvalidArgumentError for what it makes nothing of, and, where it is to be
    written, for what has no memory that may be."""
    try:
        found = numpy.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _refused(name, "an array", f"{type(value).__name__}, of which numpy makes none: {error}") from error
    if not written or found.size == 0:
        return found
    # What has memory gives the same one each time, what has none a copy.
    if found is not value and not numpy.may_share_memory(found, numpy.asarray(value)):
        raise _refused(name, "an array or a tensor, which is written in place", type(value).__name__)
    if not found.flags.writeable:
        raise _refused(name, "memory that may be written", f"{type(value).__name__} that may only be read")
    return found


def _refused(name: str, expected: str, found: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f'tensor "{name}": expected {expected}, found {found}', f'tensor "{name}"', expected, found)
