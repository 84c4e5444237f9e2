"""Runs a case by PyTorch's Gloo on the lab's network: gloo_move.py, one process per device, in its host's namespace."""

import json
import pathlib
import subprocess
from dataclasses import asdict

from cases import Case
from layouts import host_of
from network import Network, inside

WAYS = ("point_to_point", "broadcast", "all_gather")
LIMIT_SECONDS = 1800
HERE = pathlib.Path(__file__).resolve().parent


def install(folder: pathlib.Path) -> str:
    """Its Python, which has PyTorch."""
    setup = subprocess.run([HERE.parent / "benchmark" / "peers" / "setup", folder], stdout=subprocess.PIPE, text=True,
                           check=True)
    return setup.stdout.strip()


def measure_gloo(case: Case, python: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round, by way. The ways take turns; a first round warms up."""
    devices = case.devices()  # in order of their ranks
    with Network(list(case.hosts), case.racks) as network:
        work = network.folder / "gloo.json"
        work.write_text(json.dumps({"case": asdict(case), "devices": devices, "rounds": rounds, "ways": WAYS,
                                    "store": str(network.folder / "gloo.store")}))
        command = [python, "-W", "ignore", str(HERE / "gloo_move.py"), str(work)]
        processes = [subprocess.Popen(inside(network.namespace(host_of(device)), [*command, str(rank)]),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                     for rank, device in enumerate(devices)]
        outputs = [process.communicate(timeout=LIMIT_SECONDS) for process in processes]
        failed = [errors for process, (_, errors) in zip(processes, outputs) if process.returncode != 0]
        if failed:
            raise RuntimeError(f"Gloo failed on {case.name}:\n{failed[0][-2000:]}")
        return json.loads(outputs[0][0].splitlines()[-1])
