"""A cluster for asyncio: the calls of crossmesh.client, awaited. What they mean and raise is said there.

Cancelling a task ends its call; what the controller has begun goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio

from crossmesh import (
    _arguments,
    _calls,
    _forks,
    _progress,
    _requests,
    _wire,
    controller_results,
    pipeline_results,
    results,
)
from crossmesh._calls import Attempts, Call, Following, Options, Steps
from crossmesh._convert import Document, value_of
from crossmesh._core import Manifest, Mesh, Tensor
from crossmesh._requests import PipelineChoice, Redistribution, ReshardOptions, RunOptions, Side, SideLike
from crossmesh._route import CONNECT_SECONDS_MAX, Route, is_known
from crossmesh.errors import Error

__all__ = [
    "Client",
    "Controller",
    "Manifests",
    "Meshes",
    "NetworkDescription",
    "Operations",
    "PipelineChoice",
    "PipelineRunning",
    "Pipelines",
    "Redistribution",
    "ReshardOptions",
    "RunOptions",
    "RunningOperation",
    "Side",
    "Workers",
    "connect",
]

Value = TypeVar("Value")


async def _connection(channel: Any, seconds: float) -> bool:
    """As client._await_connection."""
    with contextlib.suppress(asyncio.TimeoutError):  # in 3.10 not TimeoutError
        await asyncio.wait_for(_known(channel), seconds)
        return True
    return False


async def _known(channel: Any) -> None:
    while not is_known((state := channel.get_state(try_to_connect=True)).value[0]):
        await channel.wait_for_state_change(state)


class _Caller:
    """As that of crossmesh.client. Confined to an event loop."""

    def __init__(self, route: Route, options: Options):
        self.route = route
        self.options = options
        self._process = os.getpid()
        self._channels: dict[str, Any] = {}
        self._closed = False
        _forks.keep_channels_of(self)

    async def close(self) -> None:
        if self._process == os.getpid():
            self._closed = True
            channels, self._channels = self._channels, {}
            for channel in channels.values():
                await channel.close()

    def _channel_of(self, address: str) -> Any:
        self.route.check(address)
        if self._closed:
            raise _calls.closed()
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, self.route.channel_options())
        return self._channels[address]

    async def open(self, call: Call, seconds: float) -> tuple[str, Any]:
        _calls.check_process(self._process, os.getpid())
        method = _wire.method(call.method)
        for message in call.request if method.request_stream else [call.request]:
            _calls.check_size(message)
        address = self.route.current
        channel = self._channel_of(address)
        if self.route.several and not await _connection(channel, CONNECT_SECONDS_MAX):
            raise self.route.unconnected(address)
        invoke = getattr(channel, method.kind)(
            method.path, request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString)
        given = iter(call.request) if method.request_stream else call.request
        return address, invoke(given, timeout=seconds)

    async def _once(self, call: Call) -> Any:
        seconds = _calls.seconds_of(call, self.options)
        if _wire.method(call.method).response_stream:
            return [message async for message in self._messages(call, seconds)]
        address, answer = await self.open(call, seconds)
        try:
            return await answer
        except grpc.aio.AioRpcError as error:
            raise self.route.failed(address, call, error, seconds) from None
        finally:
            answer.cancel()

    async def call(self, call: Call) -> Any:
        attempts = Attempts(call, self.options)
        while True:
            try:
                return await self._once(call)
            except Error as error:
                await asyncio.sleep(attempts.pause_after(error))

    async def run(self, steps: Steps[Value]) -> Value:
        try:
            call = next(steps)
            while True:
                call = steps.send(await self.call(call))
        except StopIteration as end:
            result: Value = end.value
            return result

    async def follow(self, following: Following, kind: type[Value]) -> AsyncGenerator[Value, None]:
        while True:
            call, seconds = following.stream(), following.seconds()
            failed: Error | None = None
            try:
                async with contextlib.aclosing(self._messages(call, seconds)) as messages:
                    async for message in messages:
                        state = value_of(kind, following.heard(message))
                        yield state
                        if state.ended:  # type: ignore[attr-defined]
                            return
            except Error as error:
                failed = error
            await asyncio.sleep(following.pause_after(failed))

    async def _messages(self, call: Call, seconds: float) -> AsyncGenerator[Any, None]:
        address, stream = await self.open(call, seconds)
        try:
            async for message in stream:
                yield message
        except grpc.aio.AioRpcError as error:
            raise self.route.failed(address, call, error, seconds) from None
        finally:
            stream.cancel()


@_arguments.checked
class RunningOperation:
    """An operation that goes on; iterating gives its states until it has ended."""

    def __init__(self, caller: _Caller, first: Call | None, id: str):
        self._caller = caller
        self._first = first
        self._id = id

    @property
    def id(self) -> str:
        return self._id

    def __aiter__(self) -> AsyncIterator[results.Operation]:
        return self._states(None)

    async def _states(self, timeout: float | None) -> AsyncGenerator[results.Operation, None]:
        following = Following(
            "operation", self._first, "OperationService/WatchOperation", "operation", self._caller.options, timeout,
            self._id)
        async for state in self._caller.follow(following, results.Operation):
            self._id = state.id
            yield state

    async def _begin(self) -> None:
        states = self._states(None)
        await anext(states)
        await states.aclose()

    async def wait(
        self, timeout: float | None = None, on_change: Callable[[results.Operation], None] | None = None,
    ) -> results.Operation:
        async for state in self._states(timeout):
            if on_change is not None:
                on_change(state)
            last = state
        if (error := _requests.outcome(last)) is not None:
            raise error
        return last

    async def cancel(self, reason: str = "") -> None:
        await self._caller.run(_requests.cancel_operation(self._id, reason))

    def __repr__(self) -> str:
        return f"<RunningOperation {self._id}>"


@_arguments.checked
class PipelineRunning:
    """A run of a pipeline that goes on; as RunningOperation."""

    def __init__(self, caller: _Caller, first: Call | None, id: str):
        self._caller = caller
        self._first = first
        self._id = id

    @property
    def id(self) -> str:
        return self._id

    def __aiter__(self) -> AsyncIterator[pipeline_results.PipelineRun]:
        return self._states(None)

    async def _states(self, timeout: float | None) -> AsyncGenerator[pipeline_results.PipelineRun, None]:
        following = Following(
            "pipeline run", self._first, "PipelineService/WatchPipelineRun", "run", self._caller.options, timeout,
            self._id)
        async for state in self._caller.follow(following, pipeline_results.PipelineRun):
            self._id = state.id
            yield state

    async def _begin(self) -> None:
        states = self._states(None)
        await anext(states)
        await states.aclose()

    async def wait(self, timeout: float | None = None) -> pipeline_results.PipelineRun:
        async for state in self._states(timeout):
            last = state
        if (error := _requests.run_outcome(last)) is not None:
            raise error
        return last

    async def stop(self, now: bool = False) -> None:
        await self._caller.run(_requests.stop_run(self._id, now))


class _Service:
    def __init_subclass__(cls) -> None:
        _arguments.checked(cls)

    def __init__(self, caller: _Caller):
        self._caller = caller
        self._run = caller.run


class Meshes(_Service):
    async def create(self, name: str, mesh: Mesh | str) -> int:
        return await self._run(_requests.create_mesh(name, mesh))

    async def get(self, name: str) -> Mesh:
        return await self._run(_requests.get_mesh(name))

    async def list(self) -> list[results.RegisteredMesh]:
        return await self._run(_requests.list_meshes())

    async def delete(self, name: str, revision: int = 0) -> None:
        await self._run(_requests.delete_mesh(name, revision))


class Manifests(_Service):
    async def put(self, name: str, manifest: Manifest | Iterable[Tensor]) -> results.RegisteredManifest:
        return await self._run(_requests.put_manifest(name, manifest))

    async def get(self, name: str) -> Manifest:
        return await self._run(_requests.get_manifest(name))

    async def list(self) -> list[results.RegisteredManifest]:
        return await self._run(_requests.list_manifests())

    async def delete(self, name: str, revision: int = 0) -> None:
        await self._run(_requests.delete_manifest(name, revision))


class NetworkDescription(_Service):
    async def get(self) -> results.Network:
        return await self._run(_requests.get_network())

    async def set(self, topology: Document, revision: int | None = None) -> results.Network:
        return await self._run(_requests.set_network(topology, revision))

    async def measure(
        self, link_seconds: float | None = None, link_bytes: int = 0, keep_description: bool = False,
    ) -> results.MeasuredNetwork:
        return await self._run(_requests.measure_network(link_seconds, link_bytes, keep_description))

    async def calibrate_gpus(self, keep_description: bool = False) -> results.GpuCalibration:
        return await self._run(_requests.calibrate_gpus(keep_description))


class Operations(_Service):
    async def get(self, id: str) -> results.Operation:
        return await self._run(_requests.get_operation(id))

    async def list(self, count: int = 100) -> list[results.Operation]:
        return await self._run(_requests.list_operations(count))

    def watch(self, id: str) -> RunningOperation:
        return RunningOperation(self._caller, None, id)

    async def cancel(self, id: str, reason: str = "") -> None:
        await self._run(_requests.cancel_operation(id, reason))


class Workers(_Service):
    async def list(self) -> list[results.WorkerInfo]:
        return await self._run(_requests.list_workers())

    async def drain(self, name: str) -> None:
        await self._run(_requests.drain_worker(name))

    async def undrain(self, name: str) -> None:
        await self._run(_requests.undrain_worker(name))

    async def evict(self, name: str) -> None:
        await self._run(_requests.evict_worker(name))

    async def forget(self, name: str) -> None:
        await self._run(_requests.forget_worker(name))


class Controller(_Service):
    async def get(self) -> controller_results.ControllerInfo:
        return await self._run(_requests.get_controller())

    async def log_lines(self, count: int = 100) -> list[str]:
        return await self._run(_requests.list_log_lines(count))

    async def back_up_store(self) -> str:
        return await self._run(_requests.back_up_store())

    async def verify_store(self) -> int:
        return await self._run(_requests.verify_store())

    async def release_store_reserve(self) -> None:
        await self._run(_requests.release_store_reserve())


class Pipelines(_Service):
    async def create(self, pipeline: Document) -> int:
        return await self._run(_requests.create_pipeline(pipeline))

    async def get(self, name: str) -> dict[str, Any]:
        return await self._run(_requests.get_pipeline(name))

    async def list(self) -> list[dict[str, Any]]:
        return await self._run(_requests.list_pipelines())

    async def delete(self, name: str) -> None:
        await self._run(_requests.delete_pipeline(name))

    async def plan(
        self, pipeline: Document, choice: PipelineChoice = PipelineChoice(),  # noqa: B008  # immutable
    ) -> pipeline_results.PipelinePlan:
        return await self._run(_requests.plan_pipeline(pipeline, choice))

    async def start(
        self, pipeline: Document, choice: PipelineChoice = PipelineChoice(),  # noqa: B008
        options: RunOptions = RunOptions(),  # noqa: B008
    ) -> PipelineRunning:
        running = PipelineRunning(self._caller, _requests.start_call(pipeline, choice, options), "")
        await running._begin()
        return running

    async def runs(self, count: int = 100) -> Sequence[pipeline_results.PipelineRun]:
        return await self._run(_requests.list_runs(count))

    def watch(self, id: str) -> PipelineRunning:
        return PipelineRunning(self._caller, None, id)


@_arguments.checked
class Client:
    """A cluster's controller, by connect(). An asynchronous context manager; of one event loop."""

    def __init__(self, route: Route, options: Options):
        self._caller = _Caller(route, options)
        self.meshes = Meshes(self._caller)
        self.manifests = Manifests(self._caller)
        self.network = NetworkDescription(self._caller)
        self.operations = Operations(self._caller)
        self.workers = Workers(self._caller)
        self.controller = Controller(self._caller)
        self.pipelines = Pipelines(self._caller)

    @property
    def addresses(self) -> list[str]:
        return list(self._caller.route.addresses)

    async def plan(
        self, manifest: Manifest | str, source: SideLike, destination: SideLike,
        redistribution: Redistribution | None = None, **options: Any,
    ) -> results.PlanSummary:
        spec = _requests.spec_message(manifest, source, destination, _requests.reshard_options(options), redistribution)
        return await self._caller.run(_requests.plan_reshard(spec))

    async def explain(
        self, manifest: Manifest | str, source: SideLike, destination: SideLike,
        redistribution: Redistribution | None = None, relays: int = 0, **options: Any,
    ) -> str:
        spec = _requests.spec_message(manifest, source, destination, _requests.reshard_options(options), redistribution)
        return await self._caller.run(_requests.explain_reshard(spec, relays))

    async def start_reshard(
        self, manifest: Manifest | str, source: SideLike, destination: SideLike, *, request_id: str | None = None,
        redistribution: Redistribution | None = None, **options: Any,
    ) -> RunningOperation:
        spec = _requests.spec_message(manifest, source, destination, _requests.reshard_options(options), redistribution)
        running = RunningOperation(self._caller, _requests.execute_call(spec, request_id), "")
        await running._begin()
        return running

    async def reshard(
        self, manifest: Manifest | str, source: SideLike, destination: SideLike, *, timeout: float | None = None,
        show_progress: bool | None = None, **options: Any,
    ) -> results.Operation:
        running = await self.start_reshard(manifest, source, destination, **options)
        with _progress.bar(show_progress) as bar:
            return await running.wait(timeout, bar)

    async def redistribute(
        self, manifest: Manifest | str, mesh: Mesh | str, source: tuple[Any, str], destination: tuple[Any, str], *,
        steps: Redistribution = Redistribution(), timeout: float | None = None,  # noqa: B008
        show_progress: bool | None = None, **options: Any,
    ) -> results.Operation:
        return await self.reshard(
            manifest, (mesh, *source), (mesh, *destination), timeout=timeout, show_progress=show_progress,
            redistribution=steps, **options)

    async def close(self) -> None:
        await self._caller.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Client of {', '.join(self.addresses)}>"


@_arguments.checked
def connect(
    address: str | Sequence[str] | None = None, *, insecure: bool = False, call_timeout: float = 30.0,
    retry_for: float | None = None, follow_for: float = 60.0,
) -> Client:
    """A client of a cluster, within a running event loop; as crossmesh.connect otherwise."""
    given = address if address is not None else os.environ.get("CROSSMESH_CONTROLLER", "")
    addresses = [_calls.check_address(each, insecure) for each in _calls.addresses_of(given)]
    options = _calls.options_of(len(addresses), call_timeout, retry_for, follow_for)
    return Client(Route(addresses, insecure), options)
