"""Follows docs/operations.md: runs its commands in their order, as they stand, on two bare Debian machines.

    operations_test.py <repository root> <build folder>

A block of commands is indented by four spaces. A remark above it, `<!-- on node-b -->`, runs it on the second machine;
`<!-- not run: REASON -->` leaves it out, and the reason is printed. Machines have a network of their own, and a stand-in
for systemd. Exits with 77, which means skipped, where no such machines can be made; says why.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from dataclasses import dataclass

import bare_machine
from bare_machine import BareMachine
from deployed import BUILD, ROOT
from manager import Manager
from package_test import SKIPPED, dependencies

PAGE = ROOT / "docs/operations.md"
HOSTS = {"node-a": "192.0.2.1", "node-b": "192.0.2.2"}
MEMBERS = ("192.0.2.11", "192.0.2.12", "192.0.2.13")
# What the page uses that is neither essential nor what the packages need.
TOOLS = ["apt", "curl", "etcd-client", "jq", "procps", "systemd-standalone-tmpfiles"]
# Whether Linux gives storages huge pages.
PAGES_OF_STORAGES = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
BLOCK_WITHIN_S = 120
REMARK = re.compile(r"\s*<!-- (?:not run: (?P<reason>.+)|on (?P<host>[a-z-]+)) -->$")

# Each block goes on where the one before it has left its machine's shell.
SHELL = """set -eo pipefail
cd /root
[ ! -e /root/.exported ] || source /root/.exported
{commands}
export -p > /root/.exported
"""


@dataclass(frozen=True)
class Block:
    line: int
    commands: str
    host: str = "node-a"
    reason: str = ""  # why it is not run; empty: it is


def blocks(text: str) -> list[Block]:
    """The commands of a page, in order."""
    found: list[Block] = []
    lines = text.splitlines()
    remark: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.startswith("    ") and (number == 0 or not lines[number - 1].strip()):
            end = number
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            commands = textwrap.dedent("\n".join(lines[number:end])).strip()
            found.append(Block(number + 1, commands, **remark))
            remark, number = {}, end
            continue
        if line.strip():
            match = REMARK.match(line)
            remark = {name: value for name, value in match.groupdict().items() if value} if match else {}
        number += 1
    return found


class BlocksTest(unittest.TestCase):
    def test_a_block_is_what_is_indented_and_a_remark_is_for_the_next_one(self):
        page = ("Text:\n\n    one \\\n        more\n\n    two\n\n<!-- on node-b -->\n\n    three\n\n1. Item:\n\n"
                "   <!-- not run: no time -->\n\n       four\n\n<!-- on node-b -->\n\nText.\n\n    five\n")
        self.assertEqual(blocks(page), [Block(3, "one \\\n    more\n\ntwo"), Block(10, "three", "node-b"),
                                        Block(16, "four", reason="no time"), Block(22, "five")])


class Node(BareMachine):
    """A machine with a network of its own: one card, eth0, on the bridge that all have."""

    def __init__(self, base: pathlib.Path, root: pathlib.Path, host: str):
        super().__init__(base, root, host)
        outer = f"veth-{host}"
        for command in (f"netns add {host}", f"link add {outer} type veth peer name eth0 netns {host}",
                        f"link set {outer} master bridge up", f"-n {host} link set lo up",
                        f"-n {host} link set eth0 up", f"-n {host} address add {HOSTS[host]}/24 dev eth0"):
            subprocess.run(["ip", *command.split()], check=True)

    def command(self, *command: str, **options) -> list[str]:
        return ["ip", "netns", "exec", self.host, *super().command(*command, **options)]


def start_etcd(scratch: pathlib.Path) -> list[subprocess.Popen]:
    """Three members, as the page wants them."""
    cluster = ",".join(f"{address}=http://{address}:2380" for address in MEMBERS)
    members = []
    for address in MEMBERS:
        subprocess.run(["ip", "address", "add", f"{address}/24", "dev", "bridge"], check=True)
        with (scratch / f"etcd-{address}.log").open("w") as log:
            members.append(subprocess.Popen(
                ["etcd", "--name", address, "--data-dir", scratch / f"etcd-{address}",
                 "--listen-client-urls", f"http://{address}:2379", "--advertise-client-urls", f"http://{address}:2379",
                 "--listen-peer-urls", f"http://{address}:2380", "--initial-advertise-peer-urls",
                 f"http://{address}:2380", "--initial-cluster", cluster, "--max-txn-ops=4096"], stdout=log, stderr=log))
    return members


class OperationsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="operate")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.scratch], check=True)
        self.addCleanup(subprocess.run, ["umount", "--recursive", "--lazy", self.scratch], check=True)
        subprocess.run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-B", self.scratch / "packages"], check=True,
                       stdout=subprocess.DEVNULL)
        packages = sorted((self.scratch / "packages").glob("*.deb"))
        bare_machine.make_base(self.scratch / "base", dependencies(packages) + TOOLS)
        bare_machine.leave_the_network()
        # Names of networks are this test's alone.
        pathlib.Path("/run/netns").mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
        subprocess.run(["ip", "link", "add", "bridge", "type", "bridge"], check=True)
        subprocess.run(["ip", "link", "set", "bridge", "up"], check=True)
        for member in start_etcd(self.scratch):
            self.addCleanup(member.wait)
            self.addCleanup(member.kill)
        self.machines = {host: Node(self.scratch / "base", self.scratch / host, host) for host in HOSTS}
        for machine in self.machines.values():
            machine.path("/root/packages").mkdir()
            for package in packages:
                shutil.copy(package, machine.path("/root/packages"))
            machine.path(PAGES_OF_STORAGES).parent.mkdir(parents=True)
            machine.path(PAGES_OF_STORAGES).touch()
            self.addCleanup(Manager(machine).stop)

    def run_block(self, block: Block) -> None:
        machine = self.machines[block.host]
        machine.path("/root/.block").write_text(SHELL.format(commands=block.commands))
        result = subprocess.run(machine.command("timeout", str(BLOCK_WITHIN_S), "bash", "/root/.block"),
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return
        logs = "".join(f"{log.name}: {log.read_text()[-2000:]}\n" for log in machine.path("/root").glob("*.log"))
        self.fail(f"{PAGE.name}:{block.line} on {block.host}: exit status {result.returncode}\n{block.commands}\n"
                  f"{result.stdout}{result.stderr}{logs}")

    def test_the_page_leads_from_a_bare_machine_to_a_cluster_and_back(self):
        found = blocks(PAGE.read_text())
        for block in found:
            if block.reason:
                print(f"not run: {PAGE.name}:{block.line}: {block.reason}")
            else:
                self.run_block(block)
        self.assertGreater(len([block for block in found if not block.reason]), 10)
        for machine in self.machines.values():
            self.assertEqual(machine.path(PAGES_OF_STORAGES).read_text(), "advise")


def main() -> None:
    if reason := bare_machine.what_is_missing() or ("" if shutil.which("etcd") else "no etcd"):
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    if os.getpid() != 1:
        # The first process of a namespace takes all others along when it ends.
        os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable,
                              "-B", *sys.argv])
    unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    main()
