"""The trainings of examples/ in PyTorch, as their README has them: losses as in one process."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch, which tests/peers/run FOLDER package installs")


def _train(name: str, *words: str) -> tuple[list[float], list[float]]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", EXAMPLES / name / "torch_training.py", *words], capture_output=True, text=True,
        timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^ *\d+ +([\d.]+) +([\d.]+) ", done.stdout, re.MULTILINE)
    return [float(row[0]) for row in rows], [float(row[1]) for row in rows]


@pytest.mark.parametrize("schedule", ["eager_1f1b", "gpipe"])
def test_a_pipeline_has_the_losses_of_one_process(schedule):
    alone, four = _train("pipeline_training", "--steps", "20", "--schedule", schedule)
    assert len(alone) == len(four) == 20
    assert four[-1] < 0.5 * four[0]


def test_tensor_parallelism_has_the_losses_of_one_process_on_either_grid():
    alone, four = _train("tensor_parallel_training", "--steps", "10")
    assert len(alone) == len(four) == 20
    assert four[-1] < 0.7 * four[0]


@pytest.mark.parametrize("name", ["pipeline_training", "tensor_parallel_training"])
def test_it_is_as_short_as_is_said(name):
    assert len((EXAMPLES / name / "torch_training.py").read_text().splitlines()) < 200
