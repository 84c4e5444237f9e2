"""The first hour on a machine with a GPU: seven steps, each by itself, and one report that says what to change, as a
table and, beside it, as one JSON document with all figures.

    run --first-hour                            in a bundle (tests/README.md); 30 minutes at most
    run --first-hour --steps ranks,kill         only these
    run --first-hour --gpu GPU-4bd8...          on this one (default: all that the driver lists)

Where there are fewer than two GPUs two ranks share one. Needs a driver, NCCL 2.30.3 and Python's standard library.
"""

import argparse
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "share/crossmesh"))

import demo  # noqa: E402

MIB = 1 << 20
CHUNK_MIB = (1, 2, 4, 8, 16)
# At which what a step costs shows, and which fits into staging.
SMALL_MIB = 256
# Assumed in common/mesh/gpu_costs.h.
STEP_SECONDS, CHANNEL_RATE = 60e-6, 20e9
# Of the GPU's memory, that may differ between two looks.
MEMORY_SLACK_MIB = 16
# Of a message between two ranks: half of 64, or the thread blocks of a share.
CHANNELS, CHANNELS_OF_SHARES = 32, 4
RECOVERY_SECONDS = 60


@dataclass
class Outcome:
    """Of a step: `result` is pass, FAIL or skip; `figures` are for programs."""

    result: str
    seen: str
    expected: str = ""
    change: str = ""
    figures: dict = field(default_factory=dict)


class Lacks(Exception):
    """What a step needs and the machine does not have."""


class TooLate(Exception):
    """A step has had its time."""


