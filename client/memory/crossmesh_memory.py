"""GPU memory that a Python process shares with the Crossmesh worker of its host; needs nothing but the CUDA driver.

    import torch, crossmesh_memory
    worker = crossmesh_memory.Worker("/run/crossmesh/node-a.memory")
    storage = worker.open("weights", "node-a.1")                # or create(name, device, size)
    bytes_of_it = torch.as_tensor(storage, device="cuda")       # by __cuda_array_interface__
    tensor = torch.from_dlpack(storage.tensor(offset, shape, "BF16"))

The GPU's context must be current, as it is after torch.cuda.init(). The memory stays mapped until close(), so call that
when no tensor uses it any more. Streams are not ordered with an operation: synchronise before one is requested, or let a
Sequence tell the worker when the memory is in use:

    sequence = worker.sequence("weights", "node-a.1")
    with sequence.use(torch.cuda.current_stream().cuda_stream):   # operations are refused until the stream is done
        tensor.copy_(...)
    sequence.wait(timeout=10)                                     # and then one may be requested"""

import contextlib
import ctypes
import fcntl
import json
import math
import mmap
import os
import socket
import time

_DEVICE_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, a POSIX descriptor
_READ_AND_WRITE = 3
_ADD_SEALS = 1033
_SHRINK_GROW_WRITE = 2 | 4 | 8
_PORTABLE_AND_MAPPED = 1 | 2  # CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP


class Error(Exception):
    """What the driver or the worker refused; `code` is the worker's, a gRPC status code, or 0."""

    def __init__(self, text, code=0):
        super().__init__(text)
        self.code = code


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location),
                ("win32", ctypes.c_void_p), ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte),
                ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


class Driver:
    """The calls of the CUDA driver by which memory is made, shared and mapped."""

    def __init__(self, library="libcuda.so.1"):
        self._library = ctypes.CDLL(library)

    def call(self, name, *arguments):
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(result, ctypes.byref(text))
            raise Error(f"{name}: {(text.value or b'unknown').decode()} ({result})")

    def properties(self, device):
        return _Properties(type=_DEVICE_PINNED, handle_types=_DEVICE_PINNED,
                           location=_Location(type=_DEVICE_PINNED, id=device))

    def granularity(self, device):
        granule = ctypes.c_size_t()
        self.call("cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(self.properties(device)), 0)
        return granule.value

    def block(self, address):
        """The allocation of cudaMalloc that has the address: where it begins, and its size."""
        begin, size = ctypes.c_uint64(), ctypes.c_size_t()
        self.call("cuMemGetAddressRange_v2", ctypes.byref(begin), ctypes.byref(size), ctypes.c_uint64(address))
        return begin.value, size.value

    def ipc_handle(self, block):
        handle = _IpcHandle()
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(block))
        return bytes(handle.reserved)


# By the names of safetensors: the code and bits of DLPack, the type of __cuda_array_interface__ if there is one.
_TYPES = {"BOOL": (6, 8, "|b1"), "U8": (1, 8, "|u1"), "I8": (0, 8, "|i1"), "I16": (0, 16, "<i2"), "I32": (0, 32, "<i4"),
          "I64": (0, 64, "<i8"), "F16": (2, 16, "<f2"), "BF16": (4, 16, None), "F32": (2, 32, "<f4"),
          "F64": (2, 64, "<f8"), "F8_E4M3": (10, 8, None)}
_CPU, _CUDA = 1, 2


class _DlTensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DlTensor))
_CapsuleEnd = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DlTensor._fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                      ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                      ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                      ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                      ("manager_ctx", ctypes.c_void_p), ("deleter", _Deleter)]

# What capsules and their takers use, by the address of the tensor: gone when its deleter is called.
_in_use = {}
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _CapsuleEnd]
# By address: a capsule that ends has no references any more, and must not get one.
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_in_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p,
                                ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


@_Deleter
def _delete(tensor):
    _in_use.pop(ctypes.addressof(tensor.contents), None)


@_CapsuleEnd
def _end_capsule(capsule):
    # Who has taken the tensor has given the capsule another name, and calls the deleter.
    if _is_capsule(capsule, b"dltensor"):
        _in_use.pop(_in_capsule(capsule, b"dltensor"), None)


