"""Holds the units of systemd to the programs, to systemd's own checks and to each other.

    units_test.py <repository root> <build folder>
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import deployed
from deployed import BUILD, DEPLOY

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SPECIFIERS = {"%t": "/run", "%S": "/var/lib", "%l": "node-a"}
# Of systemd-analyze security, from 0 to 10: what a unit exposes of the machine.
EXPOSURE_MAX = 2.0


def defaults(unit: pathlib.Path) -> str:
    return unit.with_suffix(".default").read_text()


def alternatives(text: str) -> list[str]:
    """An environment file as it comes, and with each of its examples."""
    return [text, *(f"{text}\n{example}" for example in re.findall(r"^#([A-Z_]+=.*)$", text, re.MULTILINE))]


def analyze(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


class UnitsTest(unittest.TestCase):
    def each(self):
        self.assertEqual([unit.stem for unit in UNITS], ["crossmesh-controller", "crossmesh-worker"])
        for unit in UNITS:
            with self.subTest(unit.name):
                yield unit, deployed.settings(unit)

    def test_the_program_understands_every_default_and_every_example(self):
        for unit, settings in self.each():
            own = deployed.own_environment(settings, SPECIFIERS)
            for text in alternatives(defaults(unit)):
                command = deployed.started(settings, own | deployed.environment(text), SPECIFIERS)
                self.assertEqual(command[0], unit.stem)
                self.assertEqual(deployed.refusal(command), "")
                self.assertEqual(deployed.exposed_without_consent(command), [])

    def test_who_keeps_metadata_in_etcd_remembers_it_in_the_units_own_folder(self):
        unit = DEPLOY / "systemd/crossmesh-controller.service"
        [folder] = deployed.settings(unit)["StateDirectory"]
        [example] = re.findall(r"^#(STORE_FLAGS=.*--etcd .*)$", defaults(unit), re.MULTILINE)
        page = (deployed.ROOT / "docs/operations.md").read_text()
        for text in (example, *re.findall(r'^ *(STORE_FLAGS="[^"]*--etcd [^"]*")', page, re.MULTILINE)):
            flags = deployed.environment(text)["STORE_FLAGS"].split()
            self.assertEqual(deployed.flag(flags, "--etcd-watermark"), f"/var/lib/{folder}/etcd.watermark")

    def test_folders_of_the_command_line_are_those_that_systemd_makes(self):
        for unit, settings in self.each():
            said = " ".join([*settings["ExecStart"], *settings["Environment"]])
            for specifier, setting in (("%t", "RuntimeDirectory"), ("%S", "StateDirectory")):
                folders = set(re.findall(rf'{specifier}/([^/ "]+)', said))
                self.assertEqual(folders, set(settings[setting]))

    @unittest.skipUnless(shutil.which("systemd-tmpfiles"), "no systemd-tmpfiles")
    def test_storages_get_huge_pages_where_linux_leaves_the_choice(self):
        choice = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            create = ["systemd-tmpfiles", "--create", f"--root={root}", DEPLOY / "systemd/crossmesh-worker.tmpfiles"]
            subprocess.run(create, check=True)
            self.assertFalse((root / choice).exists())
            (root / choice).parent.mkdir(parents=True)
            (root / choice).touch()
            subprocess.run(create, check=True)
            self.assertEqual((root / choice).read_text(), "advise")

    def test_systemd_waits_for_longer_than_the_daemon_takes_to_stop(self):
        for unit, settings in self.each():
            usage = subprocess.run([BUILD / "bin" / unit.stem, "--help"], capture_output=True, text=True, check=True)
            own = re.search(r"--(?:shutdown|drain)-timeout FLOAT.*=(\d+)$", usage.stdout, re.MULTILINE)
            self.assertIsNotNone(own, usage.stdout)
            self.assertGreater(int(settings["TimeoutStopSec"][0]), int(own[1]))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_systemd_finds_nothing_wrong(self):
        for unit, _ in self.each():
            with tempfile.TemporaryDirectory() as folder:
                # The program is not installed here.
                path = pathlib.Path(folder) / unit.name
                path.write_text(unit.read_text().replace("ExecStart=", f"ExecStart={BUILD}/bin/"))
                result = analyze("verify", "--recursive-errors=no", "--man=no", str(path))
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_little_of_the_machine_is_exposed(self):
        for unit, _ in self.each():
            limit = f"--threshold={EXPOSURE_MAX * 10:.0f}"
            result = analyze("security", "--offline=true", "--no-pager", limit, str(unit))
            self.assertEqual(result.returncode, 0, result.stdout[-300:])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
