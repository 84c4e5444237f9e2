"""Runs a case with every strategy in turns and keeps what was measured."""

import itertools
import pathlib
import statistics
import time
from dataclasses import asdict, dataclass, field, replace

from cases import Case, signal
from cluster import Cluster
from gpus import Gpus
from network import Counters, Host, Network, Nic
from raw_stream import RawStream, measure

MEBI = 1 << 20
LARGE_BYTES = 64 * MEBI  # a port that is to carry less is not held to a share of it
RAW_SECONDS = 3
RAW_STREAMS = 3  # the best counts


@dataclass(frozen=True)
class Port:
    """One direction of a NIC during one reshard."""

    name: str
    planned: float  # payload
    counted: int  # by the kernel
    expected: float  # what the kernel would count of a raw stream of that payload

    def error(self) -> float:
        return self.counted / self.expected - 1


@dataclass(frozen=True)
class Run:
    strategy: str
    state: str
    seconds: float = 0
    bound: float = 0
    predicted: float = 0
    ports: tuple[Port, ...] = ()
    errors: tuple[str, ...] = ()  # of replicas that failed; then what workers warned of
    wrong: tuple[str, ...] | None = None  # the first wrong element of each slot that has one; None: nobody looked

    def committed(self) -> bool:
        return self.state.endswith("COMMITTED")

    def is_right(self) -> bool:
        return self.committed() and self.wrong == ()

    def large_error(self) -> float | None:
        """Of the port with at least LARGE_BYTES planned that is furthest from the plan."""
        return max((port.error() for port in self.ports if port.planned >= LARGE_BYTES), key=abs, default=None)

    def small_excess(self) -> float:
        """Bytes over the plan in the other directions, the most of them."""
        return max((port.counted - port.expected for port in self.ports if port.planned < LARGE_BYTES), default=0)


@dataclass
class CaseResult:
    """Runs of one case, and times of Gloo by way. `signal`: a reshard of a tensor of next to no bytes. `nccl`: by what
    GPUs exchanged tensors, as their processes call it."""

    name: str
    group: str
    title: str
    busiest_bytes: float = 0
    chunk_bytes: int = 0
    signal: float = 0
    nccl: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    gloo: dict[str, list[float]] = field(default_factory=dict)

    def strategies(self) -> list[str]:
        return list(dict.fromkeys(run.strategy for run in self.runs))

    def of(self, strategy: str) -> list[Run]:
        """Those that committed."""
        return [run for run in self.runs if run.strategy == strategy and run.committed()]

    def seconds(self, strategy: str) -> float | None:
        return statistics.median(run.seconds for run in self.of(strategy)) if self.of(strategy) else None

    def bound(self) -> float:
        return next((run.bound for run in self.runs if run.bound), 0)

    def ratio(self, strategy: str) -> float | None:
        seconds = self.seconds(strategy)
        return None if seconds is None else seconds / self.bound()

    def gloo_ratio(self, way: str) -> float:
        return statistics.median(self.gloo[way]) / self.bound()

    def prediction_error(self, strategy: str) -> float | None:
        """(predicted - measured) / measured."""
        seconds = self.seconds(strategy)
        return None if seconds is None else self.of(strategy)[0].predicted / seconds - 1

    def raw(self) -> dict:
        return asdict(self)


def all_of_the_rate(rates: set[int]) -> dict[int, RawStream]:
    """Where nothing crosses the links, so that there is nothing to measure."""
    return dict.fromkeys(rates, RawStream(rate_share=1, counted_share=1))


def measure_raw_streams(rates: set[int]) -> dict[int, RawStream]:
    streams = {}
    for rate in sorted(rates):
        nics = (Nic(rate, rate),)
        with Network([Host("a", nics), Host("b", nics)]) as network:
            size = RAW_SECONDS * rate * MEBI // 8
            streams[rate] = max((measure(network, "a", "b", size) for _ in range(RAW_STREAMS)),
                                key=lambda stream: stream.rate_share)
            print(f"raw stream at {rate} Mbit/s: {streams[rate].rate_share:.4f} of it is payload, "
                  f"{streams[rate].counted_share:.5f} bytes counted per byte", flush=True)
    return streams


def rates_of(case: Case) -> list[int]:
    return Network(list(case.hosts), case.racks).rates()


