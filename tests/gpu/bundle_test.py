"""Makes a bundle of what was built, unpacks it in an empty folder, and runs it as another machine would.

    bundle_test.py <repository root> <build folder>
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PROGRAMS = ("crossmesh", "crossmesh-controller", "crossmesh-gpu", "crossmesh-worker")
CHECKS = ("tests_gpu", "tests_gpu_ranks", "gpu_kernel_benchmark")


def plain_environment() -> dict[str, str]:
    """Without what tells programs where libraries are."""
    return {name: value for name, value in os.environ.items()
            if name != "LD_LIBRARY_PATH" and not name.startswith("CROSSMESH_")}


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, env=plain_environment(), cwd="/", capture_output=True, text=True, check=False)


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        archive = pathlib.Path(cls.scratch.name) / "bundle.tar.gz"
        subprocess.run([ROOT / "scripts/bundle", BUILD, archive], check=True)
        subprocess.run(["tar", "--extract", "--file", archive, "--directory", cls.scratch.name], check=True)
        cls.folder = pathlib.Path(cls.scratch.name) / "crossmesh-gpu-checks"

    def test_every_check_passes_or_says_what_it_lacks(self):
        result = run(f"{self.folder}/run")
        print(result.stdout)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.split()}
        for program in PROGRAMS:
            self.assertEqual(rows[program][0], "pass")
        for check in CHECKS:
            outcome, *_, why = rows[check][0], " ".join(rows[check][4:])
            self.assertIn(outcome, ("pass", "skip"))
            self.assertTrue(outcome == "pass" or why.startswith("no GPU: "), why)

    def test_every_program_starts_with_the_c_library_of_the_bundle(self):
        loader = next((self.folder / "lib/c").glob("ld-linux*"))
        for program in sorted((self.folder / "bin").iterdir()):
            result = run(str(loader), "--library-path", f"{self.folder}/lib/c:{self.folder}/lib", str(program), "--help")
            self.assertEqual(result.returncode, 0, f"{program.name}: {result.stderr}")

    def driver_tool(self, used_mebibytes: list[int], persistence: str) -> pathlib.Path:
        """A folder with a nvidia-smi, which tells these one after the other."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch.name))
        (folder / "used").write_text("".join(f"{mebibytes}\n" for mebibytes in used_mebibytes))
        tool = folder / "nvidia-smi"
        tool.write_text(f"""#!/bin/bash
case "$*" in
  *memory.used*) sed -n 1p {folder}/used && sed -i 1d {folder}/used ;;
  *persistence_mode*) echo {persistence} ;;
  *) exit 1 ;;
esac
""")
        tool.chmod(0o755)
        return folder

    def first_hour(self, steps: tuple[str, ...], tools: pathlib.Path) -> tuple[int, list[dict], str]:
        """Over the stand-ins, whose times say nothing: two ranks share their only GPU. Exit status and both reports."""
        gpu, standin = "GPU-7374616e-6469-6e00-0000-000000000000", BUILD / "standin"
        environment = plain_environment() | {
            "CROSSMESH_DRIVER_LIBRARY": str(standin / "libcuda.so.1"),
            "CROSSMESH_NCCL_LIBRARY": str(standin / "libnccl.so.2"),
            "CROSSMESH_M2N_LIBRARY": str(standin / "libnccl_m2n.so.0"),
            "CROSSMESH_STANDIN_KERNELS": str(standin / "libcrossmesh_host_kernels.so.1"),
            "CROSSMESH_STANDIN_MEMORY_MIB": "4096",
            "PATH": f"{tools}:{os.environ['PATH']}"}
        report = tools / "first-hour.md"
        done = subprocess.run([self.folder / "run", "--first-hour", "--steps", ",".join(steps), "--gpu", gpu,
                               "--mebibytes", "64", "--report", report],
                              env=environment, capture_output=True, text=True, check=False)
        print(done.stdout)
        document = json.loads(report.with_suffix(".json").read_text())
        self.assertEqual(document["gpus"], [gpu])
        self.assertEqual([step["step"] for step in document["steps"]], list(steps), done.stderr)
        return done.returncode, document["steps"], report.read_text()

    def test_the_first_hour_is_one_report(self):
        names = ("doctor", "ranks", "steps", "memory", "kill", "m2n")
        status, steps, text = self.first_hour(names, self.driver_tool([100, 300, 1100, 1104, 100], "Disabled"))
        rows = [line.split(" | ") for line in text.splitlines()[4:]]
        self.assertEqual([(row[0].strip("| "), row[1]) for row in rows],
                         [(step["step"], step["result"]) for step in steps])
        doctor, ranks, sweep, memory, kill, m2n = steps
        # Whether this machine has all that a cluster needs is not what is tested.
        self.assertEqual(status, 1 if doctor["result"] == "FAIL" else 0)
        self.assertEqual([step["result"] for step in steps[1:]], ["pass"] * 5, text)
        self.assertIn("GPUs", [check["name"] for check in doctor["figures"]["checks"]])
        for step in (doctor, kill):
            self.assertEqual(step["figures"]["persistence_mode"], "Disabled")
        self.assertGreater(ranks["figures"]["throughput_bytes_per_second"], 0)
        self.assertEqual(list(m2n["figures"]["bytes_per_second"]), ["relay", "m2n"])
        self.assertIn("us a step", sweep["seen"])
        self.assertEqual(list(sweep["figures"]["seconds"]), ["64", "256"])
        self.assertGreaterEqual(sweep["figures"]["costs"]["group_ns"], 50_000)
        self.assertEqual(memory["figures"]["used_mebibytes"],
                         {"before": 100, "workers up": 300, "after a run": 1100, "with another communicator": 1104,
                          "stopped": 100})

    def test_memory_that_is_not_given_back_is_named(self):
        status, (memory, *_), _ = self.first_hour(("memory",), self.driver_tool([100, 300, 1100, 1400, 150], "Enabled"))
        self.assertEqual((status, memory["result"]), (1, "FAIL"))
        self.assertIn("50 MiB are not given back at the end", memory["change"])
        self.assertIn("300 MiB of a communicator that was destroyed", memory["change"])

    def test_a_driver_tool_that_fails_fails_the_step(self):
        tools = self.driver_tool([], "Enabled")
        (tools / "nvidia-smi").write_text("#!/bin/bash\nexit 9\n")
        status, (memory, *_), _ = self.first_hour(("memory",), tools)
        self.assertEqual((status, memory["result"]), (1, "FAIL"))
        self.assertIn("nvidia-smi", memory["seen"])

    def test_one_program_runs_by_itself(self):
        result = run(f"{self.folder}/run", f"{self.folder}/bin/tests_gpu_test", "--gtest_list_tests")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("KernelConformanceTest", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
