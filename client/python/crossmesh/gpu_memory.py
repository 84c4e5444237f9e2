"""Storages in the memory of a GPU, mapped into this process: what a device holds, as tensors of torch without a copy::

    storage = crossmesh.worker_memory(path).gpu_storage("weights", "node-a.1", manifest, mesh, layouts)
    storage.fill(model.state_dict())
    weight = storage.tiles("layers.0.weight")[0].torch()

The GPU's context must be current, as it is after torch.cuda.init(). The driver is called by crossmesh_memory.py
(docs/gpu.md), which is among the package's files.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

from crossmesh import _dtypes, memory, programs
from crossmesh.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnimplementedError

__all__ = ["GpuStorage", "GpuTile"]


@functools.cache
def _crossmesh_memory() -> ModuleType:
    path = programs.share() / "crossmesh_memory.py"
    spec = importlib.util.spec_from_file_location("crossmesh_memory", path)
    if spec is None or spec.loader is None or not path.exists():
        raise NotFoundError(f"{path}: expected a file of the package, found none", str(path), "a file", "none")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Mapped:
    """Memory of a GPU, which is unmapped when no tensor is over it any more, and the GPU has done what was queued."""

    def __init__(self, driver: Any, descriptor: int, size: int, cuda_device: int):
        self._driver = driver
        self._memory = _crossmesh_memory().Memory.take(driver, descriptor, size, cuda_device)

    @property
    def address(self) -> int:
        return int(self._memory.address)

    @property
    def size(self) -> int:
        return int(self._memory.size)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        kind, number = self._memory.dlpack_device
        return kind, number

    def __del__(self) -> None:
        # Left as it is at the interpreter's end, with which it goes, and where the driver cannot say that all is done.
        if sys.is_finalizing() or not hasattr(self, "_memory"):
            return
        with contextlib.suppress(_crossmesh_memory().Error):
            self._driver.call("cuCtxSynchronize")
            self._memory.close()


@dataclass(frozen=True)
class GpuTile(memory.Tile):
    """A part of a tensor in a storage of a GPU: torch(), DLPack and, but for BF16 and F8, `__cuda_array_interface__`.

    A tensor that was taken before another version was committed keeps the memory of its own.
    """

    @property
    def array(self) -> NoReturn:
        """UnimplementedError: arrays of numpy are over host memory."""
        raise self._refused()

    def _refused(self) -> UnimplementedError:
        return UnimplementedError(
            f'tile of tensor "{self.tensor}": expected host memory, found that of a GPU; torch() and DLPack have it',
            f'tile of tensor "{self.tensor}"', "host memory", "that of a GPU")

    def torch(self) -> Any:
        """The same memory as a torch tensor."""
        return importlib.import_module("torch").from_dlpack(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise self._refused()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found: dict[str, Any] = self.storage._array(self).__cuda_array_interface__
        return found

    def __dlpack__(self, **options: Any) -> Any:
        return self.storage._array(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self.storage._array(self).__dlpack_device__()
        return kind, number


class GpuStorage(memory.Storage):
    """A storage in a GPU's memory, by WorkerMemory.gpu_storage(): as Storage, with tiles that are GpuTile.

    fill() and read() take torch tensors and DTensors on any device, and arrays; they return when the GPU has done it.
    """

    _tile = GpuTile

    def __init__(self, cuda_device: int, driver: str, *storage: Any):
        self._cuda_device = cuda_device
        self._driver = _crossmesh_memory().Driver(driver)
        super().__init__(*storage)

    def _map_memory(self, state: memory.StorageState, descriptor: int) -> None:
        if not state.gpu:
            raise FailedPreconditionError(
                f"{self._text()}: expected memory of a GPU, found that of a host; storage() maps it", self._text(),
                "memory of a GPU", "that of a host")
        try:
            self._memory = _Mapped(self._driver, descriptor, self.bytes, self._cuda_device) if self.bytes else None
        except _crossmesh_memory().Error as error:
            raise FailedPreconditionError(
                f"{self._text()} of GPU {state.gpu}: expected that CUDA device {self._cuda_device} maps it, found "
                f"{error}; is that the same GPU, and its context current, as after torch.cuda.init()?", self._text(),
                f"that CUDA device {self._cuda_device} maps it", str(error)) from error

    def _mapped(self, tile: memory.Tile) -> Any:
        """By DLPack and __cuda_array_interface__."""
        if self._memory is None:
            return _crossmesh_memory().Tensor(_Nothing(self._cuda_device), 0, tile.shape, tile.dtype)
        return _crossmesh_memory().Tensor(self._memory, tile.offset, tile.shape, tile.dtype)

    def _target(self, tile: memory.Tile) -> Any:
        return importlib.import_module("torch").from_dlpack(self._mapped(tile))

    def _value(self, name: str, value: Any, dtype: str, written: bool) -> Any:
        torch = importlib.import_module("torch")
        with torch.no_grad():
            value = value.to_local() if hasattr(value, "to_local") else value
        if written and not isinstance(value, torch.Tensor):
            value = memory.checked_array(name, value, written)
        try:
            found = torch.as_tensor(value).detach()
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidArgumentError(
                f'tensor "{name}": expected what torch has a tensor of, found {type(value).__name__}: {error}',
                f'tensor "{name}"', "what torch has a tensor of", type(value).__name__) from error
        if (kind := _dtypes.name_of(f'tensor "{name}"', found.dtype)) != dtype:
            raise InvalidArgumentError(
                f'tensor "{name}": expected elements of {dtype}, found {kind}', f'tensor "{name}"',
                f"elements of {dtype}", kind)
        return found

    def _is_one_piece(self, local: Any) -> bool:
        return bool(local.is_contiguous())

    def _copy(self, target: Any, source: Any) -> None:
        target[...] = source

    def _copied(self) -> None:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            torch.cuda.synchronize(self._cuda_device)


class _Nothing:
    """Where tiles without an element are."""

    address, size = 0, 0

    def __init__(self, cuda_device: int):
        self.dlpack_device = (2, cuda_device)
