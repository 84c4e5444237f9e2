"""The calls of every service as steps, which the blocking and the asynchronous client take alike."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from crossmesh import _arguments, _calls, _core, _wire, controller_results, planning, results
from crossmesh import pipeline_results as pipelines
from crossmesh._calls import Call, Steps
from crossmesh._convert import Document, document_of, message_of, value_of
from crossmesh._core import Layout, Manifest, Mesh, Rules, Tensor
from crossmesh.errors import Error, InvalidArgumentError, error_of

Item = TypeVar("Item")
Layouts = Rules | str | Layout | Mapping[str, Layout | str]

_TENSORS_PER_MESSAGE = 4096
_PAGE_SIZE = 1000


@_arguments.checked
@dataclass(frozen=True)
class Side:
    """Where tensors lie: a `mesh`, registered by name or given, its `layouts`, and the `storage` that holds the tiles.

    Layouts are rules, their text, one layout for all tensors, or layouts by the names of tensors.
    """

    mesh: Mesh | str
    layouts: Layouts
    storage: str = ""


#: A Side, or a tuple of its fields.
SideLike = Side | tuple[Mesh | str, Layouts] | tuple[Mesh | str, Layouts, str]


def _request(method: str, **fields: Any) -> Call:
    return Call(method, _wire.method(method).request(**fields))


def mesh_message(mesh: Mesh | str, name: str = "") -> Any:
    given = mesh if isinstance(mesh, Mesh) else Mesh(mesh)
    return _wire.message("Mesh")(name=name, axes=given.axes_text, devices=given.devices_text)


def _side_message(what: str, given: SideLike) -> Any:
    try:
        side = given if isinstance(given, Side) else Side(*given)
    except TypeError:
        raise InvalidArgumentError(
            f"{what}: expected a mesh, its layouts and maybe a storage, found {given!r}", what,
            "a mesh, its layouts and maybe a storage", repr(given)) from None
    message = _wire.message("ReshardSide")(storage=side.storage)
    if isinstance(side.mesh, str) and re.fullmatch(r"[a-z0-9._-]+", side.mesh):
        message.mesh = side.mesh
    else:
        message.inline_mesh.CopyFrom(mesh_message(side.mesh))
    for pattern, layout, on, dtype in _core.rule_rows(planning.rules(side.layouts).text):
        message.rules.add(pattern=pattern, layout=layout, on=on, dtype=dtype)
    return message


def _tensor_messages(manifest: Manifest | Iterable[Tensor]) -> list[Any]:
    kind = _wire.message("TensorSpec")
    return [kind(name=t.name, dtype=t.dtype, shape=t.shape) for t in manifest]


@_arguments.checked
@dataclass(frozen=True)
class Redistribution:
    """How a layout changes inside one mesh, by steps.

    `source_partial` and `destination_partial` are axes over which slots hold summands of one value, before and still
    afterwards; `reduction` is "sum" (the default), "mean", "min" or "max", in the `reduction_order` "fixed" (that of
    coordinates) or "any"; by default that of coordinates, or of a ring of hosts. `objective` is least "time" (the
    default) or "bytes". `method` names a planner of the literature in place of the search. With `no_relays` each step
    is a collective. With `release_source` the source is given up: its memory goes back while it is consumed.
    """

    source_partial: Sequence[str] = ()
    destination_partial: Sequence[str] = ()
    reduction: str = ""
    objective: str = ""
    method: str = ""
    no_relays: bool = False
    release_source: bool = False
    reduction_order: str = ""


@_arguments.checked
@dataclass(frozen=True)
class ReshardOptions:
    """How a reshard is planned and executed; what is left out, the controller chooses. Durations are in seconds.

    `replica_axes` are axes of the destination that count replicas, which commit one by one. `strategy` is by name, and
    `seed` of those that choose at random. `chunk_bytes` is a multiple of 65,536 up to 16 MiB. `binding` is "shadow"
    (readers have the version before until the commit) or "in_place". `checksums` are on. `topology` is a network file,
    its text or a dictionary, in place of the controller's description. `device_bytes_max` limits what the operation has
    on a device at once. With `create_destination` workers make destination storages that they lack. `deadline` is 0.1
    to 86,400, by default three times the prediction and 30 more; `stall_limit`, by default 5, is how long a peer may
    make no progress. `nic_share` of each NIC's rate, above 0 to 1. With `no_broadcasts` GPUs use no ncclBroadcast.
    """

    replica_axes: Sequence[str] = ()
    strategy: str = ""
    seed: int = 0
    chunk_bytes: int = 0
    binding: str = ""
    checksums: bool | None = None
    topology: Document | None = None
    device_bytes_max: int = 0
    create_destination: bool = False
    deadline: float | None = None
    stall_limit: float | None = None
    nic_share: float = 0.0
    no_broadcasts: bool = False


def reshard_options(given: Mapping[str, Any]) -> ReshardOptions:
    known = [field.name for field in dataclasses.fields(ReshardOptions)]
    for name in given:
        if name not in known:
            what, expected = f'option "{name}"', f"one of {', '.join(known)}"
            raise InvalidArgumentError(f"{what}: expected {expected}, found another", what, expected, "another")
    return ReshardOptions(**given)


_BINDINGS = {"": 0, "shadow": 1, "in_place": 2}


def spec_message(
    manifest: Manifest | str, source: SideLike, destination: SideLike, options: ReshardOptions,
    redistribution: Redistribution | None = None,
) -> Any:
    spec = _wire.message("ReshardSpec")(
        source=_side_message("source", source), destination=_side_message("destination", destination),
        replica_axes=options.replica_axes, strategy=options.strategy, seed=options.seed,
        chunk_bytes=options.chunk_bytes, device_bytes_max=options.device_bytes_max,
        create_destination=options.create_destination, nic_share=options.nic_share,
        no_broadcasts=options.no_broadcasts)
    if options.binding not in _BINDINGS:
        raise InvalidArgumentError(
            f'binding: expected "shadow" or "in_place", found "{options.binding}"', "binding",
            '"shadow" or "in_place"', f'"{options.binding}"')
    spec.binding = _BINDINGS[options.binding]
    if isinstance(manifest, str):
        spec.manifest = manifest
    else:
        spec.inline_manifest.MergeFromString(manifest.to_message())
    if options.checksums is not None:
        spec.checksums = options.checksums
    if options.topology is not None:
        spec.topology.CopyFrom(message_of("Topology", "topology", options.topology))
    _set_duration(spec.deadline, options.deadline)
    _set_duration(spec.stall_limit, options.stall_limit)
    if redistribution is not None:
        # A controller of a release that knows no redistributions refuses the strategy, and would move summands as
        # values.
        spec.strategy = options.strategy or "redistribute"
        spec.redistribution.CopyFrom(_wire.message("Redistribution")(**vars(redistribution)))
    return spec


def _set_duration(field: Any, seconds: float | None) -> None:
    if seconds is not None:
        field.FromTimedelta(datetime.timedelta(seconds=seconds))


def outcome(operation: results.Operation) -> Error | None:
    """None of one that committed."""
    if operation.state is results.OperationState.COMMITTED:
        return None
    error = error_of(
        operation.error_code or 2, f"operation {operation.id} ended {operation.state.value}: {operation.error}")
    error.operation = operation  # type: ignore[attr-defined]
    return error


def run_outcome(run: pipelines.PipelineRun) -> Error | None:
    if run.state is results.RunState.DONE:
        return None
    code = run.error_code or (1 if run.state is results.RunState.STOPPED else 2)
    return error_of(code, f"pipeline run {run.id} ended {run.state.value}" + (f": {run.error}" if run.error else ""))


def _pages(method: str, field: str, kind: type[Item], count: int | None = None) -> Steps[list[Item]]:
    found: list[Item] = []
    token = ""
    while count is None or len(found) < count:
        size = _PAGE_SIZE if count is None else min(_PAGE_SIZE, count - len(found))
        page = yield _request(method, page_size=size, page_token=token)
        found += [value_of(kind, item) for item in getattr(page, field)]
        token = page.next_page_token
        if not token:
            break
    return found if count is None else found[:count]


# Meshes and manifests


def create_mesh(name: str, mesh: Mesh | str) -> Steps[int]:
    answer = yield _request(
        "MeshService/CreateMesh", mesh=mesh_message(mesh, name), request_id=_calls.new_request_id())
    return int(answer.revision)


def get_mesh(name: str) -> Steps[Mesh]:
    answer = yield _request("MeshService/GetMesh", name=name)
    return Mesh(value_of(results.RegisteredMesh, answer.mesh).text)


def list_meshes() -> Steps[list[results.RegisteredMesh]]:
    return _pages("MeshService/ListMeshes", "meshes", results.RegisteredMesh)


def _delete(method: str, **fields: Any) -> Steps[None]:
    # Once: a second answer would be that there is none.
    yield Call(method, _wire.method(method).request(**fields), repeatable=False)


def delete_mesh(name: str, revision: int) -> Steps[None]:
    return _delete("MeshService/DeleteMesh", name=name, revision=revision)


def put_manifest(name: str, manifest: Manifest | Iterable[Tensor]) -> Steps[results.RegisteredManifest]:
    tensors = _tensor_messages(manifest)
    kind = _wire.message("PutManifestRequest")
    messages = [
        kind(tensors=tensors[begin:begin + _TENSORS_PER_MESSAGE])
        for begin in range(0, max(len(tensors), 1), _TENSORS_PER_MESSAGE)]
    messages[0].name, messages[0].tensor_count = name, len(tensors)
    answer = yield Call("ManifestService/PutManifest", messages)
    return results.RegisteredManifest(name, answer.tensors, answer.size_bytes, answer.digest, answer.revision)


def get_manifest(name: str) -> Steps[Manifest]:
    parts = yield _request("ManifestService/GetManifest", name=name)
    return Manifest([Tensor(t.name, t.dtype, list(t.shape)) for part in parts for t in part.tensors])


def list_manifests() -> Steps[list[results.RegisteredManifest]]:
    return _pages("ManifestService/ListManifests", "manifests", results.RegisteredManifest)


def delete_manifest(name: str, revision: int) -> Steps[None]:
    return _delete("ManifestService/DeleteManifest", name=name, revision=revision)


# The network


def get_network() -> Steps[results.Network]:
    answer = yield _request("NetworkService/GetNetwork")
    return value_of(results.Network, answer.network)


def set_network(topology: Document, revision: int | None) -> Steps[results.Network]:
    request = _wire.message("SetNetworkRequest")(topology=message_of("Topology", "topology", topology))
    if revision is not None:
        request.revision = revision
    # Of a revision only once: a second answer would be that another one is there.
    answer = yield Call("NetworkService/SetNetwork", request, repeatable=revision is None)
    return value_of(results.Network, answer.network)


def measure_network(
    link_seconds: float | None, link_bytes: int, keep_description: bool) -> Steps[results.MeasuredNetwork]:
    request = _wire.message("MeasureNetworkRequest")(link_bytes=link_bytes, keep_description=keep_description)
    _set_duration(request.link_time, link_seconds)
    parts = yield Call("NetworkService/MeasureNetwork", request, repeatable=False)
    return value_of(results.MeasuredNetwork, parts[-1].result)


def calibrate_gpus(keep_description: bool) -> Steps[results.GpuCalibration]:
    request = _wire.message("CalibrateGpusRequest")(keep_description=keep_description)
    parts = yield Call("NetworkService/CalibrateGpus", request, repeatable=False)
    return value_of(results.GpuCalibration, parts[-1])


# Reshards and operations


def plan_reshard(spec: Any) -> Steps[results.PlanSummary]:
    answer = yield _request("ReshardService/PlanReshard", spec=spec)
    return value_of(results.PlanSummary, answer.summary)


def explain_reshard(spec: Any, relays: int) -> Steps[str]:
    answer = yield _request("ReshardService/PlanReshard", spec=spec, explain=True, explain_relays=relays)
    return str(answer.text)


def execute_call(spec: Any, request_id: str | None) -> Call:
    return _request("ReshardService/ExecuteReshard", spec=spec, request_id=request_id or _calls.new_request_id())


def get_operation(id: str) -> Steps[results.Operation]:
    answer = yield _request("OperationService/GetOperation", id=id)
    return value_of(results.Operation, answer.operation)


def list_operations(count: int) -> Steps[list[results.Operation]]:
    return _pages("OperationService/ListOperations", "operations", results.Operation, count)


def cancel_operation(id: str, reason: str) -> Steps[None]:
    yield _request("OperationService/CancelOperation", id=id, reason=reason)


# Workers


def list_workers() -> Steps[list[results.WorkerInfo]]:
    return _pages("WorkerService/ListWorkers", "workers", results.WorkerInfo)


def drain_worker(name: str) -> Steps[None]:
    yield _request("WorkerService/DrainWorker", name=name)


def undrain_worker(name: str) -> Steps[None]:
    yield _request("WorkerService/UndrainWorker", name=name)


def evict_worker(name: str) -> Steps[None]:
    yield _request("WorkerService/EvictWorker", name=name)


def forget_worker(name: str) -> Steps[None]:
    yield _request("WorkerService/ForgetWorker", name=name)


# The controller itself


def get_controller() -> Steps[controller_results.ControllerInfo]:
    return value_of(controller_results.ControllerInfo, (yield _request("ControllerService/GetController")).controller)


def list_log_lines(count: int) -> Steps[list[str]]:
    return list((yield _request("ControllerService/ListLogLines", count=count)).lines)


def back_up_store() -> Steps[str]:
    # Once: each call makes a file.
    method = _wire.method("ControllerService/BackUpStore")
    file: str = (yield Call("ControllerService/BackUpStore", method.request(), repeatable=False)).file
    return file


def verify_store() -> Steps[int]:
    revision: int = (yield _request("ControllerService/VerifyStore")).revision
    return revision


def release_store_reserve() -> Steps[None]:
    yield _request("ControllerService/ReleaseStoreReserve")


# Pipelines


@_arguments.checked
@dataclass(frozen=True)
class PipelineChoice:
    """Which schedule of a pipeline.

    `schedule` is a name, or "auto" (the default) for a search; `schedule_file` the text of one in Crossmesh's own form.
    With `delay_weight_gradients` those are computed by ops of their own, later. `windows` are those of "window_order",
    by stage. `objective` is least "seconds" of an iteration (the default) or "span" of a rank. `transfer_model` is
    "ports" (the default), "latency", "link", "pair", "nic" or "blocking". `search_ops_max` bounds the search.
    """

    schedule: str = ""
    delay_weight_gradients: bool = False
    schedule_file: str = ""
    windows: Sequence[int] = ()
    objective: str = ""
    transfer_model: str = ""
    search_ops_max: int = 0


@_arguments.checked
@dataclass(frozen=True)
class RunOptions:
    """How a pipeline runs, for how many `iterations`; durations are in seconds.

    With `rehearsal` workers wait for as long as each op is profiled to take, and no process computes; messages move.
    `checksums` of transfers are on. `iteration_deadline` is by default three times the prediction and 30 more;
    `stall_limit`, by default 5, is how long a peer may make no progress; `rejoin_limit`, by default 30, how long a
    failed iteration waits until all workers are there. With `stop_at_failure` the run ends with the first iteration
    that fails. The same `request_id` with the same content is the same run, for 24 hours unless the controller was told
    otherwise.
    """

    iterations: int = 1
    rehearsal: bool = False
    checksums: bool | None = None
    iteration_deadline: float | None = None
    stall_limit: float | None = None
    rejoin_limit: float | None = None
    stop_at_failure: bool = False
    request_id: str | None = None


def create_pipeline(pipeline: Document) -> Steps[int]:
    answer = yield _request(
        "PipelineService/CreatePipeline", pipeline=message_of("PipelineSpec", "pipeline", pipeline))
    return int(answer.revision)


def get_pipeline(name: str) -> Steps[dict[str, Any]]:
    answer = yield _request("PipelineService/GetPipeline", name=name)
    return document_of(answer.pipeline)


def list_pipelines() -> Steps[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = yield _request("PipelineService/ListPipelines", page_size=_PAGE_SIZE, page_token=token)
        found += [document_of(pipeline) for pipeline in page.pipelines]
        token = page.next_page_token
        if not token:
            return found


def delete_pipeline(name: str) -> Steps[None]:
    return _delete("PipelineService/DeletePipeline", name=name)


def _set_pipeline(request: Any, pipeline: Document, choice: PipelineChoice) -> None:
    if isinstance(pipeline, str) and re.fullmatch(r"[a-z0-9._-]{1,63}", pipeline):
        request.pipeline = pipeline
    elif isinstance(pipeline, Mapping) and "ops" in pipeline:
        request.inline_layers.CopyFrom(message_of("LayerProgramSpec", "layers", pipeline))
        return
    else:
        request.inline_pipeline.CopyFrom(message_of("PipelineSpec", "pipeline", pipeline))
    request.choice.CopyFrom(_wire.message("PipelineChoice")(**vars(choice)))


def plan_pipeline(pipeline: Document, choice: PipelineChoice) -> Steps[pipelines.PipelinePlan]:
    request = _wire.message("PlanPipelineRequest")()
    _set_pipeline(request, pipeline, choice)
    answer = yield Call("PipelineService/PlanPipeline", request)
    return value_of(pipelines.PipelinePlan, answer.plan)


def start_call(pipeline: Document, choice: PipelineChoice, options: RunOptions) -> Call:
    request = _wire.message("StartPipelineRequest")(
        request_id=options.request_id or _calls.new_request_id(), iterations=options.iterations,
        rehearsal=options.rehearsal, stop_at_failure=options.stop_at_failure)
    _set_pipeline(request, pipeline, choice)
    if options.checksums is not None:
        request.checksums = options.checksums
    for name in ("iteration_deadline", "stall_limit", "rejoin_limit"):
        _set_duration(getattr(request, name), getattr(options, name))
    return Call("PipelineService/StartPipeline", request)


def list_runs(count: int) -> Steps[list[pipelines.PipelineRun]]:
    return _pages("PipelineService/ListPipelineRuns", "runs", pipelines.PipelineRun, count)


def stop_run(id: str, now: bool) -> Steps[None]:
    yield _request("PipelineService/StopPipelineRun", id=id, now=now)
