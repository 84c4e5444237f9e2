"""crossmesh_memory over the stand-in for the driver, against a worker as plain as can be.

    crossmesh_memory_test.py LIBCUDA"""

import ctypes
import gc
import json
import os
import socket
import struct
import sys
import tempfile
import threading
import unittest

import crossmesh_memory

try:
    import numpy
except ImportError:
    numpy = None

LIBRARY = None


class PlainWorker(threading.Thread):
    """Answers one client: each request by the next of `answers`, a reply and a descriptor or none."""

    def __init__(self, path, answers):
        super().__init__()
        self.requests, self.files = [], []
        self._answers = answers
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen()
        self.start()

    def run(self):
        client, _ = self._listener.accept()
        with self._listener, client:
            for storage, descriptor in self._answers:
                text, descriptors, _, _ = socket.recv_fds(client, 65536, 1)
                if not text:
                    return
                self.requests.append(json.loads(text))
                self.files.append(descriptors)
                reply = {"code": 0, "message": "", "storages": [storage], "complete": True}
                if isinstance(storage, str):
                    reply = {"code": 10, "message": storage, "storages": [], "complete": True}
                socket.send_fds(client, [json.dumps(reply).encode()], [] if descriptor is None else [descriptor])


class HostMemory:
    """As a Memory, in this process."""

    def __init__(self, size):
        self._bytes = ctypes.create_string_buffer(size)
        self.address, self.size, self.dlpack_device = ctypes.addressof(self._bytes), size, (1, 0)


class TensorTest(unittest.TestCase):
    def tearDown(self):
        gc.collect()
        self.assertEqual(crossmesh_memory._in_use, {})

    def header_of(self, capsule):
        return (ctypes.c_char * 64).from_address(crossmesh_memory._in_capsule(id(capsule), b"dltensor")).raw

    def test_a_capsule_holds_the_header_that_dlpack_says(self):
        memory = HostMemory(4096)
        memory.dlpack_device = (2, 5)
        tensor = crossmesh_memory.Tensor(memory, 64, (3, 4), "BF16")
        self.assertEqual(tensor.__dlpack_device__(), (2, 5))
        capsule = tensor.__dlpack__(stream=1)
        data, kind, device, ndim, code, bits, lanes, shape, strides, offset, context, deleter = struct.unpack(
            "=QiiiBBHQQQQQ", self.header_of(capsule))
        self.assertEqual((data, kind, device, ndim), (memory.address + 64, 2, 5, 2))
        self.assertEqual((code, bits, lanes), (4, 16, 1))
        self.assertEqual(list((ctypes.c_int64 * 2).from_address(shape)), [3, 4])
        self.assertEqual((strides, offset, context), (0, 0, 0))
        self.assertNotEqual(deleter, 0)

    def test_a_tensor_is_not_copied_and_stays_on_its_device(self):
        tensor = crossmesh_memory.Tensor(HostMemory(8), 0, (), "F64")
        tensor.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=False)
        for refused in ({"copy": True}, {"dl_device": (2, 0)}):
            with self.assertRaises(BufferError):
                tensor.__dlpack__(**refused)

    def test_a_capsule_that_nothing_takes_lets_the_memory_go(self):
        memory = HostMemory(8)
        capsule = crossmesh_memory.Tensor(memory, 0, (), "F64").__dlpack__()
        self.assertEqual(len(crossmesh_memory._in_use), 1)
        del capsule
        self.assertEqual(len(crossmesh_memory._in_use), 0)

    @unittest.skipIf(numpy is None, "without numpy")
    def test_numpy_takes_the_memory_itself_and_keeps_it(self):
        memory = HostMemory(4096)
        array = numpy.from_dlpack(crossmesh_memory.Tensor(memory, 64, (3, 4), "I32"))
        self.assertEqual((array.shape, array.dtype), ((3, 4), numpy.dtype("int32")))
        ctypes.c_int32.from_address(memory.address + 64 + 4 * 5).value = 77
        self.assertEqual(array[1, 1], 77)
        del memory
        gc.collect()
        self.assertEqual(len(crossmesh_memory._in_use), 1)
        self.assertEqual(array.sum(), 77)
        del array

    def test_the_type_of_an_array_interface_is_one_of_its_own(self):
        memory = HostMemory(4096)
        array = crossmesh_memory.Tensor(memory, 64, (3, 4), "F16").__cuda_array_interface__
        self.assertEqual(array, {"shape": (3, 4), "typestr": "<f2", "data": (memory.address + 64, False), "version": 3})
        self.assertFalse(hasattr(crossmesh_memory.Tensor(memory, 64, (3, 4), "BF16"), "__cuda_array_interface__"))

    def test_a_tensor_lies_within_its_memory(self):
        memory = HostMemory(100)
        crossmesh_memory.Tensor(memory, 92, (2,), "F32")
        for offset, shape in ((93, (2,)), (-1, (1,)), (0, (-1,)), (0, (26,))):
            with self.assertRaisesRegex(crossmesh_memory.Error, "within the memory's 100 bytes"):
                crossmesh_memory.Tensor(memory, offset, shape, "F32")
        with self.assertRaisesRegex(crossmesh_memory.Error, "data type 'bfloat16': expected one of BOOL, U8"):
            crossmesh_memory.Tensor(memory, 0, (1,), "bfloat16")


