"""What a wheel has, laid out as pip does, and the quick starts as README.md and docs/python.md write them.

    wheel_test.py <repository root> <build folder>

Exits with 77, which means skipped, where the Python package was not built.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PYTHON = ROOT / ".python/bin/python"


def blocks(page: str, heading: str) -> list[str]:
    """Of Python, below the heading."""
    below = (ROOT / page).read_text(encoding="utf-8").split(heading, 1)[1]
    return re.findall(r"^```python\n(.*?)^```$", below, re.MULTILINE | re.DOTALL)


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="wheel")
        cls.addClassCleanup(scratch.cleanup)
        cls.site = pathlib.Path(scratch.name)
        shutil.copytree(ROOT / "client/python/crossmesh", cls.site / "crossmesh",
                        ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["cmake", "--install", BUILD, "--component", "python", "--prefix", cls.site],
                       check=True, capture_output=True)

    def run_python(self, *words: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CROSSMESH_")}
        done = subprocess.run([PYTHON, "-B", *words], cwd=ROOT, env={**environment, "PYTHONPATH": str(self.site)},
                              capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_readme_leads_with_the_wheel_and_its_demo_runs(self):
        page = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertLess(page.index("pip install crossmesh-"), page.index("    scripts/demo"))
        command = re.search(r"^    python (-m crossmesh .*)$", page, re.MULTILINE).group(1)
        self.assertIn("Every element of all", self.run_python(*command.split()))

    def test_the_first_plan_runs(self):
        self.assertRegex(self.run_python("-c", blocks("docs/python.md", "## A first plan")[0]), r"\d")

    def test_the_blocks_about_clusters_run(self):
        about = [*blocks("README.md", "## Quick start"), *blocks("docs/python.md", "## A cluster's clients")]
        about = [block for block in about if "local_cluster" in block and "torch" not in block]
        self.assertGreater(len(about), 2)
        for block in about:
            self.run_python("-c", block)

    def test_what_calls_the_driver_for_memory_of_gpus_is_in_it(self):
        self.run_python("-c", "from crossmesh import gpu_memory; gpu_memory._crossmesh_memory().Memory")

    def test_a_notebook_runs(self):
        self.run_python("client/python/tests/notebook.py", "--print", "docs/notebooks/plans.ipynb")


if __name__ == "__main__":
    if not PYTHON.exists() or not (BUILD / "python/crossmesh/api.binpb").exists():
        print("skipped: the Python package was not built")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
