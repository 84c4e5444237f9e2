"""Runs a change of layout by every way that it can go, in turns, and keeps what was measured."""

import array
import itertools
import math
import pathlib
import statistics
from dataclasses import dataclass, field

import contents
from cluster import Cluster
from layouts import Tensor
from network import MEGABIT, Network
from raw_exchange import measure_exchange
from raw_stream import RawStream
from redistribution_cases import Choice, RedistributionCase

# Summands are small whole numbers, so that any order of sums gives the same; no tile or chunk is a multiple of the
# period, so what came from another place differs.
SUMMAND_PERIOD = 1021


@dataclass
class Way:
    """A plan, by all choices that lead to it, and its runs. Seconds by round."""

    names: list[str]
    choice: Choice
    summary: dict
    measured: list[float] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)  # out of all NICs, by the kernel, less a raw stream's overhead
    busiest: list[int] = field(default_factory=list)  # through the NIC and direction with most
    errors: list[str] = field(default_factory=list)
    model_seconds: float | None = None  # of the search's own model

    def title(self) -> str:
        return ", ".join(f"`{name}`" for name in self.names)

    def predicted(self) -> float:
        return self.summary["predicted_seconds"]

    def planned_bytes(self) -> int:
        return int(self.summary["network_bytes"])

    def seconds(self) -> float | None:
        return statistics.median(self.measured) if self.measured else None

    def error(self) -> float | None:
        """(predicted - measured) / measured."""
        return self.predicted() / self.seconds() - 1 if self.measured else None

    def bytes_error(self) -> float | None:
        """Of the round that is furthest off."""
        errors = [counted / self.planned_bytes() - 1 for counted in self.counted if self.planned_bytes()]
        return max(errors, key=abs, default=None)


@dataclass
class RedistributionResult:
    case: str
    title: str
    kind: str = ""
    least_bytes: int = 0  # that must pass the busiest NIC in one direction; 0: not known
    least_seconds: float = 0  # of these
    timed: bool = True
    raw: list[float] = field(default_factory=list)  # seconds that plain TCP takes for the same bytes between all pairs
    ways: list[Way] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # choices that have no plan, and why

    def raw_seconds(self) -> float | None:
        return statistics.median(self.raw) if self.raw else None


def summand_bytes(tensor: Tensor, number: int, version: int) -> bytes:
    """What the device with this number adds: all of the tensor, row-major."""
    period = array.array("f", ((place + number + version) % SUMMAND_PERIOD for place in range(SUMMAND_PERIOD)))
    size = math.prod(tensor.shape)
    return (period.tobytes() * math.ceil(size / SUMMAND_PERIOD))[:4 * size]


def sum_bytes(tensor: Tensor, summands: int, version: int) -> bytes:
    period = array.array("f", (sum((place + number + version) % SUMMAND_PERIOD for number in range(summands))
                               for place in range(SUMMAND_PERIOD)))
    size = math.prod(tensor.shape)
    return (period.tobytes() * math.ceil(size / SUMMAND_PERIOD))[:4 * size]


