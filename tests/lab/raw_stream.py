"""One plain TCP stream between two hosts of a network: what a shaped link carries at best.

    raw_stream.py send|receive ADDRESS BYTES DEVICE
"""

import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from network import MEGABIT, Network, inside

PORT = 7000
PIECE = 256 << 10


@dataclass(frozen=True)
class RawStream:
    rate_share: float  # payload bytes per second of the shaped rate
    counted_share: float  # bytes that the kernel counts, per payload byte


def bound_socket(device: str) -> socket.socket:
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
    return stream


def receive(address: str, size: int, device: str) -> None:
    """Prints the bytes per second between the first piece and the last, so that no hand-shake counts."""
    with bound_socket(device) as server:
        server.bind((address, PORT))
        server.listen()
        print("ready", flush=True)
        stream, _ = server.accept()
        buffer = memoryview(bytearray(PIECE))
        first = stream.recv_into(buffer)
        begin, left = time.monotonic(), size - first
        while left > 0 and (got := stream.recv_into(buffer)) > 0:
            left -= got
        print(json.dumps((size - first) / (time.monotonic() - begin)), flush=True)


def send(address: str, size: int, device: str) -> None:
    with bound_socket(device) as stream:
        stream.connect((address, PORT))
        piece = bytes(PIECE)
        for _ in range(size // PIECE):
            stream.sendall(piece)
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)  # until all has arrived


def measure(network: Network, sender: str, receiver: str, size: int, nic: int = 0) -> RawStream:
    """From a NIC of a host to that of the same number of another."""
    before = network.counters()
    arguments = [network.address(receiver, nic), str(size), f"eth{nic}"]
    command = [sys.executable, __file__]
    with subprocess.Popen(inside(network.namespace(receiver), [*command, "receive", *arguments]),
                          stdout=subprocess.PIPE, text=True) as server:
        server.stdout.readline()
        subprocess.run(inside(network.namespace(sender), [*command, "send", *arguments]), check=True)
        rate = json.loads(server.stdout.readline())
    used = network.counters()[sender, nic] - before[sender, nic]
    shaped = min(network.hosts[sender].nics[nic].out_rate, network.hosts[receiver].nics[nic].in_rate) * MEGABIT
    return RawStream(rate / shaped, used.sent / size)


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), sys.argv[4])
