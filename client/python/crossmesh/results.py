"""What a cluster answers. Sizes are in bytes, rates in bytes a second, and times in seconds unless a name says
otherwise. All are immutable."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass, field

_FROM = {"wire_name": "from"}  # which is a word of Python
_TO = {"wire_name": "to"}


class OperationState(enum.Enum):
    """An operation's, in this order. PREPARING: it is planned, proven, and workers are asked. RUNNING: bytes move.
    VERIFYING: some replica is complete and is being committed. COMMITTED: all replicas are. PARTIAL: some are, others
    failed. UNSPECIFIED: one that a later controller has."""

    UNSPECIFIED = "UNSPECIFIED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    VERIFYING = "VERIFYING"
    COMMITTED = "COMMITTED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class ReplicaState(enum.Enum):
    """A replica's: RECEIVING until it has COMMITTED or FAILED."""

    UNSPECIFIED = "UNSPECIFIED"
    RECEIVING = "RECEIVING"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"


class WorkerState(enum.Enum):
    """A worker's. READY: it takes work. SUSPECT: two heartbeats are missing. DRAINING: it takes none any more. LOST:
    its session ended, or it went silent."""

    UNSPECIFIED = "UNSPECIFIED"
    READY = "READY"
    SUSPECT = "SUSPECT"
    DRAINING = "DRAINING"
    LOST = "LOST"


class RunState(enum.Enum):
    """A pipeline run's. PREPARING: it is planned, proven, and workers are asked. WAITING: an iteration failed, and not
    all workers are there again. DONE: all iterations were tried, and the last one is complete."""

    UNSPECIFIED = "UNSPECIFIED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    DONE = "DONE"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


class NetworkSource(enum.Enum):
    """Where the description of the network is from: the controller's FILE, a CLIENT's set(), or what was MEASURED.
    UNSPECIFIED: there is none."""

    UNSPECIFIED = "UNSPECIFIED"
    FILE = "FILE"
    CLIENT = "CLIENT"
    MEASURED = "MEASURED"


@dataclass(frozen=True)
class RegisteredMesh:
    """A mesh under its name: axes such as "data=4,model=2", devices such as "node-a.0-3,node-b.0-3"."""

    name: str
    axes: str
    devices: str

    @property
    def text(self) -> str:
        """As crossmesh.Mesh reads it."""
        return f"{self.axes} on {self.devices}".lstrip()


@dataclass(frozen=True)
class RegisteredManifest:
    """A manifest under its name: how many tensors it has, their bytes, a digest of names, types and shapes."""

    name: str
    tensors: int
    size_bytes: int
    digest: str
    revision: int


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a manifest: its type as in safetensors files, and the lengths of its dimensions."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Nic:
    """A network interface of a host: its rates and what it adds to a byte's time, by direction."""

    name: str
    out_bytes_per_second: int
    in_bytes_per_second: int
    out_latency_ns: int
    in_latency_ns: int


@dataclass(frozen=True)
class HostGpu:
    """A GPU of a host: its device's index, its NIC, what it exchanges with the host's other GPUs, and how fast its
    kernels copy. The sources say "assumed", or when and on which GPU a rate was measured."""

    device: int
    nic: str
    link_out_bytes_per_second: int
    link_in_bytes_per_second: int
    copy_bytes_per_second: int
    link_source: str
    copy_source: str


@dataclass(frozen=True)
class Host:
    """A host of the network; local_bytes_per_second 0 is no limit."""

    name: str
    nics: tuple[Nic, ...]
    local_bytes_per_second: int
    gpus: tuple[HostGpu, ...]


@dataclass(frozen=True)
class Rack:
    """Hosts that share uplinks, with the rates of these."""

    name: str
    hosts: tuple[str, ...]
    up_bytes_per_second: int
    down_bytes_per_second: int


@dataclass(frozen=True)
class GpuCost:
    """A cost, and where it is from: "assumed", or when and on which GPU it was measured."""

    value: int
    source: str


