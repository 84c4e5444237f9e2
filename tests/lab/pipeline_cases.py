"""Pipelines that the lab rehearses: stages on meshes of hosts, with tensors between them whose transfer takes a wished
part of the computation."""

from dataclasses import dataclass

from network import MEGABIT

RATE = 200  # Mbit/s of every NIC
SECONDS = 0.4  # of a stage for a microbatch: forward and both gradients
COLUMNS = 1024  # of a tensor of F32
ROW_BYTES = COLUMNS * 4


@dataclass(frozen=True)
class Choice:
    """A schedule, as flags of the command line name it. `blocking`: ranks do nothing else while they send or receive."""

    schedule: str
    delayed: bool = False
    blocking: bool = False

    def name(self) -> str:
        return (self.schedule + (" with delayed weight gradients" if self.delayed else "")
                + (", blocking" if self.blocking else ""))

    def flags(self) -> list[str]:
        return ["--schedule", self.schedule, *(["--delay-weight-gradients"] if self.delayed else []),
                *(["--transfer-model", "blocking"] if self.blocking else [])]


BLOCKING = Choice("1f1b", blocking=True)
PLAIN = Choice("1f1b")
EAGER = Choice("eager_1f1b")
AUTO = Choice("auto", delayed=True)


@dataclass(frozen=True)
class PipelineCase:
    """`edges`: stage, later stage, and what a transfer there and one back take together, in parts of SECONDS. `stages`:
    by stage its rank, and its time in parts of SECONDS. `sizes`: samples of microbatches, in runs."""

    name: str
    title: str
    ranks: tuple[tuple[str, ...], ...]  # hosts
    stages: tuple[tuple[int, float], ...]
    edges: tuple[tuple[int, int, float], ...]
    sizes: tuple[tuple[int, int], ...]  # count, samples
    choices: tuple[Choice, ...] = (BLOCKING, PLAIN, EAGER, AUTO)
    gain: float | None = None  # that AUTO must have over BLOCKING

    def hosts(self) -> list[str]:
        return [host for rank in self.ranks for host in rank]

    def samples(self) -> int:
        return self.sizes[0][1]

    def rows(self, part: float, share: float) -> int:
        """Of a tensor that two hosts send to two others: each receives half of it in part / 2 of SECONDS."""
        rows = part / 2 * SECONDS * RATE * MEGABIT * share * 2 / ROW_BYTES
        unit = 4 * self.samples()
        return max(unit, round(rows / unit) * unit)

    def spec(self, share: float, topology: dict) -> dict:
        """v1.PipelineSpec in JSON. `share`: of a NIC's rate that payloads get."""
        third = SECONDS / 3
        ranks = [{"inline_mesh": {"axes": f"x={len(hosts)}", "devices": ",".join(f"{host}.0" for host in hosts)}}
                 for hosts in self.ranks]
        stages = [{"name": f"stage {index}", "rank": rank, "forward_seconds": third * part,
                   "input_gradient_seconds": third * part, "weight_gradient_seconds": third * part,
                   "input_gradient_bytes": str(1 << 20), "weight_gradient_bytes": str(1 << 20)}
                  for index, (rank, part) in enumerate(self.stages)]
        edges = [{"from": begin, "to": end, "tensors": [
            {"tensor": {"name": f"from_{begin}_to_{end}", "dtype": "F32",
                        "shape": [self.samples(), self.rows(part, share) // self.samples(), COLUMNS]},
             "batch_dimension": 0, "source_layout": "[-, x, -]", "destination_layout": "[-, -, x]"}]}
            for begin, end, part in self.edges]
        return {"name": self.name, "ranks": ranks, "stages": stages, "edges": edges,
                "microbatches": [{"count": count, "samples": samples} for count, samples in self.sizes],
                "topology": topology}


TWO = (("a", "b"), ("c", "d"))
FOUR = (("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"))


def all_pipelines() -> list[PipelineCase]:
    return [
        PipelineCase("two_054", "two stages, transfers of 0.54 of the computation: U-Transformer's shape", TWO,
                     ((0, 1), (1, 1)), ((0, 1, 0.54),), ((32, 4),), gain=1.45),
        PipelineCase("two_010", "two stages, transfers of 0.10 of the computation: GPT's shape", TWO,
                     ((0, 1), (1, 1)), ((0, 1, 0.10),), ((32, 4),), gain=1.08),
        PipelineCase("u_shape", "four stages, with skip tensors of unequal size from the way down to the way up", FOUR,
                     ((0, 1), (1, 0.8), (2, 1), (3, 0.9)),
                     ((0, 1, 0.2), (1, 2, 0.15), (2, 3, 0.2), (0, 3, 0.25), (1, 3, 0.1)), ((16, 4),)),
        PipelineCase("uneven", "two stages, and a last microbatch of half the size", TWO, ((0, 1), (1, 1)),
                     ((0, 1, 0.4),), ((15, 4), (1, 2)), (EAGER, AUTO)),
    ]
