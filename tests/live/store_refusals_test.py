"""Causes what a controller's store and its etcd cannot survive: it ends within a second, with a line that says why.

    store_refusals_test.py <build folder>

Exits with 77, which means skipped, where file systems cannot be mounted.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Callable, Iterator

SKIPPED = 77
BIN = pathlib.Path(sys.argv[1]).resolve() / "bin"
CONTROLLER = BIN / "crossmesh-controller"
MIB = 1 << 20
WITHIN_S = 30
# What the store wants beside its reserve, and both.
FLOOR_BYTES = 64 * MIB
ROOM_BYTES = 3 * FLOOR_BYTES


def seconds_to_start() -> float:
    """What the program takes for nothing: more under a sanitizer, or on a machine that is busy."""
    begin = time.monotonic()
    subprocess.run([CONTROLLER, "--version"], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


class StoreRefusalsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="refuse")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.state = self.scratch / "store"
        self.address = f"unix:{self.scratch}/socket"

    def mount(self, bytes_: int) -> None:
        """A file system of that size, with the store's folder in it."""
        disk = self.scratch / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={bytes_}", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", disk], check=True)
        self.state = disk / "store"

    @contextlib.contextmanager
    def controller(self, *flags: str):
        """One that serves, and is stopped in the end."""
        ready = self.scratch / "ready"
        process = subprocess.Popen([CONTROLLER, "--listen", self.address, "--ready-file", ready, "--state-dir",
                                    self.state, *flags], stderr=subprocess.PIPE, text=True)
        try:
            # Whatever comes before that is of the log.
            for line in process.stderr:
                if json.loads(line)["event"] == "controller_serves":
                    break
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=WITHIN_S)

    def crossmesh(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([BIN / "crossmesh", *words, "--controller", self.address], capture_output=True, text=True,
                              check=False)

    def create_mesh(self, name: str) -> subprocess.CompletedProcess:
        return self.crossmesh("mesh", "create", name, "x=1 on a.0")

    def change(self, statement: str) -> None:
        with contextlib.closing(sqlite3.connect(self.state / "store.db")) as database:
            database.executescript(statement)

    @staticmethod
    def times(act: Callable[[], object]) -> Iterator[float]:
        """Of three times, as they are asked for."""
        for _ in range(3):
            begin = time.monotonic()
            act()
            yield time.monotonic() - begin

    def assert_refused(self, status: int, *words: str, flags: tuple[str, ...] = ()) -> None:
        """A controller ends with the status, in time, and one line of its log is an error and has the words."""
        command = [CONTROLLER, "--listen", f"{self.address}-other", *(flags or ("--state-dir", self.state))]
        limit = 1 + 2 * seconds_to_start()
        # A machine may be late once.
        for took in self.times(lambda: subprocess.run(command, capture_output=True, check=False, timeout=WITHIN_S)):
            if took < limit:
                break
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
        errors = [line for line in map(json.loads, result.stderr.splitlines()) if line["level"] == "error"]
        self.assertEqual((result.returncode, len(errors)), (status, 1), result.stderr)
        for word in words:
            self.assertIn(word, errors[0]["status"])
        self.assertLess(took, limit)

    def test_a_second_controller_on_a_folder_is_refused(self):
        with self.controller() as first:
            self.assert_refused(73, str(self.state), "expected no other controller", f"process {first.pid}", "stop that process")
            self.assertEqual(self.create_mesh("m").returncode, 0)

    def test_a_lock_that_something_else_holds_is_named(self):
        with self.controller():
            pass
        with (self.state / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assert_refused(73, str(self.state), "expected no other controller")
        with self.controller():
            pass

    def test_a_damaged_store_is_refused(self):
        with self.controller():
            self.create_mesh("m")
        self.change("UPDATE versions SET value = x'00' || value")
        self.assert_refused(65, str(self.state), "revision", "restore the last backup")

    def test_a_store_that_was_set_back_is_refused(self):
        with self.controller():
            pass
        self.change("UPDATE meta SET revision = 7")
        self.assert_refused(65, str(self.state), "revision", "restore the last backup")

    def test_a_newer_store_is_refused(self):
        with self.controller():
            pass
        self.change("PRAGMA user_version = 99")
        self.assert_refused(78, str(self.state), "99", "install that release")

    def test_a_folder_that_others_may_write_to_is_refused(self):
        with self.controller():
            pass
        self.state.chmod(0o770)
        self.assert_refused(77, str(self.state), "chmod go-w")

    def test_a_file_in_the_place_of_the_folder_is_refused(self):
        self.state.write_text("")
        self.assert_refused(77, str(self.state))

    def test_a_disk_that_cannot_be_written_is_refused(self):
        self.mount(ROOM_BYTES)
        with self.controller():
            pass
        subprocess.run(["mount", "-o", "remount,ro", self.state.parent], check=True)
        self.assert_refused(77, str(self.state), "Read-only file system", "writable")
        subprocess.run(["mount", "-o", "remount,rw", self.state.parent], check=True)
        with self.controller():
            pass

    def test_a_disk_without_room_is_refused(self):
        self.mount(MIB)
        self.assert_refused(74, str(self.state), "STORE_FULL", "bytes free", "make room")

    def test_a_disk_that_is_full_refuses_changes_until_there_is_room(self):
        self.mount(ROOM_BYTES)
        with self.controller():
            self.assertEqual(self.create_mesh("before").returncode, 0)
            filler = self.state.parent / "filler"
            room = os.statvfs(self.state).f_bavail * os.statvfs(self.state).f_bsize
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, room - FLOOR_BYTES + MIB)
            begin = time.monotonic()
            refused = self.create_mesh("meanwhile")
            self.assertLess(time.monotonic() - begin, 1 + 2 * seconds_to_start())
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("STORE_FULL", refused.stderr)
            self.assertIn("before", self.crossmesh("mesh", "list").stdout)
            filler.unlink()
            self.assertEqual(self.create_mesh("after").returncode, 0)
            listed = self.crossmesh("mesh", "list").stdout
            self.assertIn("after", listed)
            self.assertNotIn("meanwhile", listed)

    def test_an_address_in_use_is_refused(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assert_refused(75, address, flags=("--listen", address))

    def test_an_etcd_that_is_away_is_named(self):
        with socket.socket() as nobody:
            # Bound, so that nobody else gets it, and not listening.
            nobody.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{nobody.getsockname()[1]}"
            self.assert_refused(70, f"etcd at {endpoint}", flags=("--etcd", endpoint))

    def test_a_folder_beside_an_etcd_is_refused(self):
        self.assert_refused(64, "expected --state-dir or --etcd, found both",
                            flags=("--etcd", "127.0.0.1:2379", "--state-dir", str(self.state)))


def main() -> None:
    if "CROSSMESH_OWN_MOUNTS" not in os.environ:
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
            print("skipped: no namespace of mounts")
            sys.exit(SKIPPED)
        os.environ["CROSSMESH_OWN_MOUNTS"] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-B", *sys.argv])
    unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    main()