@dataclass(frozen=True)
class GpuCosts:
    """What a GPU's part in a run costs beside its ports: a launch, a group of NCCL calls, one more message in a group,
    and what a channel of NCCL copies. None: as assumed."""

    launch_ns: GpuCost | None
    group_ns: GpuCost | None
    message_ns: GpuCost | None
    channel_bytes_per_second: GpuCost | None


@dataclass(frozen=True)
class Topology:
    """Hosts, racks, and the rate that is assumed of what is not listed (0: 12.5 GB/s)."""

    hosts: tuple[Host, ...]
    racks: tuple[Rack, ...]
    assumed_bytes_per_second: int
    gpu_costs: GpuCosts | None


@dataclass(frozen=True)
class AxisPosition:
    """A group of an axis: `own` devices, each `inner` places from the next."""

    inner: int
    own: int
    bytes_per_second: int
    message_ns: int


@dataclass(frozen=True)
class MeasuredAxes:
    """What collectives over axes were measured to take, by which grids are tuned."""

    devices: str
    positions: tuple[AxisPosition, ...]


@dataclass(frozen=True)
class Network:
    """The description that plans are made for; revision 0: there is none, and all rates are assumed."""

    topology: Topology
    revision: int
    update_time: datetime.datetime | None
    source: NetworkSource
    axes: MeasuredAxes | None


@dataclass(frozen=True)
class MeasuredLink:
    """From one NIC to another; latency one way."""

    from_nic: str = field(metadata=_FROM)
    to_nic: str = field(metadata=_TO)
    received_bytes: int
    bytes_per_second: int
    latency_ns: int


