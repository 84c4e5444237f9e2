"""Takes a controller's memory away: the system kills it and nobody else, and the next one has all that it acknowledged.

    out_of_memory_test.py <build folder>

Exits with 77, which means skipped, where no control group can be made.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SKIPPED = 77
BIN = pathlib.Path(sys.argv[1]).resolve() / "bin"
GROUPS = pathlib.Path("/sys/fs/cgroup")
MIB = 1 << 20
WITHIN_S = 60
ROOM_BYTES = 32 * MIB  # beyond what the controller has when it begins to serve
TENSORS = 20_000  # of a manifest, which takes some megabytes
MANIFESTS_MAX = 100


class MemoryGroup:
    """A control group with a limit of memory, of either version of the interface."""

    def __init__(self):
        first = GROUPS / "memory" if (GROUPS / "memory").is_dir() else GROUPS
        self.is_second = first == GROUPS
        self.path = first / f"crossmesh-test-{os.getpid()}"
        self.path.mkdir()
        limit = self.path / ("memory.max" if self.is_second else "memory.limit_in_bytes")
        if not limit.exists():
            self.path.rmdir()
            raise OSError(f"{self.path}: memory is not limited in it")
        self.limit = limit

    def take(self, process: int) -> None:
        (self.path / "cgroup.procs").write_text(str(process))

    def killed(self) -> int:
        """How often the system has ended a process for want of memory."""
        told = (self.path / ("memory.events" if self.is_second else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in told.splitlines())["oom_kill"])

    def remove(self) -> None:
        self.path.rmdir()


def resident_bytes(process: int) -> int:
    return int(pathlib.Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class OutOfMemoryTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="memory")))
        self.controller_address = f"unix:{self.scratch}/controller"
        self.group = MemoryGroup()
        self.addCleanup(self.group.remove)

    def start(self, program: str, *flags: str) -> subprocess.Popen:
        ready = self.scratch / f"{program}.ready"
        ready.unlink(missing_ok=True)
        log = self.enterContext((self.scratch / f"{program}.log").open("a"))
        process = subprocess.Popen([BIN / program, "--ready-file", ready, *flags], stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until = time.monotonic() + WITHIN_S
        while not ready.exists():
            self.assertIsNone(process.poll(), (self.scratch / f"{program}.log").read_text())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        return process

    def start_controller(self) -> subprocess.Popen:
        return self.start("crossmesh-controller", "--listen", self.controller_address, "--state-dir",
                          str(self.scratch / "store"))

    def crossmesh(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([BIN / "crossmesh", *words, "--controller", self.controller_address, "--json", "--timeout",
                               "5s"], capture_output=True, text=True, check=False)

    def workers(self) -> list[str]:
        listed = self.crossmesh("worker", "list")
        if listed.returncode != 0:
            return []
        return [f"{entry['name']} {entry['state']}" for entry in json.loads(listed.stdout)["workers"]]

    def test_a_controller_that_needs_too_much_is_killed_alone_and_the_next_one_has_all(self):
        controller = self.start_controller()
        worker = self.start("crossmesh-worker", "--name", "a", "--devices", "a.0", "--controller", self.controller_address,
                            "--listen", f"unix:{self.scratch}/worker", "--memory-socket", f"{self.scratch}/a.memory")
        # Tensors of many names, so that nothing of them is shared.
        manifest = self.scratch / "manifest.json"
        manifest.write_text(json.dumps({"tensors": [{"name": f"tensor-{i:06}", "shape": [8, 8], "dtype": "F32"}
                                                    for i in range(TENSORS)]}))
        self.group.limit.write_text(str(resident_bytes(controller.pid) + ROOM_BYTES))
        self.group.take(controller.pid)
        acknowledged = []
        while controller.poll() is None and len(acknowledged) < MANIFESTS_MAX:
            name = f"m{len(acknowledged)}"
            if self.crossmesh("manifest", "create", name, str(manifest)).returncode == 0:
                acknowledged.append(name)
        self.assertEqual(controller.wait(WITHIN_S), -signal.SIGKILL)
        self.assertEqual(self.group.killed(), 1)
        self.assertGreater(len(acknowledged), 0)
        self.assertIsNone(worker.poll())

        self.start_controller()
        listed = json.loads(self.crossmesh("manifest", "list").stdout)["manifests"]
        self.assertLessEqual(set(acknowledged), {entry["name"] for entry in listed})
        until = time.monotonic() + WITHIN_S
        while self.workers() != ["a WORKER_STATE_READY"]:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)


def main() -> None:
    try:
        MemoryGroup().remove()
    except OSError as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    main()
