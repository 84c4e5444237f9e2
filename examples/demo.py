#!/usr/bin/env python3
"""The demo, `crossmesh demo`: a controller and workers on this machine, GPT-2 on one mesh, moved to another one by each
strategy, and every element compared.

It starts the daemons beside `crossmesh` and does the rest by commands that do the same for any cluster: `storage fill`,
`reshard`, `storage check`. It needs Python's standard library only.
"""

import argparse
import contextlib
import ctypes
import glob
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SHARE = pathlib.Path(__file__).resolve().parent
PROGRAMS = SHARE.parent.parent / "bin"
REPLICAS = 2
WORKERS_MAX = 64
START_SECONDS = 60
STOP_SECONDS = 5
POLL_SECONDS = 0.02
LOG_END = 1500  # characters
PR_SET_PDEATHSIG = 1
EXIT_FAILED, EXIT_MISUSED = 1, 2
MEASURED_SECONDS = 0.25
COPY_BYTES = 32 << 20  # more than caches of a core hold
BLOCK_BYTES = 1 << 20
# Every strategy finds memory in the same state, touched and cleared.
IN_PLACE, CREATE = ("--in-place",), ("--create-destination",)

EXAMPLES = """Examples:
  crossmesh demo
  crossmesh demo --strategy relay,send_recv
  crossmesh demo model.safetensors --output out
  crossmesh demo --devices gpu
The source is cut four ways as FSDP does; the destination is two replicas of two-way tensor parallelism.
"""


class DemoError(Exception):
    """What the user is told, with the API's name of the kind of error, and the exit status."""

    def __init__(self, message: str, code: str = "INTERNAL", status: int = EXIT_FAILED):
        super().__init__(message)
        self.code = code
        self.status = status


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise DemoError(message, "INVALID_ARGUMENT", EXIT_MISUSED)


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="crossmesh demo", epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
                    description="Moves GPT-2 between two meshes of real workers on this machine, and checks it.")
    add = parser.add_argument
    add("tensors", nargs="?", help="safetensors file or folder to move instead of generated values")
    add("--strategy", help="only these, a,b (default: all)")
    add("--source-rules", default=str(SHARE / "gpt2.fsdp.rules"), help="layout rules over the mesh fsdp=4")
    add("--destination-rules", default=str(SHARE / "gpt2.tp.rules"),
        help="layout rules over the mesh replica=2,model=2")
    add("--output", help="folder for each destination device's safetensors")
    add("--verify", choices=("on", "off"), default="on", help="compare every destination element")
    add("--workers", type=int, default=4, help="an even number (default: 4)")
    add("--devices", choices=("host", "gpu"), default="host", help="move between host memory or between GPUs")
    add("--gpu", action="append", default=[], help="UUID of a GPU to use, one for each worker (default: this host's; fewer are shared)")
    add("--worker-flag", action="append", default=[],
        help="given to each worker as it is, e.g. --worker-flag=--nccl-library=FILE; repeat it for more")
    add("--keep", action="store_true", help="leave the cluster running until Ctrl-C")
    add("--json", action="store_true", help="print one JSON document on standard output")
    flags = parser.parse_args(arguments)
    if not REPLICAS <= flags.workers <= WORKERS_MAX or flags.workers % REPLICAS != 0:
        raise DemoError(f"--workers: expected an even number from {REPLICAS} to {WORKERS_MAX}, found {flags.workers}",
                        "INVALID_ARGUMENT")
    return flags


def gpus_of_machine() -> list[str]:
    """UUIDs."""
    found = []
    for file in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        found += re.findall(r"^GPU UUID:\s*(\S+)", pathlib.Path(file).read_text(), re.MULTILINE)
    return found


def gpus_of(flags: argparse.Namespace) -> list[str]:
    """One for each worker, or none: tensors are in host memory. Where there are fewer, workers have shares of them."""
    if flags.devices == "host":
        return []
    gpus = flags.gpu or gpus_of_machine()
    if not gpus:
        raise DemoError("--devices gpu: expected a GPU, found none: see nvidia-smi -L", "FAILED_PRECONDITION")
    if len(gpus) >= flags.workers:
        return gpus[:flags.workers]
    return [f"{gpus[number % len(gpus)]}:{number // len(gpus)}" for number in range(flags.workers)]


