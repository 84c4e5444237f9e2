"""Makes a bundle of what was built, unpacks it in an empty folder, and runs it as another machine would.

    bundle_test.py <repository root> <build folder>
"""

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

    def test_the_first_hour_is_one_report(self):
        """Over the stand-ins, whose times say nothing: two ranks share their only GPU."""
        gpu, standin = "GPU-7374616e-6469-6e00-0000-000000000000", BUILD / "standin"
        environment = plain_environment() | {
            "CROSSMESH_DRIVER_LIBRARY": str(standin / "libcuda.so.1"),
            "CROSSMESH_NCCL_LIBRARY": str(standin / "libnccl.so.2"),
            "CROSSMESH_M2N_LIBRARY": str(standin / "libnccl_m2n.so.0"),
            "CROSSMESH_STANDIN_KERNELS": str(standin / "libcrossmesh_host_kernels.so.1"),
            "CROSSMESH_STANDIN_MEMORY_MIB": "4096"}
        report = pathlib.Path(self.scratch.name) / "first-hour.md"
        steps = ("steps", "memory", "kill", "m2n")
        done = subprocess.run([self.folder / "run", "--first-hour", "--steps", ",".join(steps), "--gpu", gpu,
                               "--mebibytes", "64", "--report", report],
                              env=environment, capture_output=True, text=True, check=False)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [line.split(" | ") for line in report.read_text().splitlines()[4:]]
        self.assertEqual([row[0].strip("| ") for row in rows], list(steps))
        results = [row[1] for row in rows]
        self.assertEqual(results, ["pass", "skip" if "nvidia-smi" in rows[1][3] else "pass", "pass", "pass"])
        self.assertIn("us a step", rows[0][3])

    def test_one_program_runs_by_itself(self):
        result = run(f"{self.folder}/run", f"{self.folder}/bin/tests_gpu_test", "--gtest_list_tests")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("KernelConformanceTest", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
