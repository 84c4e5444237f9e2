"""Debian machines with only what every Debian has, and the packages that others need, as folders."""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

CLONE_NEWNET = 0x40000000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A machine has them from Debian, and nobody reads them here.
UNREAD = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")


def sources() -> list[str]:
    """Where this machine gets Debian from, as lines of sources.list."""
    form = "$(ORIGIN) deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    targets = subprocess.run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"], capture_output=True,
                             text=True, check=True)
    return [line.removeprefix("Debian ") for line in targets.stdout.splitlines() if line.startswith("Debian ")]


def apt_options() -> list[str]:
    """How this machine reaches mirrors: proxies and the like."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
    lines = dump.stdout.splitlines()
    return [line.removesuffix(";") for line in lines if re.match(r"Acquire::https?::.* \".+\"", line)]


def what_is_missing() -> str:
    """Why no bare machine can be made here; empty when one can."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("cpack", "ip", "mmdebstrap", "unshare"):
        if not shutil.which(program):
            return f"no {program}"
    namespaces = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True,
                                check=False)
    if namespaces.returncode:
        return "no namespaces of mounts, networks and processes"
    if not sources():
        return "apt has no list of Debian's packages: apt-get update"
    _, mirror, release, _ = sources()[0].split()
    index = f"{mirror.rstrip('/')}/dists/{release}/Release"
    with tempfile.TemporaryDirectory() as folder:
        fetched = subprocess.run(["/usr/lib/apt/apt-helper", "download-file", index, f"{folder}/Release"],
                                 capture_output=True, check=False)
    return f"no network: {index}" if fetched.returncode else ""


def make_base(folder: pathlib.Path, packages: list[str]) -> None:
    """Debian's essential packages, and these with what they depend on."""
    exclusions = [f"--dpkgopt=path-exclude={pattern}" for pattern in UNREAD]
    options = [f"--aptopt={option}" for option in ['Acquire::Languages "none"', *apt_options()]]
    result = subprocess.run(["mmdebstrap", "--mode=root", "--variant=essential", "--dpkgopt=force-unsafe-io",
                             *exclusions, *options, f"--include={','.join(packages)}", "", folder, *sources()],
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"mmdebstrap: {result.stderr[-2000:]}")


def leave_the_network() -> None:
    """This process, and those that it starts, have a network of their own from here on: only a loopback interface."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


class BareMachine:
    """A copy of a base. What is mounted for it goes with the mount namespace of this process."""

    def __init__(self, base: pathlib.Path, root: pathlib.Path, host: str = "node-a"):
        self.root = root
        self.host = host
        subprocess.run(["cp", "--archive", base, root], check=True)
        subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
        subprocess.run(["mount", "--bind", "/dev", root / "dev"], check=True)
        # Which every Debian has, writable to all, and which the line above does not bring along.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / "dev/shm"], check=True)

    def path(self, path: str) -> pathlib.Path:
        """Where a file of the machine is on this one."""
        return self.root / path.lstrip("/")

    def command(self, *command: str, user: str = "root", **variables: str) -> list[str]:
        """What runs a command there, as a user that has no privilege unless it is root, and can get none."""
        confined = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
                                              "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        environment = {"PATH": PATH, "LC_ALL": "C.UTF-8"} | variables
        return ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), "chroot", str(self.root),
                *confined, *command]

    def run(self, *command: str, **options) -> str:
        """The output of a command there. AssertionError, with what it said, when it fails."""
        result = subprocess.run(self.command(*command, **options), capture_output=True, text=True, check=False)
        if result.returncode != 0:
            said = f"{result.stdout}{result.stderr}"
            raise AssertionError(f"{' '.join(command)}: exit status {result.returncode}\n{said}")
        return result.stdout

    def install(self, packages: list[pathlib.Path]) -> None:
        """With dpkg, which refuses what lacks a dependency."""
        for package in packages:
            shutil.copy(package, self.path("/root"))
        copies = [f"/root/{package.name}" for package in packages]
        self.run("dpkg", "--install", *copies, DEBIAN_FRONTEND="noninteractive")
        for copy in copies:
            self.path(copy).unlink()

    def files(self) -> set[str]:
        """Of its own disk: not what is mounted there."""
        found = subprocess.run(["find", ".", "-xdev", "-mindepth", "1"], cwd=self.root, capture_output=True,
                               text=True, check=True)
        return {path.removeprefix(".") for path in found.stdout.splitlines()}

    def user(self, name: str) -> dict[str, str] | None:
        """What /etc/passwd and /etc/shadow say of a user; None when there is none."""
        for line in self.path("/etc/passwd").read_text().splitlines():
            if line.startswith(f"{name}:"):
                _, _, uid, gid, _, home, shell = line.split(":")
                [password] = re.findall(rf"^{name}:([^:]*):", self.path("/etc/shadow").read_text(), re.MULTILINE)
                return {"uid": uid, "gid": gid, "home": home, "shell": shell, "password": password}
        return None
