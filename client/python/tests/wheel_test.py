"""What is installed: the package as a wheel has it, with what lies beside it."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import crossmesh
from crossmesh import programs

PACKAGE = pathlib.Path(crossmesh.__file__).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with it; in a build folder the one that `cmake --install` makes, with the package's own files."""
    if programs.VARIABLE not in os.environ:
        return PACKAGE.parent
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(
        ["cmake", "--install", programs.folder().parent, "--component", "python", "--prefix", folder],
        check=True, capture_output=True)
    shutil.copytree(PACKAGE, folder / "crossmesh", dirs_exist_ok=True)
    return folder


def _run(installed, *words):
    """In Python, without what names the programs."""
    environment = {name: value for name, value in os.environ.items() if name != programs.VARIABLE}
    return subprocess.run(
        [sys.executable, *words], check=True, capture_output=True, text=True,
        env={**environment, "PYTHONPATH": str(installed)}).stdout


def test_the_programs_are_found_with_what_they_read(installed):
    assert "crossmesh" in _run(installed, "-m", "crossmesh", "--version")
    drawn = installed / "crossmesh.programs" / "share" / "crossmesh" / "draw" / "draw.py"
    assert drawn.exists()
    told = _run(installed, "-c", "from crossmesh import programs; print(programs.share() / 'draw' / 'draw.py')")
    assert told == f"{drawn}\n"


def test_every_python_file_in_the_package_is_a_module_of_it(installed):
    """Else type checkers and importers take what the programs read for modules."""
    files = {path.relative_to(installed / "crossmesh") for path in (installed / "crossmesh").rglob("*.py")}
    assert {path.parent for path in files} == {pathlib.Path()}
