"""Plans, bounds, simulations, schedules and grids, computed in this process: no daemon, no network."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crossmesh import _arguments, _core, _pictures
from crossmesh._core import Layout, Manifest, Mesh, Rules
from crossmesh.errors import FailedPreconditionError, InvalidArgumentError

#: A mesh, and what lies where on it: rules, their text, the layout of all tensors, or layouts by the names of tensors.
Side = tuple[Mesh | str, Rules | str | Layout | Mapping[str, Layout | str]]


@dataclass(frozen=True)
class Bound:
    """The least time in seconds that any plan could take on the network, and what decides it.

    What hosts receive and send, and what enters and leaves racks, each need a time of their own. `assumed_rates`: the
    rate of some NIC is not described. `proof` has the ports whose rates the bound is a weighted sum of, with their
    weights.
    """

    seconds: float
    ingress_seconds: float
    uplink_seconds: float
    rack_ingress_seconds: float
    rack_uplink_seconds: float
    proof: tuple[tuple[str, str, float], ...]
    assumed_rates: bool


@dataclass(frozen=True)
class Port:
    """One direction of a NIC or of a rack's uplink: rate in bytes a second, and bytes that passed."""

    name: str
    kind: str
    bytes_per_second: float
    bytes: float


class Timeline:
    """A run of a plan on its network, simulated chunk by chunk, by simulate()."""

    def __init__(self, plan: Plan, run: _core.Run):
        self.plan = plan
        self._run = run

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self._run.seconds

    @property
    def ports(self) -> list[Port]:
        """Each direction of every NIC, and of the racks' uplinks."""
        return [Port(*port) for port in self._run.ports]

    @property
    def transfers(self) -> int:
        """Chunks that passed between hosts."""
        return self._run.transfers

    def picture(self) -> dict[str, Any]:
        """What is drawn, as client/draw/draw.py describes it."""
        result: dict[str, Any] = json.loads(self._run.picture())
        return result

    def __repr__(self) -> str:
        bound = self.plan.bound.seconds
        ratio = f", {self.seconds / bound:.3f} times the bound" if bound > 0 else ""
        return f"<Timeline of {self.seconds:.6g} s{ratio}, {self.transfers} transfers>"

    def _repr_svg_(self) -> str:
        """How long its ports are busy. crossmesh.draw has all of it."""
        return _pictures.svg_of_ports(self)


@_arguments.checked
class Plan:
    """A plan, by plan(), proven: each destination byte is written once, nothing can deadlock, memory stays within
    limits.

    Times are in seconds, on the network that was described or assumed.
    """

    def __init__(self, core: _core.Plan):
        self._core = core
        self.summary: dict[str, Any] = json.loads(core.summary_json())

    @property
    def id(self) -> str:
        """Of all that workers must agree on."""
        return self._core.id

    @property
    def strategy(self) -> str:
        """By which routes were chosen."""
        return str(self.summary["strategy"])

    @property
    def predicted_seconds(self) -> float:
        """By the simulation of its run, or of a plan too large for that by a formula."""
        return float(self.summary["predicted_seconds"])

    @property
    def bound(self) -> Bound:
        """The least time that any plan of the same tensors could take."""
        summary = self.summary
        return Bound(
            seconds=float(summary["bound_seconds"]),
            ingress_seconds=float(summary["ingress_seconds"]),
            uplink_seconds=float(summary["uplink_seconds"]),
            rack_ingress_seconds=float(summary["rack_ingress_seconds"]),
            rack_uplink_seconds=float(summary["rack_uplink_seconds"]),
            proof=tuple((price["port"], price["name"], float(price["price"])) for price in summary["proof"]),
            assumed_rates=bool(summary["assumed_rates"]))

    @property
    def network_bytes(self) -> int:
        """Through all NICs, counted once, at the sender."""
        return int(self.summary["network_bytes"])

    @property
    def destination_bytes(self) -> int:
        """Of all destination tiles."""
        return int(self.summary["destination_bytes"])

    @property
    def peak_device_bytes(self) -> int:
        """Most that the operation has on a device at once."""
        return int(self.summary["peak_device_bytes"])

    @property
    def warnings(self) -> list[str]:
        """What was assumed, and what the request would better have said."""
        return list(self.summary["warnings"])

    def text(self, relays: int = 1000) -> str:
        """The routes, of so many relays."""
        return self._core.text(relays)

    def simulate(self) -> Timeline:
        """Runs the plan on its network. Raises UnimplementedError for plans in several steps."""
        return Timeline(self, self._core.simulate())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return (f"<Plan {self.id[:8]} by {self.strategy}: {self.destination_bytes} bytes in "
                f"{self.predicted_seconds:.6g} s, bound {self.bound.seconds:.6g} s>")

    def _repr_svg_(self) -> str | None:
        """How long its ports are busy. None: it is too large for that, or is no plan that a simulation knows."""
        return self.simulate()._repr_svg_() if self.summary["simulated"] else None


