"""A pipeline's schedule that is rehearsed in the lab, and what came of it."""

import pathlib
import statistics
from dataclasses import dataclass, field

from cluster import Cluster
from pipeline_cases import Choice


@dataclass
class Rehearsal:
    """Of one schedule: the median times of iterations, in seconds; by round."""

    case: str
    choice: str
    predicted: float = 0
    measured: list[float] = field(default_factory=list)
    first_byte: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def seconds(self) -> float | None:
        return statistics.median(self.measured) if self.measured else None

    def error(self) -> float | None:
        return self.predicted / self.seconds() - 1 if self.measured else None


def rehearse(cluster: Cluster, spec: pathlib.Path, choice: Choice, into: Rehearsal) -> None:
    run = cluster.crossmesh("pipeline", "rehearse", str(spec), "--controller", cluster.controller, *choice.flags(),
                            "--iterations", "1")
    if not run.get("state", "").endswith("DONE"):
        into.errors.append(str(run.get("error", run)))
        return
    into.predicted = run["plan"]["predicted_seconds"]
    into.measured.append(run["median_seconds"])
    into.first_byte += [transfer["first_byte_seconds"] for transfer in run["measurement"]["transfers"]
                        if "first_byte_seconds" in transfer]
