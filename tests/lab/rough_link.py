"""A link of the network lab that delays, loses and reorders what goes through it, which kernels without netem cannot.

Frames of one host pass through a program, between two interfaces that it makes:

    port of the host - bridge - TAP - this program - TAP - core bridge

    rough_link.py TAP TAP DELAY_SECONDS JITTER_SECONDS LOSS SEED

The program runs in the switch's namespace. What comes to one TAP leaves by the other after the delay and up to the
jitter, each frame for itself, unless it is lost, with that probability. At SIGTERM it prints how many frames came, how
many of them it lost, and how many were overtaken by one that had come later.
"""

import fcntl
import heapq
import os
import pathlib
import random
import select
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

from network import Network, inside, run

# Containers seldom have it.
TUN = pathlib.Path("/dev/net/tun")
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME_BYTES_MAX = 1 << 16


@dataclass(frozen=True)
class Roughness:
    """Of each direction."""

    delay_seconds: float = 0
    jitter_seconds: float = 0
    loss: float = 0


@dataclass(frozen=True)
class Frames:
    came: int
    lost: int
    overtaken: int


class RoughLink:
    """Of the first NIC of a host, until it ends, when nothing passes any more. One for each host."""

    def __init__(self, network: Network, host: str, roughness: Roughness, seed: int):
        self.network = network
        near, far, bridge = (f"{part}{network.numbers[host]}" for part in ("near", "far", "rough"))
        own = [sys.executable, "-B", __file__, near, far, str(roughness.delay_seconds), str(roughness.jitter_seconds),
               str(roughness.loss), str(seed)]
        self.program = subprocess.Popen(inside(network.switch, own), stdout=subprocess.PIPE, text=True)
        if self.program.stdout.readline() != "ready\n":
            raise OSError(f"rough link of {host}: it ended with {self.program.wait()}")
        port = network.port(host, 0)
        run(["ip", "-n", network.switch, "-batch", "-"],
            f"link add {bridge} type bridge\nlink set {bridge} up\n"
            f"link set {near} master {bridge} up\nlink set {far} master core up\n"
            f"link set {port} nomaster\nlink set {port} master {bridge}\n")

    def end(self) -> Frames:
        self.program.terminate()
        return Frames(*map(int, self.program.communicate()[0].split()))


def open_tap(name: str) -> int:
    tap = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def receive(tap: int) -> list[bytes]:
    frames = []
    try:
        while True:
            frames.append(os.read(tap, FRAME_BYTES_MAX))
    except OSError:  # no more, or the interface is not up yet
        return frames


def send(tap: int, frame: bytes) -> None:
    try:
        os.write(tap, frame)
    except OSError:
        pass  # lost, as on any link


class Passage:
    def __init__(self, taps: tuple[int, int], roughness: Roughness, chance: random.Random):
        self.taps, self.roughness, self.chance = taps, roughness, chance
        self.waiting: list[tuple[float, int, int, bytes]] = []  # when due, number, to which TAP, the frame
        self.came = self.lost = self.overtaken = 0
        self.last = dict.fromkeys(taps, 0)  # number that left by a TAP

    def run(self) -> None:
        while True:
            pause = max(0.0, self.waiting[0][0] - time.monotonic()) if self.waiting else None
            for tap in select.select(self.taps, (), (), pause)[0]:
                self.take(tap)
            while self.waiting and self.waiting[0][0] <= time.monotonic():
                _, number, other, frame = heapq.heappop(self.waiting)
                self.overtaken += number < self.last[other]
                self.last[other] = max(number, self.last[other])
                send(other, frame)

    def take(self, tap: int) -> None:
        other = self.taps[1 - self.taps.index(tap)]
        now = time.monotonic()
        for frame in receive(tap):
            self.came += 1
            if self.chance.random() < self.roughness.loss:
                self.lost += 1
                continue
            due = now + self.roughness.delay_seconds + self.chance.random() * self.roughness.jitter_seconds
            heapq.heappush(self.waiting, (due, self.came, other, frame))


def main() -> None:
    near, far, delay, jitter, loss, seed = sys.argv[1:]
    taps = (open_tap(near), open_tap(far))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    passage = Passage(taps, Roughness(float(delay), float(jitter), float(loss)), random.Random(int(seed)))
    print("ready", flush=True)
    try:
        passage.run()
    finally:
        print(passage.came, passage.lost, passage.overtaken)


if __name__ == "__main__":
    main()