class Machine:
    def __init__(self, flags: argparse.Namespace):
        self.nccl = os.environ.get("CROSSMESH_NCCL_LIBRARY", "libnccl.so.2")
        self.driver = os.environ.get("CROSSMESH_DRIVER_LIBRARY", "libcuda.so.1")
        self.gpus = flags.gpu or demo.gpus_of_machine()
        self.mebibytes = flags.mebibytes

    def demo_flags(self, workers: int, *more: str) -> argparse.Namespace:
        if not self.gpus:
            raise Lacks("no GPU: nothing in /proc/driver/nvidia/gpus")
        gpus = [word for gpu in self.gpus[:workers] for word in ("--gpu", gpu)]
        return demo.parse_flags(["--workers", str(workers), "--devices", "gpu", *gpus, "--json",
                                 f"--worker-flag=--nccl-library={self.nccl}",
                                 f"--worker-flag=--cuda-library={self.driver}", *more])

    def cluster(self, flags: argparse.Namespace) -> demo.Cluster:
        return demo.Cluster(demo.Move(flags).workers, demo.gpus_of(flags), flags.worker_flag)

    def query(self, field_name: str) -> str:
        """Of the first GPU, by the driver."""
        if not shutil.which("nvidia-smi"):
            raise Lacks(f"nvidia-smi, which tells {field_name}")
        if not self.gpus:
            raise Lacks("no GPU: nothing in /proc/driver/nvidia/gpus")
        told = subprocess.run(["nvidia-smi", "--id", self.gpus[0], f"--query-gpu={field_name}",
                               "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
        return told.stdout.strip()

    def used_mebibytes(self) -> int:
        """Of the first GPU's memory, by all processes."""
        return int(self.query("memory.used"))

    def persistence(self) -> str:
        """"Enabled", "Disabled", or "unknown"."""
        try:
            return self.query("persistence_mode")
        except (Lacks, subprocess.SubprocessError):
            return "unknown"


def doctor(machine: Machine) -> Outcome:
    """1. What the machine has. (The review's first step was to mend three findings; they are mended.)"""
    done = subprocess.run([demo.PROGRAMS / "crossmesh", "doctor", "--json"], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["checks"]
    bad = [check for check in found if check["state"] == "problem"]
    persistence = machine.persistence()
    seen = [*(f"{check['name']}: {check['found']}" for check in bad or found), f"persistence mode: {persistence}"]
    return Outcome("FAIL" if bad else "pass", "; ".join(seen), "no problem",
                   "; ".join(check["advice"] for check in bad), {"checks": found, "persistence_mode": persistence})


def checks(_: Machine) -> Outcome:
    """2. Kernels, communicators and executor, each by itself, and the kernels' rates."""
    done = subprocess.run([FOLDER / "run"], capture_output=True, text=True, check=False)
    (FOLDER / "logs").mkdir(exist_ok=True)
    (FOLDER / "logs/run.log").write_text(done.stdout + done.stderr)
    rows = re.findall(r"^(\S+)\s+(pass|skip|FAIL)\s+(\d+)\s+(\d+)\s+(\d+)", done.stdout, re.MULTILINE)
    slow = [line.strip() for line in done.stdout.splitlines() if line.rstrip().endswith(" no")]
    failed = [row[0] for row in rows if row[1] == "FAIL"]
    seen = ", ".join(f"{name} {result} ({passed} passed, {failures} failed, {skipped} skipped)"
                     for name, result, passed, failures, skipped in rows)
    return Outcome("FAIL" if failed or not rows else "pass", "; ".join([seen, *slow]),
                   "pass, and every row of the kernels' table says yes",
                   f"see logs of {', '.join(failed)}" if failed else "kernels of the rows that say no" if slow else "",
                   {"checks": {row[0]: row[1] for row in rows}, "slow_kernels": slow})


def ranks(machine: Machine) -> Outcome:
    """3. Two ranks through the whole stack, on one GPU where there is one."""
    flags = machine.demo_flags(2)
    with machine.cluster(flags) as cluster:
        run = demo.Demo(cluster, demo.Move(flags), flags)
        run.prepare()
        report = run.run("relay", "relay")
    return Outcome("pass", f"every element right; {demo.rate_text(report['throughput_bytes_per_second'])}, predicted "
                   f"{demo.seconds_text(report['predicted_seconds'])}, took {demo.seconds_text(report['transfer_seconds'])}",
                   "every element right", "",
                   {name: report[name] for name in ("throughput_bytes_per_second", "predicted_seconds", "transfer_seconds")})


def one_to_one(cluster: demo.Cluster, folder: pathlib.Path, mebibytes: int, *more: str) -> dict:
    """The report of a tensor's way from the first GPU to the second."""
    manifest = folder / "tensor.json"
    manifest.write_text(json.dumps({"tensors": [{"name": "w", "shape": [mebibytes, MIB // 2], "dtype": "BF16"}]}))
    storage = f"sweep-{mebibytes}"
    arguments = ["--manifest", str(manifest), "--source", "x=1 on node-0.1", "--source-layout", "[...]",
                 "--source-storage", storage, "--destination", "y=1 on node-1.1", "--destination-layout", "[...]",
                 "--destination-storage", storage, "--create-destination", "--in-place"]
    demo.crossmesh("storage", "create", storage, "node-0.1", "--bytes", str(mebibytes * MIB), "--memory",
                   f"node-0={cluster.memory_socket('node-0')}")
    return cluster.crossmesh("reshard", *arguments, *more)["report"]


def fit(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Of seconds = a * steps + b, by least squares."""
    mean_steps = sum(steps for steps, _ in points) / len(points)
    mean_seconds = sum(seconds for _, seconds in points) / len(points)
    a = (sum((steps - mean_steps) * (seconds - mean_seconds) for steps, seconds in points)
         / sum((steps - mean_steps)**2 for steps, _ in points))
    return a, mean_seconds - a * mean_steps


def sweep(cluster: demo.Cluster, mebibytes: int) -> dict[int, float]:
    """The medians of three runs of so many bytes, by the size of chunks in MiB, in turns."""
    taken: dict[int, list[float]] = {size: [] for size in CHUNK_MIB}
    for _ in range(3):
        for size in CHUNK_MIB:
            report = one_to_one(cluster, cluster.folder, mebibytes, "--chunk-bytes", str(size * MIB))
            taken[size].append(report["transfer_seconds"])
    return {size: sorted(seconds)[1] for size, seconds in taken.items()}


def describe(cluster: demo.Cluster, gpus: int):
    """The network, with what is assumed of GPUs: a calibration keeps nothing of those that are not listed."""
    port = {"name": "nic0", "out_bytes_per_second": 50 * 10**9, "in_bytes_per_second": 50 * 10**9}
    gpu = {"device": 1, "nic": "nic0", "link_out_bytes_per_second": 450 * 10**9,
           "link_in_bytes_per_second": 450 * 10**9, "copy_bytes_per_second": 1340 * 10**9}
    network = cluster.folder / "network.json"
    network.write_text(json.dumps({"hosts": [{"name": f"node-{host}", "nics": [port], "gpus": [gpu]}
                                             for host in range(gpus)]}))
    cluster.crossmesh("network", "set", str(network))


def costs_of(cluster: demo.Cluster, gpus: int) -> dict[str, int]:
    """As `crossmesh gpu calibrate` finds them."""
    describe(cluster, gpus)
    topology = cluster.crossmesh("gpu", "calibrate")["network"]["topology"]
    costs = {name: int(cost["value"]) for name, cost in topology["gpu_costs"].items() if cost["source"] != "assumed"}
    return costs | {"copy_bytes_per_second": min(int(gpu["copy_bytes_per_second"]) for host in topology["hosts"]
                                                 for gpu in host["gpus"])}


def steps(machine: Machine) -> Outcome:
    """4. What a step costs: the same bytes in chunks of several sizes, three times each, in turns; then by itself."""
    flags = machine.demo_flags(2)
    with machine.cluster(flags) as cluster:
        one_to_one(cluster, cluster.folder, machine.mebibytes)  # connects, and is not counted
        medians = {mebibytes: sweep(cluster, mebibytes) for mebibytes in sorted({SMALL_MIB, machine.mebibytes})}
        costs = costs_of(cluster, 2)
    step, rest = fit([(machine.mebibytes / size, seconds) for size, seconds in medians[machine.mebibytes].items()])
    rates = "; ".join(f"of {mebibytes} MiB: " + ", ".join(f"{size} MiB {demo.rate_text(mebibytes * MIB / seconds)}"
                                                          for size, seconds in taken.items())
                      for mebibytes, taken in medians.items())
    rate = machine.mebibytes * MIB / max(rest, 1e-9)
    channels = CHANNELS_OF_SHARES if demo.are_shares(demo.gpus_of(flags)) else CHANNELS
    measured = ", ".join(f"{name} {value}" for name, value in costs.items())
    change = ("crossmesh gpu calibrate, which found " + measured +
              (f"; by the runs channel_bytes_per_second = {rate / channels:.0f}" if step > 0 else
               "; a run does not take longer by more steps, so other things decide its time"))
    return Outcome("pass", f"{rates}; {step * 1e6:.0f} us a step, {demo.rate_text(rate)} beside that",
                   f"{STEP_SECONDS * 1e6:.0f} us a step; NVLink or a copy inside the GPU at {channels} channels of "
                   f"{demo.rate_text(CHANNEL_RATE)} at least",
                   change, {"seconds": medians, "step_seconds": step, "bytes_per_second": rate, "channels": channels,
                            "costs": costs})


def restart_controller(cluster: demo.Cluster):
    """Another controller has another epoch: its first communicator ends those of the one before."""
    controller = cluster.daemons["controller"]
    controller.kill()
    controller.wait()
    (cluster.folder / "controller.ready").unlink()
    (cluster.folder / "controller.sock").unlink(missing_ok=True)
    cluster.start("controller", "crossmesh-controller", "--listen", cluster.controller)
    cluster.await_ready("controller")
    cluster.await_workers()


def memory(machine: Machine) -> Outcome:
    """5. What a communicator takes of the GPU, and gives back when it is destroyed."""
    used = {"before": machine.used_mebibytes()}
    flags = machine.demo_flags(2)
    with machine.cluster(flags) as cluster:
        used["workers up"] = machine.used_mebibytes()
        one_to_one(cluster, cluster.folder, SMALL_MIB)
        used["after a run"] = machine.used_mebibytes()
        restart_controller(cluster)
        # The same storages; the communicator is another one, and that of before is destroyed.
        one_to_one(cluster, cluster.folder, SMALL_MIB)
        used["with another communicator"] = machine.used_mebibytes()
    used["stopped"] = machine.used_mebibytes()
    left = used["stopped"] - used["before"]
    kept = used["with another communicator"] - used["after a run"]
    changes = []
    if left > MEMORY_SLACK_MIB:
        changes.append(f"{left} MiB are not given back at the end: which process has them? (nvidia-smi)")
    if kept > MEMORY_SLACK_MIB:
        changes.append(f"{kept} MiB of a communicator that was destroyed are not given back: NCCL_DEBUG=INFO at its end")
    return Outcome("FAIL" if changes else "pass", ", ".join(f"{when} {mebibytes} MiB" for when, mebibytes in used.items()),
                   f"nothing left at the end; a run takes two tensors of {SMALL_MIB} MiB and the communicators of two "
                   "ranks; one that is destroyed gives back what it took",
                   "; ".join(changes), {"used_mebibytes": used})


def children(process: int) -> list[int]:
    found = []
    for status in glob.glob("/proc/[0-9]*/stat"):
        try:
            text = pathlib.Path(status).read_text()
        except OSError:
            continue  # it has ended
        if int(text.rsplit(")", 1)[1].split()[1]) == process:
            found.append(int(status.split("/")[2]))
    return found


def kill(machine: Machine) -> Outcome:
    """6. A GPU's process is killed: its memory is there for the next one, also without nvidia-persistenced."""
    flags = machine.demo_flags(2)
    with machine.cluster(flags) as cluster:
        run = demo.Demo(cluster, demo.Move(flags), flags)
        run.prepare()
        run.run("relay", "before")
        killed = children(cluster.daemons["node-0"].pid)
        if not killed:
            return Outcome("FAIL", "no process of a GPU below the worker of node-0", "one that is killed")
        for process in killed:
            os.kill(process, signal.SIGKILL)
        begin = time.monotonic()
        while True:
            try:
                run.run("relay", "after")
                break
            except demo.DemoError as error:
                if time.monotonic() > begin + RECOVERY_SECONDS:
                    return Outcome("FAIL", f"{len(killed)} killed; {RECOVERY_SECONDS} s later: {error}", "commits again",
                                   "the worker's log of node-0: gpu_process_ended, gpu_arena_lost")
    seconds = time.monotonic() - begin
    return Outcome("pass", f"every element right {seconds:.1f} s after the end of its process, persistence mode "
                   f"{machine.persistence()}", "the storage of before is moved, every element right", "",
                   {"recovery_seconds": seconds, "persistence_mode": machine.persistence()})


def m2n(machine: Machine) -> Outcome:
    """7. NVIDIA's own reshard beside ours: the same bytes three times each, in turns."""
    library = os.environ.get("CROSSMESH_M2N_LIBRARY")
    if not library:
        raise Lacks("CROSSMESH_M2N_LIBRARY, which names libnccl_m2n.so of the wheel nccl-extensions")
    flags = machine.demo_flags(2, f"--worker-flag=--m2n-library={library}")
    taken: dict[str, list[float]] = {"relay": [], "m2n": []}
    with machine.cluster(flags) as cluster:
        for turn in range(4):
            for strategy, seconds in taken.items():
                report = one_to_one(cluster, cluster.folder, machine.mebibytes, "--gpu-host", "h100x8", "--strategy", strategy)
                if turn > 0:  # the first connects, and is not counted
                    seconds.append(report["transfer_seconds"])
    rates = {strategy: machine.mebibytes * MIB / sorted(seconds)[1] for strategy, seconds in taken.items()}
    faster = max(rates, key=rates.get)
    return Outcome("pass", "; ".join(f"{strategy} {demo.rate_text(rate)}" for strategy, rate in rates.items()),
                   "relay is as fast as m2n", "" if faster == "relay" else "relays, until they are",
                   {"bytes_per_second": rates})


STEPS = {step.__name__: step for step in (doctor, checks, ranks, steps, memory, kill, m2n)}


def outcome_of(name: str, machine: Machine, seconds: float) -> Outcome:
    """A step that fails or takes too long does not keep the next from running."""
    def end(*_):
        raise TooLate(f"not done after {seconds:.0f} s")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return STEPS[name](machine)
    except Lacks as lack:
        return Outcome("skip", str(lack))
    except (demo.DemoError, TooLate, OSError, ValueError, subprocess.SubprocessError) as error:
        return Outcome("FAIL", str(error), "no error")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |\n"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run --first-hour", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default=",".join(STEPS), help=",".join(STEPS))
    parser.add_argument("--gpu", action="append", default=[], help="UUID; repeat it for more")
    parser.add_argument("--minutes", type=float, default=30, help="for all steps together")
    parser.add_argument("--mebibytes", type=int, default=2048, help="that a run of step `steps` moves")
    parser.add_argument("--report", type=pathlib.Path, default=pathlib.Path("first-hour.md"))
    flags = parser.parse_args()
    if flags.report.suffix == ".json":
        parser.error("--report: expected the text's file, found one of JSON, which lies beside it")
    flags.steps = flags.steps.split(",")
    if unknown := [name for name in flags.steps if name not in STEPS]:
        parser.error(f"--steps: expected some of {', '.join(STEPS)}, found {', '.join(unknown)}")
    return flags


def main() -> int:
    flags = parse()
    machine = Machine(flags)
    until = time.monotonic() + 60 * flags.minutes
    head = row("STEP", "RESULT", "SECONDS", "SEEN", "EXPECTED", "CHANGE") + row(*["---"] * 6)
    print(head, end="", flush=True)
    rows, outcomes, failed = [], [], False
    for name in flags.steps:
        begin = time.monotonic()
        left = until - begin
        outcome = outcome_of(name, machine, left) if left > 0 else Outcome("skip", "the steps before it took all the time")
        failed |= outcome.result == "FAIL"
        seconds = time.monotonic() - begin
        rows.append(row(name, outcome.result, f"{seconds:.1f}", outcome.seen, outcome.expected, outcome.change))
        outcomes.append({"step": name, "seconds": seconds} | asdict(outcome))
        print(rows[-1], end="", flush=True)
        # Each time: what there is of it outlives whatever comes.
        flags.report.write_text(f"# The first hour on {', '.join(machine.gpus) or 'no GPU'}\n\n{head}{''.join(rows)}")
        flags.report.with_suffix(".json").write_text(json.dumps({"gpus": machine.gpus, "steps": outcomes}, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
