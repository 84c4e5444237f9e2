"""What the lab's tests share: the programs that they run, small cases, and what to do where no network can be made."""

import pathlib
import sys
import unittest

import network
from cases import Case, everywhere, hosts, mesh, one_tensor
from layouts import Placement
from measure import MEBI
from network import Nic

SKIPPED = 77
RATE = 100  # Mbit/s
NICS = (Nic(RATE, RATE),)
PROGRAMS = pathlib.Path(sys.argv[1])  # the folder of the daemons


def relay_case(receivers: str, devices: int, mebibytes: int) -> Case:
    """Host a to every device of the receivers, each a replica."""
    return Case("relay", "test", "one to many", hosts("a" + receivers, NICS), one_tensor(mebibytes * MEBI // 4),
                Placement(mesh("x=1", "a", 1), everywhere("[-]")),
                Placement(mesh(f"x={len(receivers)},y={devices}", receivers, devices), everywhere("[-]")), "x,y")


def run_tests() -> None:
    """Those of the program's own file."""
    if reason := network.available():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
