"""The copy of the repository in which bugs are planted, so that the checkout is never touched."""

import filecmp
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "mutation"
TREE = FOLDER / "tree"


def files_of_checkout() -> list[str]:
    """All that git knows or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for path in listed.split("\0") if path and (ROOT / path).is_file()]


def update() -> None:
    """Copies what differs and removes what is gone; what is the same keeps its time, and so is not built again."""
    TREE.mkdir(parents=True, exist_ok=True)
    listing = FOLDER / "files.txt"
    before = listing.read_text().splitlines() if listing.exists() else []
    now = files_of_checkout()
    for path in now:
        source, target = ROOT / path, TREE / path
        if target.exists() and filecmp.cmp(source, target, shallow=False):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    for path in set(before) - set(now):
        (TREE / path).unlink(missing_ok=True)
    listing.write_text("\n".join(sorted(now)) + "\n")


def configure(preset: str) -> pathlib.Path:
    """The build folder, with what its sources include. The copy has the wheels that scripts/setup installed."""
    for environment in (".cuda", ".python"):
        if (ROOT / environment).exists() and not (TREE / environment).exists():
            (TREE / environment).symlink_to(ROOT / environment)
    quiet = {"cwd": TREE, "check": True, "stdout": subprocess.DEVNULL}
    subprocess.run(["cmake", "--preset", preset], **quiet)
    folder = TREE / "build" / preset
    subprocess.run(["cmake", "--build", str(folder), "--target", "crossmesh_proto"], **quiet)
    return folder