@_arguments.checked
def plan(
    manifest: Manifest,
    source: Side,
    destination: Side,
    *,
    strategy: str = "relay",
    replica_axes: Sequence[str] = (),
    topology: str | Mapping[str, Any] | None = None,
    binding: str | None = None,
    chunk_bytes: int = 0,
    nic_share: float = 1.0,
    device_bytes_max: int = 0,
    shared_storage: bool = False,
    broadcasts: bool = True,
    seed: int = 0,
) -> Plan:
    """Plans and proves a reshard of all tensors of a manifest.

    `source` and `destination` are a mesh and where tensors lie on it: rules, their text, one layout for all, or layouts
    by name. `strategy` is one of strategies(). `topology` is a network file, its text or the same as a dictionary;
    without one all NICs have an assumed rate, and the result says so. `replica_axes` are axes of the destination that
    count replicas, which commit one by one. `binding` is "shadow", where readers have the version before until the
    commit, or "in_place"; None leaves that to the planner. `chunk_bytes` is a multiple of 65,536, or 0 for what suits,
    `nic_share` of each NIC's rate, above 0 to 1. `device_bytes_max` limits what the operation has on a device at once;
    0 is no limit. With `shared_storage` both sides are one storage. Without `broadcasts` GPUs use no ncclBroadcast.
    `seed` is of strategies that choose at random.

    Other threads run meanwhile, and Ctrl-C ends it. Raises InvalidArgumentError naming the side and the tensor,
    ResourceExhaustedError where `device_bytes_max` is passed.
    """
    inputs = _core.Inputs(manifest)
    inputs.set_source(*_side("source", source))
    inputs.set_destination(*_side("destination", destination))
    inputs.strategy = strategy
    inputs.replica_axes = list(replica_axes)
    if topology is not None:
        inputs.set_topology(_document("topology", topology))
    if binding is not None:
        inputs.set_binding(binding)
    inputs.chunk_bytes = chunk_bytes
    inputs.nic_share = nic_share
    inputs.set_device_bytes_max(device_bytes_max)
    inputs.shared_storage = shared_storage
    inputs.no_broadcasts = not broadcasts
    inputs.seed = seed
    return Plan(_core.plan(inputs))


@_arguments.checked
def bound(manifest: Manifest, source: Side, destination: Side, **options: Any) -> Bound:
    """The least time that any plan could take, of a manifest from `source` to `destination`. Takes `options`, and
    raises errors, as plan() does."""
    return plan(manifest, source, destination, **options).bound


@_arguments.checked
def simulate(plan: Plan) -> Timeline:
    """Runs a plan on its network, chunk by chunk. UnimplementedError: it is a plan in several steps."""
    return plan.simulate()


@_arguments.checked
def schedules(
    pipeline: str | os.PathLike[str] | Mapping[str, Any],
    *,
    schedule: str | None = None,
    delay_weight_gradients: bool = False,
) -> list[dict[str, Any]] | dict[str, Any]:
    """Every schedule of a pipeline side by side (PipelineCandidate), or the plan of one (PipelinePlan).

    `pipeline` is a PipelineSpec: a dictionary, or the path of a JSON file. `schedule` is a name such as "1f1b", or
    "auto" for a search; without one all are compared. With `delay_weight_gradients` those are computed by ops of their
    own, later. Times in what is returned are in seconds, sizes in bytes. Raises InvalidArgumentError naming the field.
    """
    text = _document("pipeline", pipeline)
    choice: dict[str, Any] = {"delay_weight_gradients": delay_weight_gradients}
    if schedule is not None:
        choice["schedule"] = schedule
        found: dict[str, Any] = json.loads(_core.plan_pipeline(text, json.dumps(choice)))
        return found
    return [json.loads(one) for one in _core.compare_schedules(text, json.dumps(choice))]


def grids(*arguments: str, **flags: Any) -> dict[str, Any]:
    """Ranks the grids of a training by predicted time: `crossmesh grid rank --json` with these flags::

        crossmesh.grids(model="GPT-20B", batch=512, sequence=2048, gpu_host="h100x8", count=64)

    A flag with a hyphen is written with an underscore; True stands for a flag without a value. `arguments` are further
    words of the command. Raises the command's error.
    """
    from crossmesh import programs

    words = ["grid", "rank", *arguments]
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not False and value is not None:
            words += [flag, str(value)]
    result: dict[str, Any] = programs.document_of(words)
    return result


def _side(name: str, side: Side) -> tuple[Mesh, Rules]:
    try:
        mesh, layouts = side
    except (TypeError, ValueError):
        mesh = None
    if not isinstance(mesh, (Mesh, str)):
        raise InvalidArgumentError(
            f"{name}: expected a mesh and its rules, found {side!r}", name, "a mesh and its rules", repr(side))
    return mesh if isinstance(mesh, Mesh) else Mesh(mesh), rules(layouts)


@_arguments.checked
def rules(layouts: Rules | str | Layout | Mapping[str, Layout | str]) -> Rules:
    """Layout rules of their text, of one layout for all tensors, or of `layouts` by the names of tensors. Raises
    InvalidArgumentError for malformed ones, and names that rules would read as patterns."""
    if isinstance(layouts, Rules):
        return layouts
    if isinstance(layouts, Layout):
        return Rules(f"* {layouts}")
    if isinstance(layouts, str):
        return Rules(layouts)
    for name in layouts:
        if marks := set(name) & set("*?{} \t\n#"):
            raise InvalidArgumentError(
                f'layouts: expected names without {" ".join(sorted(marks))}, which rules read as patterns, '
                f'found "{name}"', "layouts", "names that are no patterns", f'"{name}"')
    return Rules("\n".join(f"{name} {layout}" for name, layout in layouts.items()))


def _document(name: str, given: str | os.PathLike[str] | Mapping[str, Any]) -> str:
    if isinstance(given, Mapping):
        return json.dumps(given)
    text = os.fspath(given)
    if text.lstrip().startswith("{"):
        return text
    try:
        with open(text, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise FailedPreconditionError(
            f"{name} {text}: {error.strerror}", f"{name} {text}", "a file", str(error.strerror)) from error
