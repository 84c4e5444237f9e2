"""Sends a controller the largest requests that grow most when they are parsed: its memory stays within bounds.

    amplification_test.py <build folder>

Exits with 77, which means skipped, where Python has no gRPC, or the programs have a sanitizer, which keeps what is freed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SKIPPED = 77
try:
    import grpc
except ImportError:
    print("skipped: no module grpc")
    sys.exit(SKIPPED)

CONTROLLER = pathlib.Path(sys.argv[1]).resolve() / "bin/crossmesh-controller"
MIB = 1 << 20
WITHIN_S = 60
LARGEST_BYTES = 4 * MIB - 64  # of a message of any method
AT_ONCE = 16
# Of one request, with all that the C library keeps of what was freed.
GROWTH_MAX_BYTES = 256 * MIB
METHOD = "/crossmesh.v1.ManifestService/PutManifest"
# Messages inside PutManifestRequest, as they are on the wire: two bytes make an object.
EMPTY_TENSOR = b"\x12\x00"
TENSOR_OF_EMPTY_STRINGS = b"\x12\x04\x0a\x00\x12\x00"
# Of uploads, of which each is to wait for its end: tensors of one message, with names of this length. As they are
# and parsed each takes about 3 MB.
TENSORS_PER_MESSAGE = 4096
NAME_BYTES = 250
UPLOADS = 16
BUDGET_BYTES = 16 * MIB


def largest_of(message: bytes) -> bytes:
    return message * (LARGEST_BYTES // len(message))


def varint(number: int) -> bytes:
    head, rest = number & 0x7f, number >> 7
    return bytes([head | 0x80]) + varint(rest) if rest else bytes([head])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def begin_of_manifest(name: str) -> bytes:
    """A first message, of a manifest that has one tensor more than the message."""
    tensors = (field(2, field(1, f"{i:0{NAME_BYTES}}".encode()) + field(2, b"F32")) for i in range(TENSORS_PER_MESSAGE))
    return field(1, name.encode()) + b"".join(tensors) + varint(3 << 3) + varint(TENSORS_PER_MESSAGE + 1)


def is_sanitized() -> bool:
    return b"AddressSanitizer" in CONTROLLER.read_bytes()


class ControllerTest(unittest.TestCase):
    FLAGS = ()

    def setUp(self):
        scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="amplification")))
        self.address = f"unix:{scratch}/controller"
        self.process = subprocess.Popen([CONTROLLER, "--listen", self.address, "--ready-file", scratch / "ready",
                                         *self.FLAGS], stderr=subprocess.DEVNULL)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        until = time.monotonic() + WITHIN_S
        while not (scratch / "ready").exists():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        self.before = self.peak_bytes()

    def peak_bytes(self) -> int:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(dict(line.split(":", 1) for line in status.splitlines())["VmHWM"].split()[0]) << 10

    def connect(self) -> grpc.Channel:
        # Without an option channels to one address share a connection.
        return grpc.insecure_channel(self.address, options=[("grpc.max_send_message_length", -1),
                                                            ("grpc.use_local_subchannel_pool", 1)])


class AmplificationTest(ControllerTest):
    def send(self, request: bytes) -> grpc.StatusCode:
        with self.connect() as channel:
            method = channel.stream_unary(METHOD, lambda raw: raw, lambda raw: raw)
            with self.assertRaises(grpc.RpcError) as refused:
                method(iter([request]), timeout=WITHIN_S)
            return refused.exception.code()

    def test_one_request_takes_no_more_than_a_quarter_of_a_gibibyte(self):
        for message in (EMPTY_TENSOR, TENSOR_OF_EMPTY_STRINGS):
            with self.subTest(message):
                before = self.peak_bytes()
                self.assertEqual(self.send(largest_of(message)), grpc.StatusCode.INVALID_ARGUMENT)
                self.assertLess(self.peak_bytes() - before, GROWTH_MAX_BYTES)
        # Something has grown, or the test would say nothing.
        self.assertGreater(self.peak_bytes() - self.before, 10 * LARGEST_BYTES)

    def test_many_at_once_take_no_more_than_one_for_each_processor(self):
        codes = []
        threads = [threading.Thread(target=lambda: codes.append(self.send(largest_of(EMPTY_TENSOR))))
                   for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(codes, [grpc.StatusCode.INVALID_ARGUMENT] * AT_ONCE)
        # gRPC parses on as many threads as there are processors, two at least.
        at_once = min(AT_ONCE, max(2, os.cpu_count()))
        self.assertLess(self.peak_bytes() - self.before, at_once * GROWTH_MAX_BYTES)
        self.assertIsNone(self.process.poll())


class BudgetTest(ControllerTest):
    FLAGS = ("--request-memory-max", str(BUDGET_BYTES))

    def upload(self, name: str, go_on: threading.Event) -> grpc.Future:
        channel = self.enterContext(self.connect())

        def messages():
            yield begin_of_manifest(name)
            go_on.wait()
            yield field(2, field(1, b"last") + field(2, b"F32"))
        method = channel.stream_unary(METHOD, lambda raw: raw, lambda raw: raw)
        return method.future(messages(), timeout=WITHIN_S)

    def list_meshes(self) -> None:
        with self.connect() as channel:
            channel.unary_unary("/crossmesh.v1.MeshService/ListMeshes", lambda raw: raw, lambda raw: raw)(
                b"", timeout=WITHIN_S)

    def test_uploads_beyond_the_budget_are_refused_and_others_end_well(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        uploads = [self.upload(f"m{i}", go_on) for i in range(UPLOADS)]
        # Those that have room wait for the rest of their manifest; all others have an answer.
        room = 4
        until = time.monotonic() + WITHIN_S
        while sum(upload.done() for upload in uploads) < UPLOADS - room:
            self.assertLess(time.monotonic(), until)
            self.list_meshes()
        waiting = [upload for upload in uploads if not upload.done()]
        for upload in uploads:
            if upload not in waiting:
                self.assertEqual(upload.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, upload.details())
                self.assertRegex(upload.details(), "memory of all requests.*--request-memory-max.*try again in 1s")
        self.assertEqual(len(waiting), room)
        # Beside what gRPC has of each before it is refused.
        self.assertLess(self.peak_bytes() - self.before, BUDGET_BYTES + UPLOADS * 4 * MIB)
        self.list_meshes()
        go_on.set()
        for upload in waiting:
            upload.result()
        # What was refused is taken now.
        self.upload("again", go_on).result()


if __name__ == "__main__":
    if is_sanitized():
        print("skipped: a sanitizer keeps what is freed")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