def are_shares(gpus: list[str]) -> bool:
    return any(":" in gpu for gpu in gpus)


class Cluster:
    """A controller and workers, on Unix sockets in a private folder. Each worker counts as a host of its own, with one
    device in host memory, and one that is a GPU if there are any. Whatever happens, no process and no file is left."""

    def __init__(self, workers: list[str], gpus: list[str], worker_flags: list[str]):
        self.workers = workers
        self.gpus = gpus
        self.worker_flags = worker_flags
        self.daemons: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> "Cluster":
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="crossmesh-demo-"))
        self.controller = f"unix:{self.folder / 'controller.sock'}"
        try:
            self.start("controller", "crossmesh-controller", "--listen", self.controller)
            self.await_ready("controller")
            for number, name in enumerate(self.workers):
                gpu = ["--gpu", f"{name}.1={self.gpus[number]}"] if self.gpus else []
                gpu += ["--gpu-shares"] if are_shares(self.gpus) else []
                self.start(name, "crossmesh-worker", "--name", name, "--devices", f"{name}.0", "--controller",
                           self.controller, "--listen", f"unix:{self.folder / name}.sock", "--memory-socket",
                           self.memory_socket(name), "--drain-timeout", "1", *gpu, *self.worker_flags)
            for name in self.workers:
                self.await_ready(name)
            self.await_workers()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            for daemon in self.daemons.values():
                daemon.terminate()
            until = time.monotonic() + STOP_SECONDS
            while time.monotonic() < until and any(daemon.poll() is None for daemon in self.daemons.values()):
                time.sleep(POLL_SECONDS)
        self.remove()

    def remove(self):
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def memory_socket(self, worker: str) -> str:
        return str(self.folder / f"{worker}.memory")

    def start(self, name: str, program: str, *arguments: str):
        prctl, demo = ctypes.CDLL(None).prctl, os.getpid()

        def die_with_the_demo():
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != demo:
                os._exit(EXIT_FAILED)  # it died before prctl

        # In a session of its own: Ctrl-C is the demo's, which then stops the daemons.
        with open(self.folder / f"{name}.log", "w") as log:
            self.daemons[name] = subprocess.Popen(
                [PROGRAMS / program, *arguments, "--ready-file", self.folder / f"{name}.ready", "--metrics-listen",
                 "127.0.0.1:0"], stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_the_demo)

    def ready(self, name: str) -> dict:
        return json.loads((self.folder / f"{name}.ready").read_text())

    def await_ready(self, name: str):
        self.wait_until(lambda: (self.folder / f"{name}.ready").exists(), lambda: f"{name} is not ready")

    def await_workers(self):
        def joined() -> int:
            workers = self.crossmesh("worker", "list")["workers"]
            return sum(worker["state"] == "WORKER_STATE_READY" for worker in workers)

        self.wait_until(lambda: joined() == len(self.workers),
                        lambda: f"only {joined()} of {len(self.workers)} workers have joined")

    def wait_until(self, holds, complaint):
        until = time.monotonic() + START_SECONDS
        while not holds():
            for name, daemon in self.daemons.items():
                if daemon.poll() is not None:
                    end = (self.folder / f"{name}.log").read_text(errors="replace")[-LOG_END:]
                    raise DemoError(f"{name} ended with {exit_text(daemon.returncode)}; its log ends:\n{end}",
                                    "UNAVAILABLE")
            if time.monotonic() > until:
                raise DemoError(f"{complaint()} after {START_SECONDS} s", "DEADLINE_EXCEEDED")
            time.sleep(POLL_SECONDS)

    def crossmesh(self, *arguments: str) -> dict:
        return crossmesh(*arguments, "--controller", self.controller)


