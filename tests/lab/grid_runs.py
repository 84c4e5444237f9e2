"""Rehearses steps on grids in the lab, and keeps what was predicted and measured."""

import pathlib
import statistics
from dataclasses import dataclass, field, replace

from cluster import Cluster
from grid_cases import EIGHT, OVERLAPS, RATE, RATIOS, GridCase, TuneCase, derived_bytes, families, overlapped, settings
from network import Host, Network, Nic
from raw_stream import RawStream

ITERATIONS = 2  # of a rehearsal
PARTS_BESIDE = ("norm", "logits", "loss", "vectors")  # of names of transfers that the equations of blocks leave out


@dataclass
class GridRun:
    """Of one case. Seconds are of a step; bytes are what NICs send in one."""

    name: str
    grid: str
    has_stages: bool = False
    predicted: float = 0
    exposed: float = 0  # as predicted
    sent: float = 0  # by the cost model's equations of blocks, of a device
    derived: float = 0  # by the equations of the families
    beside: float = 0  # of what these leave out, as planned, of a device: logits, vectors, norms, loss
    measured: list[float] = field(default_factory=list)  # iterations of all rounds
    counted: list[dict[str, float]] = field(default_factory=list)  # by round, then host: over what a raw stream has
    errors: list[str] = field(default_factory=list)

    def seconds(self) -> float:
        return statistics.median(self.measured)

    def waited(self) -> float:
        """The part of the step in which no op was due."""
        return self.seconds() - (self.predicted - self.exposed)

    def error(self) -> float:
        """What was predicted to be exposed less what was, as a part of the step."""
        return (self.predicted - self.seconds()) / self.seconds()

    def bytes_error(self) -> float:
        """Of the NIC that is furthest off, its median over rounds; with stages, which differ, of all together."""
        by_host = [statistics.median(one[host] for one in self.counted) for host in self.counted[0]]
        found = [statistics.mean(by_host)] if self.has_stages else by_host
        return max((counted / (self.sent + self.beside) - 1 for counted in found), key=abs)


@dataclass
class GridResults:
    settings: list[GridRun] = field(default_factory=list)
    families: list[GridRun] = field(default_factory=list)
    pairs: list[tuple[GridRun, GridRun]] = field(default_factory=list)
    tunes: dict[str, list[dict]] = field(default_factory=dict)

    def runs(self) -> list[GridRun]:
        return [*self.settings, *self.families, *(run for pair in self.pairs for run in pair)]


def eight_hosts() -> list[Host]:
    return [Host(name, (Nic(RATE, RATE),)) for name in EIGHT]


def devices_flag(hosts: str) -> list[str]:
    return ["--devices", ",".join(f"{host}.0" for host in hosts)]


def explained(cluster: Cluster, case: GridCase) -> dict:
    return cluster.crossmesh("grid", "explain", *case.request(), *devices_flag(EIGHT), *cluster.described())


def flops_at(cluster: Cluster, grid: str, microbatch: int, ratio: float) -> float:
    """At which what is communicated, all of it exposed, is `ratio` of what is computed, by the cost model."""
    case = GridCase(grid, grid, microbatch, overlaps="none")
    parts = explained(cluster, case)["parts_seconds"]
    return round(case.flops * parts["compute"] * ratio / parts["exposed"])


def is_beside(transfer: str) -> bool:
    return any(part in transfer for part in PARTS_BESIDE)


def rehearse(cluster: Cluster, case: GridCase, stream: RawStream, run: GridRun) -> None:
    before = cluster.network.counters()
    found = cluster.crossmesh("grid", "tune", *case.tune_request(), *devices_flag(EIGHT), "--controller",
                              cluster.controller, "--iterations", str(ITERATIONS))["grids"][0]
    if "error" in found:
        run.errors.append(found["error"])
        return
    after = cluster.network.counters()
    run.predicted, run.exposed = found["predicted_seconds"], found["exposed_seconds"]
    shown = cluster.crossmesh("pipeline", "show", found["run"], "--controller", cluster.controller)
    run.beside = sum(int(transfer.get("bytes", 0)) * transfer["messages"] for transfer in
                     shown["plan"]["layers"]["transfers"] if is_beside(transfer["name"])) / len(EIGHT)
    run.measured += [done["seconds"] for done in shown["done"]]
    run.counted.append({host: (after[host, nic].sent - before[host, nic].sent) / ITERATIONS / stream.counted_share
                        for host, nic in after})
    print(f"{run.name:24} {run.grid:22} predicted {run.predicted:7.3f} s, measured {run.measured[-1]:7.3f} s", flush=True)


def sent_bytes(cluster: Cluster, case: GridCase) -> float:
    """By blocks alone: where there are stages, only the last one has logits."""
    blocks = replace(case, model=replace(case.model, vocabulary=0))
    return sum(axis["sent_bytes"] for axis in explained(cluster, blocks)["axes"].values())


def measure_grids(programs: pathlib.Path, stream: RawStream, rounds: int, only: tuple[str, ...]) -> GridResults:
    results = GridResults()
    with (Network(eight_hosts(), fair=True) as lab,
          Cluster(programs, lab, lab.description({RATE: stream.rate_share})) as cluster):
        chosen = [(case, results.settings) for case in settings() if case.name.startswith(only)]
        chosen += [(case, results.families) for case in families() if case.name.startswith(only)]
        flops = {(grid, ratio): flops_at(cluster, grid, microbatch, ratio)
                 for grid, microbatch in (("c=2,r=2,z=2", 8), ("r=2,z=4", 4)) for ratio in RATIOS}
        pairs = [pair for pair in overlapped(flops) if pair[0].name.startswith(only)]
        cases = [case for case, _ in chosen] + [case for pair in pairs for case in pair]
        runs = {case.name: GridRun(case.name, case.grid, case.has_stages(), sent=sent_bytes(cluster, case))
                for case in cases}
        for case in families():
            if case.name in runs:
                runs[case.name].derived = derived_bytes(case)
        for _ in range(rounds):
            for case in cases:
                rehearse(cluster, case, stream, runs[case.name])
    for case, into in chosen:
        into.append(runs[case.name])
    results.pairs = [tuple(runs[case.name] for case in pair) for pair in pairs]
    return results


def tune(case: TuneCase, programs: pathlib.Path, streams: dict[int, RawStream]) -> list[dict]:
    """Every grid that can be, as `grid tune` prints it."""
    shares = {rate: stream.rate_share for rate, stream in streams.items()}
    with (Network(case.hosts(), fair=True) as lab,
          Cluster(programs, lab, lab.description(shares)) as cluster):
        found = cluster.crossmesh("grid", "tune", *case.request(), "--overlaps", OVERLAPS, "--devices",
                                  case.device_names(), "--controller", cluster.controller, "--iterations",
                                  str(ITERATIONS))["grids"]
    for grid in found:
        if "error" not in grid:
            print(f"{case.name:16} {grid['grid']:16} cost model {grid['cost_model_seconds']:7.3f} s, predicted "
                  f"{grid['predicted_seconds']:7.3f} s, measured {grid['measured_seconds']:7.3f} s", flush=True)
    return found