class Tensor:
    """Part of a memory as an array, for __cuda_array_interface__ and DLPack; keeps the memory's object."""

    def __init__(self, memory, offset, shape, dtype):
        if dtype not in _TYPES:
            raise Error(f"data type {dtype!r}: expected one of {', '.join(_TYPES)}")
        self._code, self._bits, self._name = _TYPES[dtype]
        self.shape, self._memory, self._address = tuple(shape), memory, memory.address + offset
        size = math.prod(self.shape) * self._bits // 8
        if offset < 0 or min(self.shape, default=0) < 0 or offset + size > memory.size:
            raise Error(f"a tensor of {size} bytes at {offset}: expected it within the memory's {memory.size} bytes")

    @property
    def __cuda_array_interface__(self):
        if self._name is None:
            raise AttributeError("__cuda_array_interface__ has no such type; use DLPack")
        return {"shape": self.shape, "typestr": self._name, "data": (self._address, False), "version": 3}

    def __dlpack_device__(self):
        return self._memory.dlpack_device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule. No stream waits for another one: nothing is queued here."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("expected to be taken where it is, without a copy")
        tensor = _DlTensor(data=self._address, ndim=len(self.shape), code=self._code, bits=self._bits, lanes=1,
                           deleter=_delete)
        tensor.device_type, tensor.device_id = self._memory.dlpack_device
        shape = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        address = ctypes.addressof(tensor)
        _in_use[address] = (tensor, shape, self)
        return _new_capsule(address, b"dltensor", _end_capsule)