def crossmesh(*arguments: str) -> dict:
    """The document that a command prints. Its error, if it has one, is that of the demo."""
    environment = {name: value for name, value in os.environ.items() if name != "CROSSMESH_CONTROLLER"}
    done = subprocess.run([PROGRAMS / "crossmesh", *arguments, "--json"], capture_output=True, check=False, text=True,
                          env=environment)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        raise DemoError(f"crossmesh {arguments[0]}: {exit_text(done.returncode)}: {done.stderr.strip()}") from None
    if done.returncode != 0:
        message = done.stderr.strip().removeprefix("crossmesh: error: ")
        # Of an operation that failed it is a text.
        error = document.get("error")
        raise DemoError(message, error.get("code", "INTERNAL") if isinstance(error, dict) else "INTERNAL")
    return document


def exit_text(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


class Move:
    """What is moved, as flags of the commands. Tensors lie alike on the first devices of the workers, which are host
    memory, and on the second ones, which are GPUs."""

    def __init__(self, flags: argparse.Namespace):
        self.flags = flags
        self.manifest = ["--manifest", flags.tensors or str(SHARE / "gpt2.json")]
        self.workers = [f"node-{number}" for number in range(flags.workers)]
        self.device = 0 if flags.devices == "host" else 1

    def source(self, device: int) -> str:
        return f"fsdp={len(self.workers)} on " + ",".join(f"{name}.{device}" for name in self.workers)

    def destination(self, device: int) -> str:
        width = len(self.workers) // REPLICAS
        return f"replica={REPLICAS},model={width} on " + ",".join(f"{name}.{device}" for name in self.workers)

    def replica(self, number: int, device: int) -> str:
        width = len(self.workers) // REPLICAS
        names = self.workers[number * width:(number + 1) * width]
        return f"model={width} on " + ",".join(f"{name}.{device}" for name in names)

    def planning(self, device: int) -> list[str]:
        return [*self.manifest,
                "--source", self.source(device), "--source-rules", self.flags.source_rules,
                "--destination", self.destination(device), "--destination-rules", self.flags.destination_rules,
                "--replica-axes", "replica", *IN_PLACE]

    def whole(self, device: int) -> list[str]:
        return [*self.planning(device), "--source-storage", "training", "--destination-storage", "serving", *CREATE]

    def load(self) -> list[str]:
        """The source of host memory to that of GPUs."""
        return [*self.manifest, *IN_PLACE, *CREATE,
                "--source", self.source(0), "--source-rules", self.flags.source_rules, "--source-storage", "training",
                "--destination", self.source(1), "--destination-rules", self.flags.source_rules,
                "--destination-storage", "training"]

    def strategies(self) -> list[dict]:
        """A plan by each: what cannot be planned is refused before anything is started."""
        planning = self.planning(self.device)
        if self.flags.strategy:
            return [crossmesh("plan", *planning, "--strategy", name)["summary"]
                    for name in self.flags.strategy.split(",")]
        return [plan["summary"] for plan in crossmesh("plan", *planning, "--all-strategies")["plans"]]


class Demo:
    """Fills the source, moves it by one strategy after the other, and checks what arrived. GPUs are filled and read by
    way of host memory."""

    def __init__(self, cluster: Cluster, move: Move, flags: argparse.Namespace):
        self.cluster = cluster
        self.move = move
        self.flags = flags
        self.values = ["--values", flags.tensors] if flags.tensors else []

    def prepare(self):
        self.storage("fill", *self.values)
        if self.move.device == 0:
            return
        self.cluster.crossmesh("reshard", *self.move.load())
        self.received = self.cluster.folder / "received.json"
        self.received.write_text(json.dumps(crossmesh("storage", "describe", *self.move.whole(0))))

    def run(self, strategy: str, label: str) -> dict:
        """The operation's report."""
        self.storage("clear")
        self.carry(0, 1)
        operation = self.cluster.crossmesh("reshard", *self.move.whole(self.move.device), "--strategy", strategy)
        report = operation["report"]
        self.say(f"{label}: {bytes_text(int(report['destination_bytes']))} in "
                 f"{seconds_text(report['transfer_seconds'])}, {rate_text(report['throughput_bytes_per_second'])}")
        self.carry(1, 0)
        if self.flags.verify == "on":
            self.storage("check", *self.values)
        return report

    def carry(self, source: int, destination: int):
        """Between the destination's storages in host memory and on GPUs, replica by replica: so each device gets what
        its own neighbour has."""
        for number in range(REPLICAS if self.move.device == 1 else 0):
            self.cluster.crossmesh("reshard", "--request", str(self.received), *IN_PLACE, *CREATE,
                                   "--source", self.move.replica(number, source),
                                   "--destination", self.move.replica(number, destination))

    def storage(self, action: str, *more: str):
        """Shows the progress of the command, unless one document is all that is wanted."""
        memory = ",".join(f"{name}={self.cluster.memory_socket(name)}" for name in self.move.workers)
        arguments = ["storage", action, *self.move.whole(0), "--memory", memory, *more]
        if self.flags.json:
            crossmesh(*arguments)
        elif subprocess.run([PROGRAMS / "crossmesh", *arguments], check=False).returncode != 0:
            raise DemoError(f"crossmesh storage {action} has failed")

    def say(self, line: str):
        if not self.flags.json:
            print(line, file=sys.stderr, flush=True)


# What the machine can do, with nothing else running.

def copy_for(seconds: float) -> float:
    """Bytes per second that a process copies."""
    source, target = memoryview(bytearray(COPY_BYTES)), memoryview(bytearray(COPY_BYTES))
    target[:] = source
    copied, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        target[:] = source
        copied += COPY_BYTES
    return copied / (time.perf_counter() - begin)


def send_to(address):
    with socket.create_connection(address) as stream, contextlib.suppress(ConnectionError):
        while True:
            stream.sendall(bytes(BLOCK_BYTES))


def loopback_rate(context) -> float:
    """Bytes per second of one TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = context.Process(target=send_to, args=(server.getsockname(),), daemon=True)
        sender.start()
        stream, _ = server.accept()
        with stream:
            block, received, begin = bytearray(BLOCK_BYTES), 0, time.perf_counter()
            while (took := time.perf_counter() - begin) < MEASURED_SECONDS:
                received += stream.recv_into(block)
        sender.join()
    return received / took


def measure_machine() -> dict:
    context, cores = multiprocessing.get_context("fork"), len(os.sched_getaffinity(0))
    with context.Pool(cores) as pool:
        copied = sum(pool.map(copy_for, [MEASURED_SECONDS] * cores, chunksize=1))
        # They end by themselves. The pool would end them by SIGTERM, for which they have the demo's handler: what that
        # raises while a process is only just beginning is lost, and the pool waits for it for ever.
        pool.close()
        pool.join()
    return {"cores": cores, "copied_bytes_per_second": copied, "loopback_bytes_per_second": loopback_rate(context)}


# What is printed.

def bytes_text(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < (999.5 if unit == "B" else 999.95) or unit == "TB":
            return f"{count:.{0 if unit == 'B' else 1}f} {unit}"
        count /= 1000


def rate_text(rate: float) -> str:
    return bytes_text(rate) + "/s"


def seconds_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.999995 else f"{seconds * 1e3:.2f} ms"


def table(reports: dict[str, dict]) -> str:
    rows = [("STRATEGY", "TIME", "THROUGHPUT", "BUSIEST HOST", "NETWORK", "BOUND", "TIME/BOUND")]
    for strategy, report in reports.items():
        seconds, bound = report["transfer_seconds"], report["bound_seconds"]
        rows.append((strategy, seconds_text(seconds), rate_text(report["throughput_bytes_per_second"]),
                     bytes_text(int(report["busiest_host_bytes"])), bytes_text(int(report["network_bytes"])),
                     seconds_text(bound), f"{seconds / bound:.2f}x" if bound > 0 else "-"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    rows.insert(1, tuple("-" * width for width in widths))
    return "".join("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) + "\n" for row in rows)


def closing(plan: dict, machine: dict, verified: bool, gpus: list[str]) -> str:
    lines = ["One run each, after a warm-up that is not counted; on a busy machine times vary.",
             "Throughput counts destination bytes; busiest host and bound count each worker as a host of its own."]
    lines += [f"WARNING: {warning}" for warning in plan["warnings"]]
    if are_shares(gpus):
        count = len({gpu.split(":")[0] for gpu in gpus})
        lines += [f"{len(gpus)} workers share {count} GPU{'s' if count > 1 else ''}, which run one process at a time: times "
                  "say nothing of GPUs."]
    if plan["assumed_rates"]:
        lines += [f"Rates are assumed: {rate_text(int(plan['assumed_bytes_per_second']))} per host and direction."]
    lines += [f"The {machine['cores']} cores of this machine do the work of all hosts, which is why times are above the bound:",
              f"they copy memory at {rate_text(machine['copied_bytes_per_second'])} together, and one TCP connection over "
              f"loopback carries {rate_text(machine['loopback_bytes_per_second'])}.",
              f"Every element of all {plan['replicas']} replicas is as it should be." if verified else
              "Elements were not compared (--verify off)."]
    return "".join(line + "\n" for line in lines)


def addresses(cluster: Cluster) -> dict:
    return {"controller_address": cluster.controller,
            "controller_metrics_address": cluster.ready("controller")["metrics_address"],
            "workers": [{"name": name, "memory_socket": cluster.memory_socket(name),
                         "metrics_address": cluster.ready(name)["metrics_address"]} for name in cluster.workers]}


def addresses_text(found: dict) -> str:
    lines = ["", "The cluster stays until Ctrl-C.", f"  export CROSSMESH_CONTROLLER={found['controller_address']}",
             f"  controller metrics  http://{found['controller_metrics_address']}/metrics"]
    lines += [f"  {worker['name']} metrics      http://{worker['metrics_address']}/metrics, memory "
              f"{worker['memory_socket']}" for worker in found["workers"]]
    return "".join(line + "\n" for line in lines)


FIGURES = ("transfer_seconds", "throughput_bytes_per_second", "destination_bytes", "network_bytes",
           "busiest_host_bytes", "bound_seconds", "predicted_seconds")


def run_demo(flags: argparse.Namespace):
    gpus = gpus_of(flags)
    move = Move(flags)
    plans = move.strategies()
    machine = measure_machine()
    source, destination = move.source(move.device), move.destination(move.device)
    if not flags.json:
        print(f"{plans[0]['tensors']} tensors from {source} to {destination}", flush=True)
    with Cluster(move.workers, gpus, flags.worker_flag) as cluster:
        demo = Demo(cluster, move, flags)
        demo.prepare()
        # Whichever runs first also connects the workers and touches their memory: it is not counted.
        demo.run(plans[0]["strategy"], "warm-up")
        reports = {plan["strategy"]: demo.run(plan["strategy"], plan["strategy"]) for plan in plans}
        if flags.output:
            demo.storage("save", "--output", flags.output)
        verified = flags.verify == "on"
        if flags.json:
            document = {"source": source, "destination": destination, "tensors": int(plans[0]["tensors"]),
                        "verified": verified, "warm_up_runs": 1, "machine": machine,
                        "assumed_rates": plans[0]["assumed_rates"],
                        "strategies": [{"strategy": name} | {figure: report[figure] for figure in FIGURES}
                                       for name, report in reports.items()]}
            if flags.keep:
                document["cluster"] = addresses(cluster)
            print(json.dumps(document, indent=2), flush=True)
        else:
            print("\n" + table(reports) + "\n" + closing(plans[0], machine, verified, gpus), end="", flush=True)
            if flags.keep:
                print(addresses_text(addresses(cluster)), end="", flush=True)
        while flags.keep:
            signal.pause()


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        run_demo(parse_flags())
    except DemoError as error:
        print(f"crossmesh: error: {error}", file=sys.stderr)
        if "--json" in sys.argv:
            print(json.dumps({"error": {"code": error.code, "message": str(error)}}))
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