@dataclass(frozen=True)
class MeasuredNetwork:
    """What measuring the links between hosts has found, and the description that is current then."""

    network: Network
    links: tuple[MeasuredLink, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class GpuCalibration:
    """What GPUs were found to cost, beside the description before."""

    before: Network
    network: Network
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class PortPrice:
    """The weight of a port in the sum that proves a bound."""

    port: str
    name: str
    price: float


@dataclass(frozen=True)
class BroadcastGroup:
    """GPUs of a plan that exchange nothing with others, with what relays and ncclBroadcast would take; the lesser is
    chosen."""

    devices: str
    relay_seconds: float
    broadcast_seconds: float


@dataclass(frozen=True)
class M2nFigures:
    """What NCCL M2N would take for all tensors, `refusal`: why it cannot move them, or `not_chosen`: why it does
    not."""

    seconds: float
    refusal: str
    not_chosen: str


@dataclass(frozen=True)
class PlanSummary:
    """A plan as the controller sums it up: its bound, its prediction, and what of both comes from where."""

    id: str
    strategy: str
    bound_seconds: float
    ingress_seconds: float
    uplink_seconds: float
    rack_ingress_seconds: float
    rack_uplink_seconds: float
    proof: tuple[PortPrice, ...]
    predicted_seconds: float
    assumed_rates: bool
    assumed_bytes_per_second: int
    tensors: int
    groups: int
    classes: int
    relays: int
    hops: int
    channels: int
    destination_bytes: int
    network_bytes: int
    least_network_bytes: int
    busiest_host_bytes: int
    busiest_host: str
    depth: int
    peak_device_bytes: int
    peak_device: str
    plan_seconds: float
    cached: bool
    search: str
    replicas: int
    chunk_bytes: int
    periods: int
    rounding_seconds: float
    fill_seconds: float
    blocking_seconds: float
    simulated: bool
    warnings: tuple[str, ...]
    routing_seconds: float
    together_seconds: float
    broadcast_groups: tuple[BroadcastGroup, ...]
    m2n: M2nFigures | None
    over_gpus: str


@dataclass(frozen=True)
class TaskLink:
    """What a worker sent to a peer, and how long something was under way."""

    peer: str
    sent_bytes: int
    busy_seconds: float


@dataclass(frozen=True)
class TaskReport:
    """What one worker's task of an operation came to; code 0: no error of its own."""

    worker: str
    attempt: int
    code: int
    message: str
    lost_peers: tuple[str, ...]
    broken_devices: tuple[int, ...]
    sent_bytes: int
    received_bytes: int
    copied_bytes: int
    bind_seconds: float
    move_seconds: float
    pack_seconds: float
    unpack_seconds: float
    checksum_seconds: float
    links: tuple[TaskLink, ...]
    gpu_libraries: tuple[str, ...]
    released_sources: tuple[str, ...]


@dataclass(frozen=True)
class SlowLink:
    """A link that carried its bytes in more time than the whole operation was predicted to take."""

    from_worker: str = field(metadata=_FROM)
    to_worker: str = field(metadata=_TO)
    sent_bytes: int
    busy_seconds: float


@dataclass(frozen=True)
class OperationReport:
    """What an operation came to: bytes, time by phase, throughput, and how far it was from its bound."""

    destination_bytes: int
    network_bytes: int
    least_network_bytes: int
    busiest_host_bytes: int
    busiest_host: str
    plan_seconds: float
    dispatch_seconds: float
    transfer_seconds: float
    commit_seconds: float
    total_seconds: float
    throughput_bytes_per_second: float
    bound_seconds: float
    predicted_seconds: float
    efficiency_ratio: float
    plan_cached: bool
    workers: tuple[TaskReport, ...]
    first_byte_seconds: float
    slow_links: tuple[SlowLink, ...]
    warnings: tuple[str, ...]
    broadcast_groups: tuple[BroadcastGroup, ...]
    m2n: M2nFigures | None
    search: str


@dataclass(frozen=True)
class Replica:
    """A group of destination slots that commits together; `error` says why it failed."""

    index: int
    state: ReplicaState
    devices: str
    error: str


_ENDED = (OperationState.COMMITTED, OperationState.PARTIAL, OperationState.FAILED, OperationState.CANCELLED)


@dataclass(frozen=True)
class Operation:
    """An operation as it was when the controller answered."""

    id: str
    request_id: str
    state: OperationState
    plan_id: str
    attempt: int
    moved_bytes: int
    total_bytes: int
    replicas: tuple[Replica, ...]
    error: str
    error_code: int
    report: OperationReport | None
    create_time: datetime.datetime | None
    end_time: datetime.datetime | None
    revision: int
    deadline: datetime.timedelta | None

    @property
    def ended(self) -> bool:
        """Whether its state is one that it keeps."""
        return self.state in _ENDED


@dataclass(frozen=True)
class GpuProcess:
    """A GPU by its UUID, and the process that drives it; incarnation 0: none does."""

    gpu: str
    incarnation: int


@dataclass(frozen=True)
class GpuHardware:
    """What the driver says of a GPU; memory_bytes 0: not known. None: it has no such mode."""

    memory_bytes: int
    nvlinks: int
    persistence: bool | None
    mig: bool | None


@dataclass(frozen=True)
class Gpu:
    """A device that is a GPU. None: no process drives it, or nothing is known."""

    device: str
    process: GpuProcess | None
    hardware: GpuHardware | None


@dataclass(frozen=True)
class InterfaceTraffic:
    """Bytes that all processes of a host moved by one of its network interfaces since it started."""

    interface: str
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True)
class FailedLink:
    """A link from a worker to its peer over which bytes did not get through, for the reason and since the time said."""

    peer: str
    reason: str
    time: datetime.datetime


@dataclass(frozen=True)
class WorkerInfo:
    """A worker as its controller sees it; memory_bytes is of its storages and their shadows.

    problem: what keeps processes from having this name; empty for nothing.
    dirty_storages: as NAME on DEVICE, those that an operation has left written in part and that none writes now.
    failed_links: plans send nothing over them where there is another way, until they are tried again.
    """

    name: str
    state: WorkerState
    devices: str
    execution_address: str
    transport: str
    memory_bytes: int
    running_tasks: int
    incarnation: int
    last_heartbeat_time: datetime.datetime | None
    version: str
    data_interfaces: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    m2n: bool
    described_host: Host | None
    problem: str
    dirty_storages: tuple[str, ...]
    failed_links: tuple[FailedLink, ...]
    traffic: tuple[InterfaceTraffic, ...]
