#!/usr/bin/env python3
"""What TCP itself does between processes of this host: each sends to the next one and receives from the one before, as
many bytes as a rank of an all-gather, from memory to memory, and does nothing else. No collective over TCP is faster.

    tcp_streams.py [--devices 4] [--mebibytes 256] [--repeats 5]

Prints a line of JSON, like the collectives beside it.
"""

import argparse
import json
import multiprocessing
import socket
import statistics
import threading
import time

CHUNK = 1 << 20


def send_all(connection: socket.socket, array: memoryview) -> None:
    for begin in range(0, len(array), CHUNK):
        connection.sendall(array[begin:begin + CHUNK])


def receive_all(connection: socket.socket, array: memoryview) -> None:
    begin = 0
    while begin < len(array):
        received = connection.recv_into(array[begin:begin + CHUNK])
        if received == 0:
            raise ConnectionError("the stream ended early")
        begin += received


class Rank:
    """A process of the ring."""

    def __init__(self, rank: int, size: int, options: argparse.Namespace, ports, seconds, barrier):
        self.rank, self.options, self.seconds, self.barrier = rank, options, seconds, barrier
        listener = socket.create_server(("127.0.0.1", 0))
        ports[rank] = listener.getsockname()[1]
        barrier.wait()
        self.to_next = socket.create_connection(("127.0.0.1", ports[(rank + 1) % options.devices]))
        self.from_last, _ = listener.accept()
        self.to_next.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent, self.received = (memoryview(bytearray(b"\1" * size)) for _ in range(2))

    def run(self) -> list[float]:
        measured = []
        for repeat in range(1 + self.options.repeats):
            self.barrier.wait()
            begin = time.monotonic()
            sender = threading.Thread(target=send_all, args=(self.to_next, self.sent))
            sender.start()
            receive_all(self.from_last, self.received)
            sender.join()
            self.seconds[self.rank] = time.monotonic() - begin
            self.barrier.wait()
            if repeat > 0:
                measured.append(max(self.seconds))
        return measured


def run_rank(rank: int, size: int, options: argparse.Namespace, shared: tuple) -> None:
    measured = Rank(rank, size, options, *shared).run()
    if rank == 0:
        seconds = statistics.median(measured)
        print(json.dumps({"collective": "streams", "devices": options.devices, "mebibytes": options.mebibytes,
                          "link": "tcp", "checksums": False, "seconds": seconds,
                          "bytes_per_second": size / seconds}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    size = (options.mebibytes << 20) // options.devices * (options.devices - 1)
    shared = (multiprocessing.Array("i", options.devices), multiprocessing.Array("d", options.devices),
              multiprocessing.Barrier(options.devices))
    ranks = [multiprocessing.Process(target=run_rank, args=(rank, size, options, shared))
             for rank in range(options.devices)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    if any(rank.exitcode != 0 for rank in ranks):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
