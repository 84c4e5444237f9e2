"""A cluster on this machine, for tests and notebooks: a controller and workers in a temporary folder."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from types import TracebackType
from typing import Any

from crossmesh import _arguments, client, memory, programs, results
from crossmesh.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError

_START_SECONDS = 60.0
_END_SECONDS = 10.0
_BECOMES_PROGRAM = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def _ending_with_this_process(words: list[str]) -> list[str]:
    """The words of a program that is killed when this process ends, however that is.

    An interpreter becomes the program, since code between fork and exec may hang where threads are, as there are with
    JAX.
    """
    return [sys.executable, "-IS", "-c", _BECOMES_PROGRAM, str(os.getpid()), *words]


class _Daemon:
    def __init__(self, folder: pathlib.Path, name: str, words: list[str]):
        self.name = name
        self.log = folder / f"{name}.log"
        self._ready_file = folder / f"{name}.ready"
        notices = folder / f"{name}.notices"
        # As a service manager has it: the daemon says when it serves, so that nothing has to be polled.
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notices.bind(str(notices))
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                _ending_with_this_process([*words, "--ready-file", str(self._ready_file)]),
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, "NOTIFY_SOCKET": str(notices)},
                # Out of the way of Ctrl-C, which a terminal and Jupyter send to all of a process's group.
                start_new_session=True)

    def await_ready(self) -> dict[str, Any]:
        """What its ready file says. Raises UnavailableError with the end of its log if it ends instead."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            self._notices.settimeout(0.2)  # in which a daemon that has ended is noticed
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in self._notices.recv(4096).split(b"\n"):
                    document: dict[str, Any] = json.loads(self._ready_file.read_text())
                    return document
            if self._process.poll() is not None or time.monotonic() >= deadline:
                raise UnavailableError(
                    f"{self.name}: expected that it serves, found exit status {self._process.returncode}; its log "
                    f"ends with {self.log.read_text(errors='replace')[-2000:]}", self.name, "that it serves",
                    f"exit status {self._process.returncode}")

    def ask_to_end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def end(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self.kill()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._notices.close()

    @property
    def pid(self) -> int:
        return self._process.pid


@_arguments.checked
class LocalCluster:
    """A controller and workers named node-0, node-1, ..., each with devices node-N.0 and on in host memory.

    By local_cluster(). `client` is connected to it; a worker's memory socket is memory_socket(N). Ends with stop(),
    with its block, with the last reference to it, and with the process. `folder` has the daemons' logs.
    """

    def __init__(self, workers: int, devices: int):
        if workers < 0 or devices < 1:
            raise InvalidArgumentError(
                f"local cluster: expected no or more workers of at least one device, found {workers} of {devices}",
                "local cluster", "no or more workers of at least one device", f"{workers} of {devices}")
        self._process = os.getpid()
        self._workers = workers
        self._devices = devices
        self._daemons: list[_Daemon] = []
        self._client: client.Client | None = None
        # Short: the path of a Unix socket has 107 bytes at most.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cm-"))
        self._at_end = weakref.finalize(self, _end, self._daemons, self.folder, self._process)
        try:
            self._start()
        except BaseException:
            self._stop(keep=True)
            raise

    @property
    def address(self) -> str:
        """Of the controller."""
        return f"unix:{self.folder / 'controller.sock'}"

    @property
    def client(self) -> client.Client:
        """Of its controller. FailedPreconditionError: the cluster was stopped."""
        if self._client is None:
            raise FailedPreconditionError(
                "local cluster: expected one that runs, found one that was stopped", "local cluster", "one that runs",
                "one that was stopped")
        return self._client

    def memory_socket(self, worker: int) -> str:
        """The path of a worker's memory socket."""
        return str(self.folder / f"node-{worker}.memory")

    def memory(self, worker: int) -> memory.WorkerMemory:
        """The storages of a worker."""
        return memory.worker_memory(self.memory_socket(worker))

    def devices(self, worker: int) -> list[str]:
        """The names of a worker's devices."""
        return [f"node-{worker}.{index}" for index in range(self._devices)]

    @property
    def pids(self) -> list[int]:
        """Of the controller and the workers."""
        return [daemon.pid for daemon in self._daemons]

    def _worker_words(self, worker: int) -> list[str]:
        name = f"node-{worker}"
        devices = f"{name}.0" if self._devices == 1 else f"{name}.0-{self._devices - 1}"
        return [
            str(programs.path("crossmesh-worker")), "--name", name, "--devices", devices, "--controller", self.address,
            "--listen", f"unix:{self.folder / name}.sock", "--memory-socket", self.memory_socket(worker),
            "--metrics-listen", "127.0.0.1:0"]

    def _start(self) -> None:
        controller = [
            str(programs.path("crossmesh-controller")), "--listen", self.address, "--metrics-listen", "127.0.0.1:0"]
        self._daemons.append(_Daemon(self.folder, "controller", controller))
        for worker in range(self._workers):
            self._daemons.append(_Daemon(self.folder, f"node-{worker}", self._worker_words(worker)))
        for daemon in self._daemons:
            daemon.await_ready()
        self._client = client.connect(self.address)
        self.await_workers(self._workers)

    def await_workers(self, count: int) -> None:
        """Until `count` workers are ready, of which some may be in other processes, or in this one.

        A worker serves before the controller knows it; how long its registration takes is its own affair.
        UnavailableError: not in 60 seconds.
        """
        deadline = time.monotonic() + _START_SECONDS
        while True:
            ready = [w for w in self.client.workers.list() if w.state is results.WorkerState.READY]
            if len(ready) >= count:
                return
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"local cluster: expected {count} workers, found {len(ready)}; logs are in {self.folder}",
                    "local cluster", f"{count} workers", str(len(ready)))
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends all daemons, and removes their folder. Repeatable."""
        self._stop(keep=False)

    def _stop(self, keep: bool) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._at_end.detach() is not None:
            _end(self._daemons, self.folder, self._process, keep)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stop(keep=kind is not None)
        if error is not None and hasattr(error, "add_note"):
            error.add_note(f"the logs of the local cluster are in {self.folder}")

    def __repr__(self) -> str:
        return f"<LocalCluster of {self._workers} workers at {self.address}>"


def _end(daemons: list[_Daemon], folder: pathlib.Path, process: int, keep: bool = False) -> None:
    if process != os.getpid():
        return  # of a process that was forked: the cluster is its parent's
    for daemon in reversed(daemons):
        daemon.ask_to_end()
    try:
        for daemon in reversed(daemons):
            daemon.end()
    finally:  # also after Ctrl-C, which does not wait for those that are left
        for daemon in daemons:
            daemon.kill()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@_arguments.checked
def local_cluster(workers: int = 2, devices: int = 1) -> LocalCluster:
    """A controller and so many workers, each with so many devices in host memory, started; for a `with` block, or, over
    the cells of a notebook, until stop().

    The programs are those of the package, or of the folder $CROSSMESH_PROGRAMS. All end with the block, also when it
    raises, and when this process is killed; after an exception the folder with the logs is kept, and named in a note of
    the exception. Raises UnavailableError with a daemon's log if it does not start.
    """
    return LocalCluster(workers, devices)
