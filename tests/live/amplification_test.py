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


def largest_of(message: bytes) -> bytes:
    return message * (LARGEST_BYTES // len(message))


def is_sanitized() -> bool:
    return b"AddressSanitizer" in CONTROLLER.read_bytes()


class AmplificationTest(unittest.TestCase):
    def setUp(self):
        scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="amplification")))
        self.address = f"unix:{scratch}/controller"
        self.process = subprocess.Popen([CONTROLLER, "--listen", self.address, "--ready-file", scratch / "ready"],
                                        stderr=subprocess.DEVNULL)
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

    def send(self, request: bytes) -> grpc.StatusCode:
        # Without an option channels to one address share a connection.
        with grpc.insecure_channel(self.address, options=[("grpc.max_send_message_length", -1),
                                                          ("grpc.use_local_subchannel_pool", 1)]) as channel:
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


if __name__ == "__main__":
    if is_sanitized():
        print("skipped: a sanitizer keeps what is freed")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
