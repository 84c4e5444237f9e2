"""Runs the batch script of Slurm, and the daemons that it starts, with stand-ins for srun and scontrol.

    slurm_test.py <repository root> <build folder>

A stand-in knows the options that the script may use, and nothing else; nodes are addresses of loopback.
"""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

from deployed import BUILD, DEPLOY

SCRIPT = DEPLOY / "slurm/crossmesh.sbatch"
ADDRESSES = {"node-a": "127.0.0.2", "node-b": "127.0.0.3", "node-c": "127.0.0.4"}
WITHIN_S = 120

# As Slurm's: the program runs on the node, its output goes to the file, signals are passed on.
SRUN = """#!{python}
import argparse, os, sys
options = argparse.ArgumentParser(allow_abbrev=False)
for name in ("--nodes", "--ntasks"):
    options.add_argument(name, required=True, choices=["1"])
options.add_argument("--nodelist", required=True, choices={nodes})
options.add_argument("--overlap", action="store_true", required=True)
options.add_argument("--output", required=True)
options.add_argument("command", nargs=argparse.REMAINDER)
found = options.parse_args()
with open({calls!r}, "a") as calls:
    print(found.nodelist, *found.command, file=calls)
with open(found.output, "w") as output:
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
os.environ["SLURMD_NODENAME"] = found.nodelist
os.execvp(found.command[0], found.command)
"""

SCONTROL = """#!{python}
import sys
addresses = {addresses}
if sys.argv[1:] == ["show", "hostnames", "node-[a-c]"]:
    print(*addresses, sep="\\n")
elif sys.argv[1:3] == ["show", "node"] and sys.argv[4:] == ["--oneliner"]:
    print(f"NodeName={{sys.argv[3]}} Arch=x86_64 CoresPerSocket=1 NodeAddr={{addresses[sys.argv[3]]}} NodeHostName=x")
else:
    sys.exit(f"scontrol: unknown: {{sys.argv[1:]}}")
"""


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class SlurmTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="slurm")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.folder = self.scratch / "crossmesh-17"
        self.calls = self.scratch / "calls"
        self.stand_in("srun", SRUN.format(python=sys.executable, nodes=list(ADDRESSES), calls=str(self.calls)))
        self.stand_in("scontrol", SCONTROL.format(python=sys.executable, addresses=ADDRESSES))
        self.environment = os.environ | {
            "PATH": f"{self.scratch / 'bin'}:{BUILD / 'bin'}:{os.environ['PATH']}", "TMPDIR": scratch.name,
            "CROSSMESH_INTERFACE": "lo", "SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node-[a-c]",
            "SLURM_SUBMIT_DIR": scratch.name}

    def stand_in(self, name: str, text: str) -> None:
        path = self.scratch / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def job(self, *command: str, **variables: str) -> subprocess.Popen:
        process = subprocess.Popen([SCRIPT, *command], env=self.environment | variables, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def ready(self, name: str) -> dict:
        return json.loads((self.folder / f"{name}.ready").read_text())

    def assert_all_has_ended(self):
        for log in self.folder.glob("*.log"):
            self.assertFalse((self.folder / f"{log.stem}.ready").exists(), log.read_text())

    def test_a_command_has_a_controller_and_a_worker_on_every_node(self):
        look = f"crossmesh worker list --insecure --json; cp {self.folder}/*.ready {self.scratch}"
        out, error = (job := self.job("bash", "-c", look)).communicate(timeout=WITHIN_S)
        self.assertEqual(job.returncode, 0, error)
        workers = {worker["name"]: worker for worker in json.loads(out)["workers"]}
        self.assertEqual(set(workers), set(ADDRESSES))
        for name, worker in workers.items():
            self.assertEqual((worker["devices"], worker["state"]), (f"{name}.0", "WORKER_STATE_READY"))
        for name, address in (ADDRESSES | {"controller": ADDRESSES["node-a"]}).items():
            ready = json.loads((self.scratch / f"{name}.ready").read_text())
            self.assertIn(f'"{address}:', json.dumps(ready))
            self.assertFalse(is_alive(ready["pid"]), name)
        where = [line.split()[:2] for line in self.calls.read_text().splitlines()]
        self.assertEqual(where[0], ["node-a", "crossmesh-controller"])
        self.assertCountEqual(where[1:], ([node, "crossmesh-worker"] for node in ADDRESSES))
        self.assert_all_has_ended()

    def test_a_job_ends_as_its_command_does(self):
        job = self.job("bash", "-c", "exit 3")
        job.communicate(timeout=WITHIN_S)
        self.assertEqual(job.returncode, 3)
        self.assert_all_has_ended()

    def test_a_job_whose_time_is_over_leaves_nothing(self):
        job = self.job("bash", "-c", "echo runs; exec sleep infinity")
        self.assertEqual(job.stdout.readline(), "runs\n")
        job.send_signal(signal.SIGTERM)
        job.wait(WITHIN_S)
        self.assertEqual(job.returncode, 143)
        self.assert_all_has_ended()

    def test_a_worker_that_does_not_start_ends_the_job_with_its_log(self):
        job = self.job("true", CROSSMESH_WORKER_FLAGS=shlex.join(["--memory-max", "nonsense"]))
        _, error = job.communicate(timeout=WITHIN_S)
        self.assertEqual(job.returncode, 1)
        self.assertIn(f"node-a does not serve; see {self.folder}/node-a.log", error)
        self.assertIn("nonsense", (self.folder / "node-a.log").read_text())
        self.assert_all_has_ended()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