class RedistributionRunner:
    """One case on its network, with its cluster."""

    def __init__(self, case: RedistributionCase, cluster: Cluster, stream: RawStream):
        self.case = case
        self.moved = case.moved
        self.cluster = cluster
        self.network = cluster.network
        self.stream = stream
        self.versions = itertools.count(1)

    def plan(self, choice: Choice) -> dict:
        return self.cluster.crossmesh("plan", *self.cluster.request(self.moved), *self.cluster.described(),
                                      *self.case.flags(choice))

    def find_ways(self, result: RedistributionResult) -> None:
        for choice in self.case.choices:
            if self.case.partial and not choice.sums:
                continue
            found = self.plan(choice)
            if "summary" not in found:
                result.refused[choice.name] = str(found.get("error", found))
                continue
            summary = found["summary"]
            known = next((way for way in result.ways if way.summary["id"] == summary["id"]), None)
            if known is None:
                result.ways.append(Way([choice.name], choice, summary, model_seconds=self.model_seconds(choice)))
            else:
                known.names.append(choice.name)

    def model_seconds(self, choice: Choice) -> float | None:
        """What the search's model says of it; None for what is no answer of a search."""
        where, tensor = self.moved.source.mesh, self.moved.tensors[0]
        arguments = ["redistribute", "--mesh", where.text(), "--shape", str(list(tensor.shape)), "--source",
                     self.moved.source.layout(tensor.name), "--destination",
                     self.moved.destination.layout(tensor.name), *self.cluster.described()]
        if self.case.partial:
            arguments += ["--source-partial", ",".join(self.case.partial)]
        if choice.flags[0] == "--method":
            return self.cluster.crossmesh(*arguments)["baselines"][choice.flags[1]]["seconds"]
        if choice.flags[0] == "--objective":
            return self.cluster.crossmesh(*arguments, *choice.flags)["seconds"]
        return None

    def fill(self, version: int) -> None:
        if not self.case.partial:
            return self.cluster.fill_source(self.moved, version)
        tensor = self.moved.tensors[0]
        for number, device in enumerate(self.moved.source.mesh.devices):
            summand = summand_bytes(tensor, number, version)
            self.cluster.storage(device, self.moved.name, len(summand))[:] = summand

    def wrong_element(self, slot: int, version: int) -> str | None:
        if not self.case.partial:
            return self.cluster.wrong_element(self.moved, slot, version)
        tensor = self.moved.tensors[0]
        device = self.moved.destination.mesh.devices[slot]
        whole = sum_bytes(tensor, len(self.moved.source.mesh.devices), version)
        memory = memoryview(self.cluster.storage(device, self.cluster.received_name(self.moved)))
        return contents.wrong_element_of(memory, self.moved.destination, {tensor: whole}, slot)

    def check(self, way: Way) -> None:
        """A run for its elements, with contents that no run had before."""
        version = next(self.versions)
        self.fill(version)
        operation = self.cluster.reshard(self.moved, *self.case.flags(way.choice))
        if not operation.get("state", "").endswith("COMMITTED"):
            way.errors.append(str(operation.get("error") or operation))
            return
        slots = range(len(self.moved.destination.mesh.devices))
        way.errors += [wrong for slot in slots if (wrong := self.wrong_element(slot, version))]

    def run(self, way: Way) -> None:
        before = self.network.counters()
        operation = self.cluster.reshard(self.moved, *self.case.flags(way.choice))
        after = self.network.counters()
        if not operation.get("state", "").endswith("COMMITTED"):
            way.errors.append(str(operation.get("error") or operation))
            return
        way.measured.append(operation["report"]["total_seconds"])
        used = [after[nic] - before[nic] for nic in after]
        way.counted.append(round(sum(one.sent for one in used) / self.stream.counted_share))
        way.busiest.append(round(max(max(one.sent, one.received) for one in used) / self.stream.counted_share))

    def measure(self, rounds: int) -> RedistributionResult:
        rate = self.case.rate * MEGABIT * self.stream.rate_share
        result = RedistributionResult(self.case.name, self.moved.title, self.moved.group, self.case.least_bytes,
                                      self.case.least_bytes / rate, self.case.timed)
        self.find_ways(result)
        for way in result.ways:
            self.check(way)
        for turn in range(rounds):
            if self.case.raw_bytes:
                result.raw.append(self.case.raw_times * measure_exchange(self.network, self.case.raw_bytes))
            first = turn % len(result.ways)
            for way in result.ways[first:] + result.ways[:first]:
                self.run(way)
                print(f"{result.case:18} {', '.join(way.names):60} predicted {way.predicted():7.3f} s, measured "
                      f"{way.measured[-1] if way.measured else 0:7.3f} s, NICs {way.bytes_error() or 0:+.2%} "
                      f"{'; '.join(way.errors)}", flush=True)
        return result


def measure_redistribution(case: RedistributionCase, programs: pathlib.Path, stream: RawStream,
                           rounds: int) -> RedistributionResult:
    with Network(list(case.moved.hosts), fair=case.fair) as network:
        with Cluster(programs, network, network.description({case.rate: stream.rate_share})) as cluster:
            return RedistributionRunner(case, cluster, stream).measure(rounds)