class LateStream:
    """A driver with one stream, which writes only when it is told to."""

    def __init__(self):
        self._queue = []

    def call(self, name, *arguments):
        if name == "cuMemHostGetDevicePointer_v2":
            ctypes.cast(arguments[0], ctypes.POINTER(ctypes.c_uint64))[0] = arguments[1].value
        if name == "cuStreamWriteValue64_v2":
            self._queue.append((arguments[1].value, arguments[2].value))

    def go_on(self):
        address, value = self._queue.pop(0)
        ctypes.c_uint64.from_address(address).value = value


class SequenceTest(unittest.TestCase):
    def test_a_stream_that_is_late_has_each_use_odd_until_its_own_end(self):
        page = os.memfd_create("sequence")
        os.ftruncate(page, 4096)
        stream = LateStream()
        sequence = crossmesh_memory.Sequence(stream, page)
        os.close(page)
        for _ in range(2):
            with sequence.use(7):
                self.assertEqual(sequence.user, 1)
        with self.assertRaisesRegex(crossmesh_memory.Error, "found the sequence at 1 of 4: wait"):
            sequence.begin()
        found = []
        for _ in range(3):
            with self.assertRaises(TimeoutError):
                sequence.wait(timeout=0)
            stream.go_on()
            found.append(sequence.user)
        # The end of the first, the begin and the end of the second.
        self.assertEqual(found, [2, 3, 4])
        sequence.wait(timeout=0)
        with sequence.use():
            self.assertEqual(sequence.user, 5)
        self.assertEqual(sequence.user, 6)
        sequence.close()