class CaseRunner:
    """One case on its network, with its cluster."""

    def __init__(self, case: Case, cluster: Cluster, streams: dict[int, RawStream]):
        self.case = case
        self.cluster = cluster
        self.network = cluster.network
        self.streams = streams
        self.versions = itertools.count(1)
        self.chunk_bytes = cluster.chunk_bytes(case)

    def flags(self, strategy: str) -> list[str]:
        return ["--strategy", strategy, "--chunk-bytes", str(self.chunk_bytes)]

    def ports(self, planned: dict[tuple[str, int, str], float], before: dict, after: dict) -> tuple[Port, ...]:
        ports = []
        for (host, nic), counters in after.items():
            used: Counters = counters - before[host, nic]
            shaped = self.network.hosts[host].nics[nic]
            for direction, counted, rate in (("out", used.sent, shaped.out_rate),
                                             ("in", used.received, shaped.in_rate)):
                payload = planned.get((host, nic, direction), 0)
                ports.append(Port(f"{host}/eth{nic} {direction}", payload, counted,
                                  payload * self.streams[rate].counted_share))
        return tuple(ports)

    def run(self, strategy: str, planned: dict[tuple[str, int, str], float]) -> Run:
        begin = time.time()
        before = self.network.counters()
        operation = self.cluster.reshard(self.case, *self.flags(strategy))
        after = self.network.counters()
        report = operation.get("report")
        if report is None:
            return Run(strategy, operation.get("state", str(operation)))
        errors = [replica["error"] for replica in operation["replicas"] if replica.get("error")]
        if errors:
            errors += self.cluster.warnings(begin)
        return Run(strategy, operation["state"], report["total_seconds"], report["bound_seconds"],
                   report["predicted_seconds"], self.ports(planned, before, after), tuple(errors))

    def checked_run(self, strategy: str, planned: dict[tuple[str, int, str], float]) -> Run:
        """With contents that no run had before, so that what an earlier run left is not taken for them."""
        version = next(self.versions)
        self.cluster.fill_source(self.case, version)
        run = self.run(strategy, planned)
        if not run.committed():
            return run
        slots = range(len(self.case.destination.mesh.devices))
        found = (self.cluster.wrong_element(self.case, slot, version) for slot in slots)
        return replace(run, wrong=tuple(wrong for wrong in found if wrong))

    def signal_seconds(self, rounds: int) -> float:
        tiny = signal(self.case)
        self.cluster.fill_source(tiny)
        operations = [self.cluster.reshard(tiny) for _ in range(1 + rounds)]  # the first connects and plans
        return statistics.median(operation["report"]["total_seconds"] for operation in operations[1:])

    def measure(self, strategies: list[str], rounds: int) -> CaseResult:
        run_once = self.checked_run
        if not self.cluster.gpus.uuids:
            run_once = self.run
            self.cluster.fill_source(self.case)
        planned = {strategy: self.cluster.planned_bytes(self.case, *self.flags(strategy)) for strategy in strategies}
        result = CaseResult(self.case.name, self.case.group, self.case.title, chunk_bytes=self.chunk_bytes,
                            busiest_bytes=max(planned[strategies[0]].values()), signal=self.signal_seconds(rounds),
                            nccl=self.cluster.nccl())
        for turn in range(rounds):
            first = turn % len(strategies)
            for strategy in strategies[first:] + strategies[:first]:
                run = run_once(strategy, planned[strategy])
                result.runs.append(run)
                print(f"{self.case.name} {strategy}: {run.state}{self.times_text(run)}", *run.errors,
                      *(run.wrong or ()), flush=True)
        return result

    def times_text(self, run: Run) -> str:
        """Empty for stand-ins of GPUs, whose times mean nothing."""
        if self.cluster.gpus.are_stand_ins:
            return ""
        ratio = run.seconds / (run.bound or 1)
        return f", {run.seconds:.3f} s, bound {run.bound:.3f} s, ratio {ratio:.3f}, predicted {run.predicted:.3f} s"


def measure_case(case: Case, programs: pathlib.Path, streams: dict[int, RawStream], strategies: list[str] | None,
                 rounds: int, gpus: Gpus | None = None) -> CaseResult:
    """With all strategies that the programs know unless some are named; between GPUs if there are any."""
    with Network(list(case.hosts), case.racks) as network:
        shares = {rate: stream.rate_share for rate, stream in streams.items()}
        devices = gpus.of(case.devices()) if gpus else None
        with Cluster(programs, network, network.description(shares), devices) as cluster:
            runner = CaseRunner(case, cluster, streams)
            return runner.measure(strategies or cluster.strategies(case), rounds)
