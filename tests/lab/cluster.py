"""Daemons on a network: a controller, one worker per host inside its namespace, and reshards between them.

Devices that are GPUs are filled and looked at through host memory of their host, as any storage on a GPU may be: by
reshards inside the host. Host memory has the device numbers after those of GPUs: a.4 is beside a.0.
"""

import datetime
import json
import mmap
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable

import contents
from cases import Case, everywhere
from gpus import GpuDevices
from layouts import Mesh, Placement, Tensor, host_of, storage_bytes
from network import MEGABIT, Network, inside

START_SECONDS = 60
DEVICES = 4  # of every host
CHUNKS = 250  # through the slowest NIC, about
CHUNK_UNIT = 1 << 16
NO_GPU = ("worker_has_no_gpus", "gpu_unavailable")  # events of workers


class ClusterError(Exception):
    """A program failed; its words."""


class Cluster:
    """Runs while its `with` block does, on a network that outlives it. `rates`: the network file's content. `gpus`: the
    devices that are GPUs; all others are host memory. `reached_at`: where workers reach the controller, on the network,
    through which it reaches them as well; by Unix sockets otherwise. `environment_of`: of a daemon, by its name."""

    def __init__(self, programs: pathlib.Path, network: Network, rates: dict, gpus: GpuDevices | None = None,
                 reached_at: str | None = None, environment_of: Callable[[str], dict[str, str]] = lambda _: {}):
        self.programs = programs
        self.network = network
        self.gpus = gpus or GpuDevices({}, (), {}, are_stand_ins=False)
        self.folder = network.folder
        self.controller = f"unix:{self.folder / 'controller.sock'}"
        self.reached_at = reached_at
        self.environment_of = environment_of
        self.topology = self.folder / "network.json"
        self.topology.write_text(json.dumps(rates))
        self.daemons: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> "Cluster":
        try:
            on_network = ["--listen", self.reached_at, "--insecure"] if self.reached_at else []
            self.start("controller", self.network.switch, ["crossmesh-controller", "--listen", self.controller,
                                                           "--topology", str(self.topology), *on_network])
            for host in self.network.hosts:
                self.start_worker(host)
            for name in self.daemons:
                self.wait_until_ready(name)
            self.wait_for_workers()
            self.wait_for_gpus()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, namespace: str, command: list[str]) -> None:
        program = [str(self.programs / command[0]), *command[1:], "--ready-file", str(self.folder / f"{name}.ready")]
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            self.daemons[name] = subprocess.Popen(inside(namespace, program), stdout=log, stderr=log,
                                                  env=os.environ | self.gpus.environment | self.environment_of(name))

    def start_worker(self, host: str) -> None:
        devices = [self.memory_beside(f"{host}.{number}") for number in range(DEVICES)]
        own = f"{self.network.address(host)}:7401" if self.reached_at else f"unix:{self.folder / host}.sock"
        flags = ["--name", host, "--devices", ",".join(devices), "--controller", self.reached_at or self.controller,
                 "--listen", own, "--memory-socket", f"{self.folder / host}.memory",
                 "--shared-memory", "off",  # namespaces share memory; hosts would not
                 "--insecure"]  # the lab's networks end in this machine
        flags += self.gpus.flags
        for device, uuid in self.gpus_of(host).items():
            flags += ["--gpu", f"{device}={uuid}"]
        for number in range(len(self.network.hosts[host].nics)):
            flags += ["--data-interface", f"eth{number}"]
        self.start(host, self.network.namespace(host), ["crossmesh-worker", *flags])

    def wait_until_ready(self, name: str) -> None:
        until = time.monotonic() + START_SECONDS
        while not (self.folder / f"{name}.ready").exists():
            if self.daemons[name].poll() is not None or time.monotonic() > until:
                raise ClusterError(f"{name} is not ready; its log:\n{self.log(name)}")
            time.sleep(0.01)

    def wait_for_workers(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            listed = self.crossmesh("worker", "list", "--controller", self.controller)["workers"]
            if sum(worker["state"].endswith("READY") for worker in listed) == len(self.network.hosts):
                return
            if time.monotonic() > until:
                raise ClusterError(f"not all workers are ready: {listed}")
            time.sleep(0.05)

    def wait_for_gpus(self) -> None:
        until = time.monotonic() + START_SECONDS
        for host in self.network.hosts:
            missing = set(self.gpus_of(host).values())
            while missing := missing - {entry["gpu"] for entry in self.events(host, "gpu_process_up")}:
                if self.events(host, *NO_GPU) or time.monotonic() > until:
                    raise ClusterError(f"{host} lacks GPUs {', '.join(sorted(missing))}; its log:\n{self.log(host)}")
                time.sleep(0.05)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def entries(self, host: str) -> list[dict]:
        """Of the log of a worker and its processes."""
        lines = self.log(host).splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def events(self, host: str, *names: str) -> list[dict]:
        return [entry for entry in self.entries(host) if entry.get("event") in names]

    def warnings(self, since: float) -> list[str]:
        """What workers have warned of since that time of the day, in seconds of the epoch."""
        return [f"{host}: {json.dumps(entry)}" for host in self.network.hosts for entry in self.entries(host)
                if entry.get("level") != "info"
                and datetime.datetime.fromisoformat(entry["time"]).timestamp() >= since]

    def nccl(self) -> list[str]:
        """What GPUs exchange tensors by: each different one, as their processes call it."""
        return sorted({entry["nccl"] for host in self.network.hosts for entry in self.events(host, "gpu_process_up")})

    def stop(self) -> None:
        for daemon in self.daemons.values():
            daemon.kill()
        for daemon in self.daemons.values():
            daemon.wait()
        self.daemons.clear()

    def command(self, *arguments: str) -> list[str]:
        return [str(self.programs / "crossmesh"), *arguments, "--json"]

    def crossmesh(self, *arguments: str) -> dict:
        """What a command prints. An operation that failed is an answer, not an error."""
        command = self.command(*arguments)
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            return json.loads(result.stdout)
        except json.JSONDecodeError:
            raise ClusterError(f"{' '.join(command)}: {result.stderr or result.stdout}") from None

    def request(self, case: Case) -> list[str]:
        """The flags that say what a case moves; writes the files that they name."""
        manifest = self.folder / "manifest.json"
        manifest.write_text(json.dumps({"tensors": [
            {"name": tensor.name, "shape": tensor.shape, "dtype": tensor.dtype} for tensor in case.tensors]}))
        flags = ["--manifest", str(manifest)]
        for name, side in (("source", case.source), ("destination", case.destination)):
            rules = self.folder / f"{name}.rules"
            rules.write_text(side.rules_text())
            flags += [f"--{name}", side.mesh.text(), f"--{name}-rules", str(rules)]
        return [*flags, "--replica-axes", case.replica_axes] if case.replica_axes else flags

    def described(self) -> list[str]:
        """For commands that ask no controller."""
        return ["--topology", str(self.topology)]

    def strategies(self, case: Case) -> list[str]:
        plans = self.crossmesh("plan", *self.request(case), *self.described(), "--all-strategies")["plans"]
        return [plan["summary"]["strategy"] for plan in plans]

    def chunk_bytes(self, case: Case) -> int:
        """So many that a chunk takes the slowest port 1/CHUNKS of the bound."""
        bound = self.crossmesh("plan", *self.request(case), *self.described())["summary"]["bound_seconds"]
        return max(1, round(bound * self.network.rates()[0] * MEGABIT / CHUNKS / CHUNK_UNIT)) * CHUNK_UNIT

    def planned_bytes(self, case: Case, *flags: str) -> dict[tuple[str, int, str], float]:
        """Through every NIC that a plan uses, by host, number and direction, `out` or `in`."""
        found = self.crossmesh("simulate", *self.request(case), *self.described(), "--ports", "1000", *flags)
        planned = {}
        for port in found["ports"]:
            if port["kind"].startswith("host_"):
                host, nic = port["name"].rsplit("/eth", 1)
                planned[host, int(nic), port["kind"].removeprefix("host_")] = port["bytes"]
        return planned

    def gpus_of(self, host: str) -> dict[str, str]:
        return {device: uuid for device, uuid in self.gpus.uuids.items() if host_of(device) == host}

    def memory_beside(self, device: str) -> str:
        """The device in host memory through which a device is filled and looked at: itself, unless it is a GPU."""
        host, number = device.rsplit(".", 1)
        return f"{host}.{int(number) + DEVICES}" if device in self.gpus.uuids else device

    def storage(self, device: str, name: str, size: int | None = None) -> mmap.mmap:
        """Memory of a worker, mapped here. With a size it is made."""
        request = {"op": "open" if size is None else "create", "storage": name, "device": device}
        if size is not None:
            request["bytes"] = size
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
            worker.connect(f"{self.folder / host_of(device)}.memory")
            worker.send(json.dumps(request).encode())
            text, descriptors, _, _ = socket.recv_fds(worker, 1 << 16, 1)
        if not descriptors:
            raise ClusterError(f"storage {name} of {device}: {text.decode()}")
        size = size if size is not None else os.fstat(descriptors[0]).st_size
        memory = mmap.mmap(descriptors[0], size)
        os.close(descriptors[0])
        return memory

    def copy(self, storage: str, size: int, source: str, destination: str) -> None:
        """Between devices of one host; the storage has the same name on both. It moves as one tensor of bytes, and is
        tried again for a while: the process of a GPU that a run has lost will be up soon."""
        sides = [Placement(Mesh((("x", 1),), (device,)), everywhere("[-]")) for device in (source, destination)]
        case = Case("copy", "copy", f"{source} to {destination}", (), (Tensor("bytes", (size,), "U8"),), *sides)
        command = ["reshard", "--controller", self.controller, *self.request(case), "--source-storage", storage,
                   "--destination-storage", storage, "--create-destination"]
        until = time.monotonic() + START_SECONDS
        while failure := self.failure(command):
            if time.monotonic() > until:
                raise ClusterError(f"copy of {storage} from {source} to {destination}: {failure}")
            time.sleep(0.2)

    def failure(self, command: list[str]) -> str | None:
        """Of an operation: why it was refused or did not commit, or None."""
        try:
            operation = self.crossmesh(*command)
        except ClusterError as error:
            return str(error)
        return None if operation.get("state", "").endswith("COMMITTED") else str(operation)

    def fill_source(self, case: Case, version: int = 0) -> None:
        """With the contents of that version."""
        for slot, device in enumerate(case.source.mesh.devices):
            size = storage_bytes(case.source, case.tensors, slot)
            beside = self.memory_beside(device)
            memory = self.storage(beside, case.name, size)
            contents.fill(memoryview(memory), case.source, case.tensors, slot, version)
            if beside != device:
                self.copy(case.name, size, beside, device)

    def wrong_element(self, case: Case, slot: int, version: int = 0) -> str | None:
        """The first one in a slot of the destination that is not of that version, or None."""
        device, name = case.destination.mesh.devices[slot], self.received_name(case)
        beside = self.memory_beside(device)
        if beside != device:
            self.copy(name, storage_bytes(case.destination, case.tensors, slot), device, beside)
        memory = self.storage(beside, name)
        return contents.wrong_element(memoryview(memory), case.destination, case.tensors, slot, version)

    def received_name(self, case: Case) -> str:
        """Of the storage that a case is moved to; its source has the case's name."""
        return case.name + ".received"

    def reshard_arguments(self, case: Case, *flags: str) -> list[str]:
        return ["reshard", "--controller", self.controller, *self.request(case), "--source-storage", case.name,
                "--destination-storage", self.received_name(case), "--create-destination", *flags]

    def reshard(self, case: Case, *flags: str) -> dict:
        """The operation as it ended."""
        return self.crossmesh(*self.reshard_arguments(case, *flags))
