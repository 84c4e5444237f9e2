"""Plain TCP streams between all hosts of a network at once: what an exchange of all with all takes there at best.

    raw_exchange.py NUMBER BYTES DEVICE ADDRESS...

Each of the processes, one for an address, sends so many bytes to every other one. Lines on standard input let them
connect, and begin.
"""

import socket
import subprocess
import sys
import threading
import time

from network import Network, inside
from raw_stream import PIECE, PORT, bound_socket


def receive(stream: socket.socket, size: int) -> None:
    buffer = memoryview(bytearray(PIECE))
    while size > 0 and (got := stream.recv_into(buffer)) > 0:
        size -= got


def send(stream: socket.socket, size: int) -> None:
    piece = bytes(PIECE)
    while size > 0:
        size -= stream.send(piece[:size])


def exchange(number: int, size: int, device: str, addresses: list[str]) -> None:
    """Prints the seconds between its beginning and its end."""
    with bound_socket(device) as server:
        server.bind((addresses[number], PORT))
        server.listen()
        print("ready", flush=True)
        sys.stdin.readline()
        outgoing = [bound_socket(device) for _ in addresses[1:]]
        for stream, address in zip(outgoing, addresses[:number] + addresses[number + 1:]):
            stream.connect((address, PORT))
        incoming = [server.accept()[0] for _ in addresses[1:]]
        print("connected", flush=True)
        sys.stdin.readline()
        begin = time.monotonic()
        work = [threading.Thread(target=what, args=(stream, size)) for what, streams in
                ((receive, incoming), (send, outgoing)) for stream in streams]
        for one in work:
            one.start()
        for one in work:
            one.join()
        print(time.monotonic() - begin, flush=True)


def measure_exchange(network: Network, size: int) -> float:
    """Seconds of the slowest host."""
    addresses = [network.address(host) for host in network.hosts]
    command = [sys.executable, __file__]
    running = [subprocess.Popen(inside(network.namespace(host), [*command, str(number), str(size), "eth0", *addresses]),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for number, host in enumerate(network.hosts)]
    try:
        for _ in ("ready", "connected"):
            for process in running:
                process.stdout.readline()
            for process in running:
                process.stdin.write("\n")
                process.stdin.flush()
        return max(float(process.stdout.readline()) for process in running)
    finally:
        for process in running:
            process.kill()
            process.communicate()


if __name__ == "__main__":
    exchange(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