class Memory:
    """Mapped memory of a GPU, which torch, CuPy and Numba take as an array of bytes."""

    def __init__(self, driver, handle, size, device):
        self._driver, self._handle, self.size = driver, handle, size
        self.dlpack_device = (_CUDA, device)
        granule = driver.granularity(device)
        self._bytes = ctypes.c_size_t(max(1, -(-size // granule)) * granule)
        self._address = ctypes.c_uint64()
        self._is_mapped = False
        try:
            self._map(device)
        except Error:
            self.close()
            raise

    def _map(self, device):
        self._driver.call("cuMemAddressReserve", ctypes.byref(self._address), self._bytes, ctypes.c_size_t(0),
                          ctypes.c_uint64(0), ctypes.c_ulonglong(0))
        self._driver.call("cuMemMap", self._address, self._bytes, ctypes.c_size_t(0), self._handle,
                          ctypes.c_ulonglong(0))
        self._is_mapped = True
        access = _Access(location=_Location(type=_DEVICE_PINNED, id=device), flags=_READ_AND_WRITE)
        self._driver.call("cuMemSetAccess", self._address, self._bytes, ctypes.byref(access), ctypes.c_size_t(1))

    @classmethod
    def allocate(cls, driver, size, device):
        """Memory that can be lent; its size is a multiple of the granularity."""
        granule = driver.granularity(device)
        size = max(1, -(-size // granule)) * granule
        handle = ctypes.c_uint64()
        driver.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size),
                    ctypes.byref(driver.properties(device)), ctypes.c_ulonglong(0))
        return cls(driver, handle, size, device)

    @classmethod
    def take(cls, driver, descriptor, size, device):
        """That of another process, whose descriptor stays the caller's."""
        handle = ctypes.c_uint64()
        driver.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), _DEVICE_PINNED)
        return cls(driver, handle, size, device)

    @property
    def address(self):
        return self._address.value

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def tensor(self, offset, shape, dtype):
        """The elements from a byte on, in rows; `dtype` by its name of safetensors, such as "BF16"."""
        return Tensor(self, offset, shape, dtype)

    def export(self):
        """A descriptor of it, which the caller closes."""
        descriptor = ctypes.c_int(-1)
        self._driver.call("cuMemExportToShareableHandle", ctypes.byref(descriptor), self._handle, _DEVICE_PINNED,
                          ctypes.c_ulonglong(0))
        return descriptor.value

    def close(self):
        """Nothing uses it any more. Repeatable."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        if self._is_mapped:
            self._driver.call("cuMemUnmap", self._address, self._bytes)
        if self._address.value != 0:
            self._driver.call("cuMemAddressFree", self._address, self._bytes)
        self._driver.call("cuMemRelease", handle)


class Sequence:
    """Words in a page that a worker and one process with a storage's memory share. `user` is odd while the process uses
    the memory so that operations must keep off, which are refused then, and fail if it changes while they run.
    `generation` is that of the bytes which are there, 0 once the storage is gone."""

    _SIZE = 4096

    def __init__(self, driver, descriptor):
        self._driver, self._map, self._device_address = driver, mmap.mmap(descriptor, self._SIZE), None
        self._words = (ctypes.c_uint64 * (self._SIZE // 8)).from_buffer(self._map)
        # The last even number that `user` was or will be, once streams have done what is queued.
        self._at_rest = self._words[0] & ~1

    @property
    def user(self):
        return self._words[0]

    @property
    def generation(self):
        return self._words[8]

    def begin(self, stream=None):
        """Repeatable, without a stream. With one (a CUstream, as a number) a use may begin although that stream has not
        ended the one before yet; without one this is an error."""
        if self._words[0] >= self._at_rest:
            self._words[0] |= 1
        elif stream is not None:
            self._write(stream, self._at_rest + 1)
        else:
            raise Error("expected the former use to be over, "
                        f"found the sequence at {self.user} of {self._at_rest}: wait")

    def end(self, stream=None):
        """What was written is there for the operations that are requested next. With the stream of `begin` once all is
        done that was queued on it before; `user` is even then. Repeatable, without a stream."""
        if stream is None:
            self._words[0] += self._words[0] % 2
            self._at_rest = self._words[0]
            return
        self._at_rest += 2
        self._write(stream, self._at_rest)

    def _write(self, stream, user):
        if self._device_address is None:
            page, address = ctypes.c_void_p(ctypes.addressof(self._words)), ctypes.c_uint64()
            self._driver.call("cuMemHostRegister_v2", page, ctypes.c_size_t(self._SIZE), _PORTABLE_AND_MAPPED)
            self._driver.call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), page, 0)
            self._device_address = address
        self._driver.call("cuStreamWriteValue64_v2", ctypes.c_void_p(stream), self._device_address,
                          ctypes.c_uint64(user), 0)

    @contextlib.contextmanager
    def use(self, stream=None):
        """Begins, and ends unless the block fails: memory that was left half written stays in use until it is whole."""
        self.begin(stream)
        yield self
        self.end(stream)

    def wait(self, timeout):
        """Until the last use that was ended is over; TimeoutError after so many seconds."""
        limit = time.monotonic() + timeout
        while self.user % 2 or self.user < self._at_rest:
            if time.monotonic() > limit:
                raise TimeoutError(f"expected the storage at rest within {timeout} s, found its sequence at {self.user}")
            time.sleep(0.0002)

    def close(self):
        """Leaves the words as they are. No stream may still be about to write. Repeatable."""
        if self._words is None:
            return
        if self._device_address is not None:
            self._driver.call("cuMemHostUnregister", ctypes.c_void_p(ctypes.addressof(self._words)))
        self._words = None
        self._map.close()


class Worker:
    """The worker at a memory socket; errors are its own, by code and text."""

    def __init__(self, path, driver=None, cuda_device=0):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(path)
        self._driver = driver or Driver()
        self._cuda_device = cuda_device

    def close(self):
        self._socket.close()

    def create(self, storage, device, size):
        return self._map(self._ask({"op": "create", "storage": storage, "device": device, "bytes": size}))

    def open(self, storage, device):
        return self._map(self._ask({"op": "open", "storage": storage, "device": device}))

    def sequence(self, storage, device):
        _, descriptors = self._ask({"op": "sequence", "storage": storage, "device": device})
        with os.fdopen(descriptors[0], "rb") as file:
            return Sequence(self._driver, file.fileno())

    def lend(self, storage, device, memory):
        """Lends memory that was made by Memory.allocate."""
        descriptor = memory.export()
        try:
            return self._ask({"op": "lend", "storage": storage, "device": device, "bytes": memory.size}, descriptor)[0]
        finally:
            os.close(descriptor)

    def bind(self, storage, device, size, allocations, pieces, generation=0):
        """Pieces are (offset in the storage, bytes, index of the allocation, offset in it), ascending."""
        text = json.dumps({"allocations": list(allocations), "pieces": [list(piece) for piece in pieces]}).encode()
        with os.fdopen(os.memfd_create("crossmesh:pieces", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as file:
            file.write(text)
            file.flush()
            fcntl.fcntl(file.fileno(), _ADD_SEALS, _SHRINK_GROW_WRITE)
            return self._ask({"op": "bind", "storage": storage, "device": device, "bytes": size,
                              "generation": generation}, file.fileno())[0]

    def bind_tensors(self, storage, device, size, tensors, generation=0):
        """Binds a storage to memory of cudaMalloc where it is, such as tensors of torch; lasts as long as this worker is
        not closed. Tensors are (offset in the storage, bytes, address), ascending."""
        blocks, names, pieces = {}, [], []
        try:
            for offset, count, address in tensors:
                block, block_size = self._driver.block(address)
                if block not in blocks:
                    name = f"{storage}#{len(names)}"
                    self._ask({"op": "lend", "storage": name, "device": device, "bytes": block_size,
                               "ipc_handle": self._driver.ipc_handle(block).hex()})
                    blocks[block] = len(names)
                    names.append(name)
                pieces.append((offset, count, blocks[block], address - block))
            return self.bind(storage, device, size, names, pieces, generation)
        finally:
            # What is bound keeps its block open, and nothing else is to.
            for name in names:
                self.delete(name, device)

    def delete(self, storage, device):
        self._ask({"op": "delete", "storage": storage, "device": device})

    def _ask(self, request, descriptor=None):
        sent = [] if descriptor is None else [descriptor]
        socket.send_fds(self._socket, [json.dumps(request).encode()], sent)
        text, descriptors, _, _ = socket.recv_fds(self._socket, 65536, 1)
        reply = json.loads(text)
        if reply["code"] != 0:
            raise Error(reply["message"], reply["code"])
        storage = reply["storages"][0] if reply["storages"] else None
        return storage, descriptors

    def _map(self, answer):
        storage, descriptors = answer
        try:
            return Memory.take(self._driver, descriptors[0], storage["bytes"], self._cuda_device)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
