"""Makes packages of what was built, and installs, runs and removes them on bare Debian machines.

    package_test.py <repository root> <build folder>

Exits with 77, which means skipped, where no such machine can be made; says why.
"""

import itertools
import gzip
import json
import mmap
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

import bare_machine
import deployed
from bare_machine import BareMachine
from deployed import BUILD
from service import Service

SKIPPED = 77
PACKAGES = ("crossmesh-client", "crossmesh-controller", "crossmesh-worker")
PROGRAMS = ("crossmesh", "crossmesh-controller", "crossmesh-gpu", "crossmesh-worker")
USER = "crossmesh"
# What Debian's tools leave of any package: their records, and files that they moved aside before writing them anew.
RECORDS = re.compile(r"/var/(lib/(dpkg|systemd)|log|cache)/|/etc/((passwd|group|g?shadow|subuid|subgid)-?|\.pwd\.lock)$")


def control(package: pathlib.Path, field: str) -> str:
    result = subprocess.run(["dpkg-deb", "--field", package, field], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def dependencies(packages: list[pathlib.Path]) -> list[str]:
    """Names of all that the packages depend on; of alternatives the first."""
    depends = ", ".join(filter(None, (control(package, "Depends") for package in packages)))
    return sorted({re.split(r"[ |]", entry.strip())[0] for entry in depends.split(",")})


def ask(path: pathlib.Path, **request) -> tuple[dict, list[int]]:
    """A worker's answer at its memory socket, and the descriptors that come along."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
        worker.connect(str(path))
        worker.send(json.dumps(request).encode())
        reply, descriptors, _, _ = socket.recv_fds(worker, 65536, 1)
    return json.loads(reply), descriptors


class PackageTest(unittest.TestCase):
    numbers = itertools.count()

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="install")
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", cls.scratch], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", "--recursive", "--lazy", cls.scratch], check=True)
        subprocess.run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.scratch / "packages"], check=True)
        cls.packages = sorted((cls.scratch / "packages").glob("*.deb"))
        bare_machine.make_base(cls.scratch / "base", dependencies(cls.packages))
        bare_machine.leave_the_network()

    def setUp(self):
        # A short name: sockets below have at most 107 bytes.
        self.machine = BareMachine(self.scratch / "base", self.scratch / f"machine{next(self.numbers)}")
        self.before = self.machine.files()
        self.machine.install(self.packages)

    def crossmesh(self, *arguments: str) -> str:
        return self.machine.run("crossmesh", *arguments, user=USER, CROSSMESH_CONTROLLER="127.0.0.1:7400")

    def start(self, name: str) -> Service:
        service = Service(self.machine, name)
        self.addCleanup(service.kill)
        return service

    def test_there_is_a_package_of_each_kind_and_it_says_what_it_is(self):
        self.assertEqual([control(package, "Package") for package in self.packages], list(PACKAGES))
        for package in self.packages:
            version = control(package, "Version")
            self.assertRegex(version, rf"^{re.escape(deployed.project_version())}(~[0-9a-z.]+)?$")
            self.assertIn("libc6", control(package, "Depends"))
            self.assertRegex(control(package, "Description"), "sharded tensors")
            listing = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True)
            for line in listing.stdout.splitlines():
                self.assertRegex(line, r"^[d-]rw(x|-)r-(x|-)r-(x|-) root/root ")
            self.assertIn(f"./usr/share/doc/{control(package, 'Package')}/copyright", listing.stdout)

    def test_programs_say_their_version(self):
        for program in PROGRAMS:
            said = self.machine.run(program, "--version", user=USER)
            self.assertRegex(said, rf"^{program} {re.escape(deployed.project_version())}( \(\S+\))?\n$")

    def test_daemons_run_by_their_units_and_move_tensors(self):
        controller, worker = self.start("crossmesh-controller"), self.start("crossmesh-worker")
        for daemon in (controller, worker):
            self.assertIn(" serves", self.crossmesh("health", f"/run/{daemon.name}/ready"))
        host = self.machine.host
        [listed] = json.loads(self.crossmesh("worker", "list", "--json"))["workers"]
        self.assertEqual((listed["name"], listed["devices"]), (host, f"{host}.0"))

        self.machine.path("/tmp/manifest.json").write_text(
            json.dumps({"tensors": [{"name": "weight", "dtype": "F32", "shape": [64, 64]}]}))
        memory_socket = self.machine.path("/run/crossmesh-worker/memory.sock")
        size = 64 * 64 * 4
        created, [descriptor] = ask(memory_socket, op="create", storage="weights", device=f"{host}.0", bytes=size)
        values = os.urandom(size)
        mmap.mmap(descriptor, size)[:] = values
        side = ["--source", f"on {host}.0", "--source-layout", "[...]", "--source-storage", "weights"]
        other = [word.replace("source", "destination").replace("weights", "served") for word in side]
        self.crossmesh("reshard", "--manifest", "/tmp/manifest.json", *side, *other, "--create-destination")
        _, [descriptor] = ask(memory_socket, op="open", storage="served", device=f"{host}.0")
        self.assertEqual(mmap.mmap(descriptor, size)[:], values)

        self.assertEqual((worker.stop(), controller.stop()), (0, 0))
        self.assertFalse(self.machine.path("/run/crossmesh-worker/ready").exists())

    def test_the_demo_finds_its_files_and_its_daemons(self):
        demo = json.loads(self.crossmesh("demo", "--strategy", "relay", "--json"))
        self.assertTrue(demo["verified"])
        self.assertEqual(demo["tensors"], 148)

    def test_units_are_enabled(self):
        for name in ("crossmesh-controller", "crossmesh-worker"):
            link = self.machine.path(f"/etc/systemd/system/multi-user.target.wants/{name}.service")
            self.assertEqual(os.readlink(link).removeprefix("/usr"), f"/lib/systemd/system/{name}.service")

    def test_systemd_finds_what_pages_storages_get(self):
        self.assertTrue(self.machine.path("/usr/lib/tmpfiles.d/crossmesh-worker.conf").exists())
        self.assertFalse(self.machine.path("/usr/lib/tmpfiles.d/crossmesh-controller.conf").exists())

    def test_daemons_have_a_user_without_password_and_shell(self):
        user = self.machine.user(USER)
        self.assertRegex(user["password"], r"^[!*]+$")
        self.assertEqual(user["shell"], "/usr/sbin/nologin")
        self.assertLess(int(user["uid"]), 1000)

    def test_installing_again_keeps_what_an_administrator_changed(self):
        configuration = self.machine.path("/etc/default/crossmesh-worker")
        configuration.write_text('WORKER_FLAGS="--controller 192.0.2.1:7400"\n')
        self.machine.install(self.packages)
        self.assertEqual(configuration.read_text(), 'WORKER_FLAGS="--controller 192.0.2.1:7400"\n')

    def test_removal_keeps_configuration_and_state_and_purging_keeps_the_user_only(self):
        state = self.machine.path("/var/lib/crossmesh-worker/epoch")
        state.parent.mkdir()
        state.write_text("7")
        self.machine.run("dpkg", "--remove", *PACKAGES)
        for program in PROGRAMS:
            self.assertFalse(self.machine.path(f"/usr/bin/{program}").exists())
        self.assertTrue(self.machine.path("/etc/default/crossmesh-worker").exists())
        self.assertEqual(state.read_text(), "7")

        user = self.machine.user(USER)
        self.machine.run("dpkg", "--purge", *PACKAGES)
        left = {path for path in self.machine.files() ^ self.before if not RECORDS.match(path)}
        self.assertEqual(left, set())
        self.assertEqual(self.machine.user(USER), user)
        self.assertNotIn("crossmesh", self.machine.run("dpkg-query", "--list"))

    def test_cmake_installs_programs_and_their_files_below_any_prefix(self):
        prefix = self.machine.path("/opt/crossmesh")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, capture_output=True)
        found = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
        documents = {f"share/doc/{package}/{name}" for package in PACKAGES for name in ("copyright", "operations.md")}
        examples = {f"share/crossmesh/{name}" for name in ("crossmesh_dlpack.h", "crossmesh_memory.py", "demo.py",
                                                             "gpt2.fsdp.rules", "gpt2.json", "gpt2.tp.rules")}
        drawing = {f"share/crossmesh/draw/{name}.py" for name in
                   ("draw", "layers", "network", "pipeline", "plan", "plan_picture", "redistribution", "sheet")}
        emitted = {f"share/crossmesh/emit/{name}.py" for name in ("digits", "redistribution_jax", "redistribution_torch")}
        manuals = {"share/man/man1/crossmesh.1.gz", "share/man/man8/crossmesh-controller.8.gz",
                   "share/man/man8/crossmesh-worker.8.gz"}
        completion = {"share/bash-completion/completions/crossmesh", "share/fish/vendor_completions.d/crossmesh.fish",
                      "share/zsh/vendor-completions/_crossmesh"}
        self.assertEqual(found, {f"bin/{program}" for program in PROGRAMS} | documents | examples | drawing | emitted
                         | manuals | completion)
        for manual in manuals:
            self.assertIn(b".SH NAME", gzip.decompress((prefix / manual).read_bytes()))

    def test_pictures_name_the_package_that_they_lack(self):
        self.assertEqual(control(self.packages[0], "Recommends"), "python3-matplotlib")
        with self.assertRaisesRegex(AssertionError, "python3-matplotlib"):
            self.crossmesh("simulate", "--manifest", "/usr/share/crossmesh/gpt2.json", "--source", "on a.0",
                           "--source-layout", "[...]", "--destination", "on b.0", "--destination-layout", "[...]",
                           "--svg", "/tmp/plan.svg")


def main() -> None:
    if reason := bare_machine.what_is_missing():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    if os.getpid() != 1:
        # The first process of a namespace takes all others along when it ends.
        os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable,
                              "-B", *sys.argv])
    unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    main()
