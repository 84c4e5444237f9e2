"""What a cluster answers of pipelines: plans, and runs with their iterations. Times are in seconds. All are
immutable."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from crossmesh.results import RunState


@dataclass(frozen=True)
class TransferSummary:
    """One way of an edge for one size of microbatches; plan_id is empty where the time was given by hand."""

    edge: int
    backward: bool
    samples: int
    seconds: float
    bound_seconds: float
    bytes: int
    plan_id: str
    buffers: int


@dataclass(frozen=True)
class RankSummary:
    """What a rank has in memory at most, and at which op; what of it is there all the time, or for messages; how long
    it computes in an iteration."""

    peak_bytes: int
    peak_op: str
    static_bytes: int
    buffer_bytes: int
    busy_seconds: float


@dataclass(frozen=True)
class Candidate:
    """A schedule that was looked at; `refused` says why it cannot be. gap 0.01 is 1 % over the bound."""

    name: str
    seconds: float
    span_seconds: float
    gap: float
    peak_bytes: int
    pareto: bool
    bubble_ratio: float
    refused: str
    delay_weight_gradients: bool


@dataclass(frozen=True)
class LayerOp:
    """An op of a layer program as it is predicted, from the begin of the first one, with how long it waits before it
    with nothing to compute: for messages that were under way, and for such that were not yet."""

    name: str
    rank: int
    begin: float
    end: float
    waits_for_transfers: float
    waits_for_others: float


@dataclass(frozen=True)
class LayerTransfer:
    """A transfer of a layer program as it is predicted; exposed_seconds: some rank waits for it; hidden_seconds: none
    does."""

    name: str
    from_rank: int = field(metadata={"wire_name": "from"})
    to_rank: int = field(metadata={"wire_name": "to"})
    seconds: float
    bytes: int
    messages: int
    buffers: int
    exposed_seconds: float
    hidden_seconds: float
    plan_id: str


@dataclass(frozen=True)
class LayerExposure:
    """What the ops of a layer take on all ranks, and of the messages that they give the time while a rank waits for
    them, and while none does. The name is empty for ops of no layer."""

    name: str
    op_seconds: float
    exposed_seconds: float
    hidden_seconds: float


@dataclass(frozen=True)
class LayerRun:
    """The predicted run of a layer program."""

    ops: tuple[LayerOp, ...]
    transfers: tuple[LayerTransfer, ...]
    layers: tuple[LayerExposure, ...]


@dataclass(frozen=True)
class PipelinePlan:
    """A schedule, or a layer program, proven, with its predicted run; rank_ops are such as "0F0 0F1 0B0"."""

    id: str
    pipeline: str
    schedule: str
    rank_ops: tuple[str, ...]
    predicted_seconds: float
    span_seconds: float
    bubble_ratio: float
    bound_seconds: float
    bound_kind: str
    bound_place: str
    transfers: tuple[TransferSummary, ...]
    ranks: tuple[RankSummary, ...]
    candidates: tuple[Candidate, ...]
    busiest_port_bytes: int
    busiest_port: str
    transfer_model: str
    plan_seconds: float
    warnings: tuple[str, ...]
    proven_ops: int
    proven_transfers: int
    layers: LayerRun | None


@dataclass(frozen=True)
class Times:
    """Begin and end of ops or messages, from the begin of the first op."""

    name: tuple[str, ...]
    begin: tuple[float, ...]
    end: tuple[float, ...]


@dataclass(frozen=True)
class MeasuredRank:
    """A rank's ops as they ran."""

    rank: int
    ops: Times


@dataclass(frozen=True)
class MeasuredTransfer:
    """The messages of one way of an edge, or of a transfer of a layer program, as they moved."""

    edge: int
    backward: bool
    messages: Times
    first_byte_seconds: float
    samples: int
    transfer_seconds: float
    name: str


@dataclass(frozen=True)
class Measurement:
    """When ops and messages began and ended in an iteration."""

    ranks: tuple[MeasuredRank, ...]
    transfers: tuple[MeasuredTransfer, ...]


@dataclass(frozen=True)
class Iteration:
    """`error` is empty when it is complete; it names op, microbatch and transfer."""

    index: int
    seconds: float
    error: str
    error_code: int


_ENDED = (RunState.DONE, RunState.FAILED, RunState.STOPPED)


@dataclass(frozen=True)
class PipelineRun:
    """A run as it was when the controller answered; `done` has the last 1,000 iterations."""

    id: str
    request_id: str
    state: RunState
    pipeline: str
    plan: PipelinePlan | None
    rehearsal: bool
    iterations: int
    done: tuple[Iteration, ...]
    failed_iterations: int
    median_seconds: float
    measurement: Measurement | None
    error: str
    error_code: int
    create_time: datetime.datetime | None
    end_time: datetime.datetime | None
    revision: int
    lost_ranks: tuple[int, ...]
    obstacle: str

    @property
    def ended(self) -> bool:
        """Whether it is DONE, FAILED or STOPPED."""
        return self.state in _ENDED
