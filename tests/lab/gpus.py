"""The GPUs that the lab's workers drive: those of this machine, or the stand-ins of tests/standin."""

import mmap
import pathlib
import re
from dataclasses import dataclass, field

DRIVER_FOLDER = pathlib.Path("/proc/driver/nvidia/gpus")
# So that what GPUs of different hosts send to each other goes through the hosts' shaped NICs, though they share a
# machine: NCCL over sockets, by interfaces whose names begin so. The same for all hosts, as ranks must have them.
NCCL_SETTINGS = {
    "NCCL_NET": "Socket",
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "eth",
    "NCCL_SOCKET_NTHREADS": "1",  # one connection between two GPUs, as between two workers
    "NCCL_NSOCKS_PERTHREAD": "1",
}
STAND_IN_SYMBOL = b"crossmeshStandInName"


class GpusError(Exception):
    """What is asked for cannot be had; its words."""


@dataclass(frozen=True)
class GpuDevices:
    """What workers are told: the UUID of each device's GPU, flags of every worker, the environment of its processes."""

    uuids: dict[str, str]
    flags: tuple[str, ...]
    environment: dict[str, str]
    are_stand_ins: bool


@dataclass(frozen=True)
class Gpus:
    """`uuids` in the order in which devices get them. `kind`: what they are, for people. `flags`, `environment`: as in
    GpuDevices."""

    uuids: tuple[str, ...]
    kind: str
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=lambda: dict(NCCL_SETTINGS))
    are_stand_ins: bool = False

    def title(self) -> str:
        return f"{len(self.uuids)} {'stand-ins for GPUs' if self.are_stand_ins else 'GPUs'}: {self.kind}"

    def settings_text(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.environment.items())

    def are_enough_for(self, devices: list[str]) -> bool:
        return len(devices) <= len(self.uuids)

    def of(self, devices: list[str]) -> GpuDevices:
        """One for each device; there must be as many."""
        uuids = dict(zip(devices, self.uuids[:len(devices)], strict=True))
        return GpuDevices(uuids, self.flags, self.environment, self.are_stand_ins)


def of_machine(flags: tuple[str, ...] = (), folder: pathlib.Path = DRIVER_FOLDER) -> Gpus:
    """In the order of their places on the bus, as the driver tells in `folder`; none without a driver."""
    uuids, models = [], []
    for place in sorted(folder.glob("*/information")):
        told = dict(re.findall(r"^(.+?):[ \t]*(.*?)[ \t]*$", place.read_text(), re.MULTILINE))
        if uuid := told.get("GPU UUID"):
            uuids.append(uuid)
            models.append(told.get("Model", "unknown model"))
    kind = ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    return Gpus(tuple(uuids), kind or "no driver", flags)


def stand_ins(driver: pathlib.Path, flags: tuple[str, ...], count: int) -> Gpus:
    """As many as are asked for. What runs for kernels lies beside `driver`."""
    # Where no bytes cross a NIC there is nothing to tell NCCL.
    environment = {"CROSSMESH_STANDIN_DEVICES": str(count),
                   "CROSSMESH_STANDIN_KERNELS": str(driver.absolute().with_name("libcrossmesh_host_kernels.so.1"))}
    # As the driver's stand-in makes them (StandInUuid).
    uuids = tuple(f"GPU-7374616e-6469-6e00-{number:02x}00-000000000000" for number in range(count))
    return Gpus(uuids, "their ranks meet in the memory of this machine, so neither times nor the counters of NICs mean "
                "anything", flags, environment, are_stand_ins=True)


def is_stand_in(library: pathlib.Path) -> bool:
    """Whether it exports the name of the stand-ins. It is read, not loaded."""
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(STAND_IN_SYMBOL) >= 0


def find(driver: pathlib.Path | None, nccl: pathlib.Path | None, stand_in_count: int) -> Gpus:
    """Those that these libraries drive; None is what the system has."""
    given = {"--cuda-library": driver, "--nccl-library": nccl}
    flags = tuple(part for flag, library in given.items() if library for part in (flag, str(library.absolute())))
    found = [library is not None and is_stand_in(library) for library in given.values()]
    if found[0] != found[1]:
        raise GpusError("--cuda-library and --nccl-library: expected two stand-ins or none, found one")
    return stand_ins(driver, flags, stand_in_count) if all(found) else of_machine(flags)