class MemoryTest(unittest.TestCase):
    def setUp(self):
        self.driver = crossmesh_memory.Driver(LIBRARY)
        self.driver.call("cuInit", 0)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def ask(self, answers, use):
        path = os.path.join(self.folder.name, "memory")
        plain = PlainWorker(path, answers)
        worker = crossmesh_memory.Worker(path, self.driver)
        try:
            use(worker)
        finally:
            worker.close()
            plain.join()
        return plain

    def test_a_storage_is_mapped_as_an_array_of_bytes_over_the_same_memory(self):
        own = crossmesh_memory.Memory.allocate(self.driver, 100, 0)
        self.assertEqual(own.size, self.driver.granularity(0))
        ctypes.memmove(own.address, b"weights", 7)
        descriptor = own.export()

        def use(worker):
            storage = worker.open("weights", "a.1")
            array = storage.__cuda_array_interface__
            self.assertEqual((array["shape"], array["typestr"], array["version"]), ((100,), "|u1", 3))
            address, is_read_only = array["data"]
            self.assertFalse(is_read_only)
            self.assertNotEqual(address, own.address)
            self.assertEqual(ctypes.string_at(address, 7), b"weights")
            ctypes.memmove(address, b"W", 1)
            self.assertEqual(ctypes.string_at(own.address, 7), b"Weights")
            tensor = storage.tensor(4, (2, 3), "F32")
            self.assertEqual(tensor.__cuda_array_interface__["data"], (address + 4, False))
            self.assertEqual(tensor.__dlpack_device__(), (2, 0))
            storage.close()
            storage.close()

        plain = self.ask([({"storage": "weights", "bytes": 100}, descriptor)], use)
        self.assertEqual(plain.requests, [{"op": "open", "storage": "weights", "device": "a.1"}])
        os.close(descriptor)
        own.close()

    def test_memory_is_lent_by_descriptor_and_bound_by_a_sealed_list(self):
        own = crossmesh_memory.Memory.allocate(self.driver, 100, 0)

        def use(worker):
            self.assertEqual(worker.lend("pool", "a.1", own)["generation"], 1)
            bound = worker.bind("weights", "a.1", 64, ["pool"], [(0, 64, 0, 512)], generation=3)
            self.assertEqual(bound["generation"], 4)

        plain = self.ask([({"generation": 1}, None), ({"generation": 4}, None)], use)
        self.assertEqual(plain.requests[0], {"op": "lend", "storage": "pool", "device": "a.1", "bytes": own.size})
        self.assertEqual(os.fstat(plain.files[0][0]).st_size, own.size)
        self.assertEqual(plain.requests[1], {"op": "bind", "storage": "weights", "device": "a.1", "bytes": 64,
                                             "generation": 3})
        self.assertEqual(json.loads(os.pread(plain.files[1][0], 1000, 0)),
                         {"allocations": ["pool"], "pieces": [[0, 64, 0, 512]]})
        with self.assertRaises(PermissionError):
            os.pwrite(plain.files[1][0], b"x", 0)
        for (descriptor,) in plain.files:
            os.close(descriptor)
        own.close()

    def make_context_current(self):
        context = ctypes.c_void_p()
        self.driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.driver.call("cuCtxSetCurrent", context)

    def allocate_plain(self, size):
        address = ctypes.c_uint64()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.addCleanup(self.driver.call, "cuMemFree_v2", address)
        return address.value

    def test_tensors_of_cuda_malloc_are_bound_by_one_handle_for_each_block(self):
        self.make_context_current()
        first, second = self.allocate_plain(1 << 20), self.allocate_plain(4096)
        tensors = [(16 * i, 16, first + 20 * i) for i in range(50_000)] + [(800_000, 8, second + 64)]

        def use(worker):
            self.assertEqual(worker.bind_tensors("weights", "a.1", 800_008, tensors)["generation"], 1)

        plain = self.ask([({}, None), ({}, None), ({"generation": 1}, None), ({}, None), ({}, None)], use)
        for request, name, address, size in zip(plain.requests, ("weights#0", "weights#1"), (first, second),
                                                (1 << 20, 4096)):
            self.assertEqual(request, {"op": "lend", "storage": name, "device": "a.1", "bytes": size,
                                       "ipc_handle": self.driver.ipc_handle(address).hex()})
        self.assertEqual(plain.requests[2]["op"], "bind")
        (descriptor,) = plain.files[2]
        pieces = json.loads(os.pread(descriptor, 1 << 24, 0))
        os.close(descriptor)
        self.assertEqual(pieces["allocations"], ["weights#0", "weights#1"])
        self.assertEqual(pieces["pieces"][7], [112, 16, 0, 140])
        self.assertEqual(pieces["pieces"][50_000:], [[800_000, 8, 1, 64]])
        self.assertEqual([(request["op"], request["storage"]) for request in plain.requests[3:]],
                         [("delete", "weights#0"), ("delete", "weights#1")])

    def test_a_block_that_is_refused_leaves_no_loan(self):
        self.make_context_current()
        tensors = [(0, 8, self.allocate_plain(4096)), (8, 8, self.allocate_plain(4096))]

        def use(worker):
            with self.assertRaisesRegex(crossmesh_memory.Error, "not for 4096 bytes"):
                worker.bind_tensors("weights", "a.1", 16, tensors)

        plain = self.ask([({}, None), ("not for 4096 bytes", None), ({}, None)], use)
        self.assertEqual([request["op"] for request in plain.requests], ["lend", "lend", "delete"])

    def open_sequence(self, use):
        page = os.memfd_create("sequence")
        os.ftruncate(page, 4096)
        os.pwrite(page, struct.pack("=Q", 3), 64)

        def with_sequence(worker):
            sequence = worker.sequence("weights", "a.1")
            use(sequence, lambda: struct.unpack("=Q", os.pread(page, 8, 0))[0])
            sequence.close()
            sequence.close()

        plain = self.ask([({}, page)], with_sequence)
        self.assertEqual(plain.requests, [{"op": "sequence", "storage": "weights", "device": "a.1"}])
        os.close(page)

    def test_a_sequence_is_odd_while_memory_is_used(self):
        def use(sequence, word):
            self.assertEqual((sequence.user, sequence.generation), (0, 3))
            with sequence.use():
                self.assertEqual(word(), 1)
                sequence.begin()
                self.assertEqual(word(), 1)
                with self.assertRaisesRegex(TimeoutError, "found its sequence at 1"):
                    sequence.wait(timeout=0)
            self.assertEqual(word(), 2)
            sequence.end()
            sequence.wait(timeout=0)
            with self.assertRaises(KeyError), sequence.use():
                raise KeyError("left half written")
            self.assertEqual(word(), 3)

        self.open_sequence(use)

    def test_a_stream_ends_the_use_when_its_work_is_done(self):
        self.make_context_current()
        stream = ctypes.c_void_p()
        self.driver.call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)

        def use(sequence, word):
            with sequence.use(stream.value):
                self.assertEqual(word(), 1)
            sequence.wait(timeout=60)
            self.assertEqual(word(), 2)
            with sequence.use(stream.value):
                self.assertEqual(word(), 3)
            self.driver.call("cuStreamSynchronize", stream)
            self.assertEqual(word(), 4)

        self.open_sequence(use)
        self.driver.call("cuStreamDestroy_v2", stream)

    def test_what_the_worker_refuses_is_an_error_with_its_code(self):
        def use(worker):
            with self.assertRaisesRegex(crossmesh_memory.Error, "expected generation 2, found 3") as refused:
                worker.bind("weights", "a.1", 64, [], [], generation=2)
            self.assertEqual(refused.exception.code, 10)

        self.ask([("expected generation 2, found 3", None)], use)

    def test_memory_that_is_smaller_than_it_should_be_leaves_nothing_behind(self):
        own = crossmesh_memory.Memory.allocate(self.driver, 100, 0)
        descriptor = own.export()
        with self.assertRaisesRegex(crossmesh_memory.Error, "cuMemMap: CUDA_ERROR_INVALID_VALUE"):
            crossmesh_memory.Memory.take(self.driver, descriptor, own.size + 1, 0)
        os.close(descriptor)
        own.close()

    def test_what_the_driver_refuses_is_an_error_with_its_name(self):
        with open("/dev/null", "rb") as file:
            with self.assertRaisesRegex(crossmesh_memory.Error, "cuMemImportFromShareableHandle: CUDA_ERROR_"):
                crossmesh_memory.Memory.take(self.driver, file.fileno(), 100, 0)


if __name__ == "__main__":
    LIBRARY = sys.argv.pop()
    unittest.main()
