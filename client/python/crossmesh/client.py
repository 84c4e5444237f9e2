"""A cluster, seen from a Python process: blocking calls. crossmesh.aio has the same for asyncio.

Every call may raise UnavailableError (no controller answers, after it was tried again), DeadlineExceededError and what
its method names. Clients are thread-safe. A client is of the process that connected it: after a fork, connect again.
Ctrl-C ends any call; what the controller has begun goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import grpc

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
from crossmesh._interrupts import apart
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


def _await_connection(channel: Any, seconds: float) -> bool:
    """Until it is connected, or cannot be. False: it is not known yet, as of a process that is stopped, whose socket
    accepts.

    What gRPC has for others to ask, subscribe(), keeps a thread for each channel, which raises where that is closed; so
    this asks what that thread asks.
    """
    inner = channel._channel
    until = time.time() + seconds
    while not is_known(state := inner.check_connectivity_state(True)):
        if not inner.watch_connectivity_state(state, until).success:
            return False
    return True


class _Caller:
    """Makes calls to the controller that answers, one of several. Thread-safe."""

    def __init__(self, route: Route, options: Options):
        self.route = route
        self.options = options
        self._process = os.getpid()
        self._lock = threading.Lock()
        # Each stays as long as the client: it connects again by itself. By address.
        self._channels: dict[str, Any] = {}
        self._closed = threading.Event()
        _forks.keep_channels_of(self)

    def close(self) -> None:
        # The channels of a forked process are its parent's.
        if self._process == os.getpid():
            with self._lock:
                self._closed.set()
                for channel in self._channels.values():
                    channel.close()
                self._channels.clear()

    def _channel_of(self, address: str) -> Any:
        self.route.check(address)
        with self._lock:
            if self._closed.is_set():
                raise _calls.closed()
            if address not in self._channels:
                self._channels[address] = grpc.insecure_channel(address, self.route.channel_options())
            return self._channels[address]

    def open(self, call: Call, seconds: float) -> tuple[str, Any]:
        """Begins a call, and says to whom; what it gives is an answer to come, or a stream of them."""
        _calls.check_process(self._process, os.getpid())
        method = _wire.method(call.method)
        for message in call.request if method.request_stream else [call.request]:
            _calls.check_size(message)
        address = self.route.current
        channel = self._channel_of(address)
        if self.route.several and not _await_connection(channel, CONNECT_SECONDS_MAX):
            raise self.route.unconnected(address)
        invoke = getattr(channel, method.kind)(
            method.path, request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString)
        given = iter(call.request) if method.request_stream else call.request
        return address, (invoke if method.response_stream else invoke.future)(given, timeout=seconds)

    def _once(self, call: Call) -> Any:
        seconds = _calls.seconds_of(call, self.options)
        if _wire.method(call.method).response_stream:
            return list(self._messages(call, seconds))
        [answer] = self._messages(call, seconds)
        return answer

    def call(self, call: Call) -> Any:
        attempts = Attempts(call, self.options)
        while True:
            try:
                return self._once(call)
            except Error as error:
                self.pause(attempts.pause_after(error))

    def pause(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def run(self, steps: Steps[Value]) -> Value:
        try:
            call = next(steps)
            while True:
                call = steps.send(self.call(call))
        except StopIteration as end:
            result: Value = end.value
            return result

    def follow(self, following: Following, kind: type[Value]) -> Iterator[Value]:
        """All states of what is followed, the last one as it ended."""
        while True:
            call, seconds = following.stream(), following.seconds()
            failed: Error | None = None
            try:
                for message in self._messages(call, seconds):
                    state = value_of(kind, following.heard(message))
                    yield state
                    if state.ended:  # type: ignore[attr-defined]
                        return
            except Error as error:
                failed = error
            self.pause(following.pause_after(failed))

    def _messages(self, call: Call, seconds: float) -> Iterator[Any]:
        """What is answered, one message or a stream of them."""
        begun: list[Any] = []
        left = threading.Event()

        def work() -> Iterator[Any]:
            address, answer = self.open(call, seconds)
            begun.append(answer)
            if left.is_set():
                answer.cancel()
            try:
                if _wire.method(call.method).response_stream:
                    yield from answer
                else:
                    yield answer.result()
            except grpc.RpcError as error:
                raise self.route.failed(address, call, error, seconds) from None
            finally:
                begun.clear()
                answer.cancel()  # of no effect after its end

        try:
            yield from apart(work)
        finally:
            left.set()
            for answer in list(begun):  # after Ctrl-C, or in the midst of a stream
                answer.cancel()


class _Followed:
    """What the controller does, watched from here. Iterating gives its states until it has ended."""

    _noun = ""

    def __init__(self, caller: _Caller, first: Call | None, id: str):
        self._caller = caller
        self._first = first
        self._id = id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id or 'not begun'}>"


@_arguments.checked
class RunningOperation(_Followed):
    """An operation that goes on. Iterating gives its states until it has ended; leaving the iteration, or Ctrl-C, does
    not stop it: cancel() does."""

    @property
    def id(self) -> str:
        """By which any client finds it."""
        return self._id

    def __iter__(self) -> Iterator[results.Operation]:
        return self._states(None)

    def _states(self, timeout: float | None) -> Iterator[results.Operation]:
        following = Following(
            "operation", self._first, "OperationService/WatchOperation", "operation", self._caller.options, timeout,
            self._id)
        for state in self._caller.follow(following, results.Operation):
            self._id = state.id
            yield state

    def wait(
        self, timeout: float | None = None, on_change: Callable[[results.Operation], None] | None = None,
    ) -> results.Operation:
        """The operation as it has committed.

        `timeout` is in seconds; `on_change` is called with each state. Raises what it ended with, if that is not
        COMMITTED, with the operation as the exception's `operation`; DeadlineExceededError while it goes on.
        """
        for state in self._states(timeout):
            if on_change is not None:
                on_change(state)
            last = state
        if (error := _requests.outcome(last)) is not None:
            raise error
        return last

    def cancel(self, reason: str = "") -> None:
        """Returns at once; `reason` will be in its error. FailedPreconditionError: it has ended otherwise."""
        self._caller.run(_requests.cancel_operation(self._id, reason))


@_arguments.checked
class PipelineRunning(_Followed):
    """A run of a pipeline that goes on; as RunningOperation."""

    @property
    def id(self) -> str:
        """By which any client finds it."""
        return self._id

    def __iter__(self) -> Iterator[pipeline_results.PipelineRun]:
        return self._states(None)

    def _states(self, timeout: float | None) -> Iterator[pipeline_results.PipelineRun]:
        following = Following(
            "pipeline run", self._first, "PipelineService/WatchPipelineRun", "run", self._caller.options, timeout,
            self._id)
        for state in self._caller.follow(following, pipeline_results.PipelineRun):
            self._id = state.id
            yield state

    def wait(self, timeout: float | None = None) -> pipeline_results.PipelineRun:
        """The run as it is DONE, iterations failed or not.

        `timeout` is in seconds. Raises what it ended with otherwise; DeadlineExceededError while it goes on.
        """
        for state in self._states(timeout):
            last = state
        if (error := _requests.run_outcome(last)) is not None:
            raise error
        return last

    def stop(self, now: bool = False) -> None:
        """It ends after the iteration that runs, or at once with `now`. Returns without waiting for that."""
        self._caller.run(_requests.stop_run(self._id, now))


class _Service:
    def __init_subclass__(cls) -> None:
        _arguments.checked(cls)

    def __init__(self, caller: _Caller):
        self._caller = caller
        self._run = caller.run


class Meshes(_Service):
    """Meshes by name."""

    def create(self, name: str, mesh: Mesh | str) -> int:
        """Registers a mesh, and returns the store's revision. AlreadyExistsError: another one has the name."""
        return self._run(_requests.create_mesh(name, mesh))

    def get(self, name: str) -> Mesh:
        """The mesh of that name. NotFoundError: there is none."""
        return self._run(_requests.get_mesh(name))

    def list(self) -> list[results.RegisteredMesh]:
        """All of them, sorted by name."""
        return self._run(_requests.list_meshes())

    def delete(self, name: str, revision: int = 0) -> None:
        """Takes the name away. AbortedError: the mesh is not at that `revision`, unless 0. NotFoundError."""
        self._run(_requests.delete_mesh(name, revision))


class Manifests(_Service):
    """Manifests by name."""

    def put(self, name: str, manifest: Manifest | Iterable[Tensor]) -> results.RegisteredManifest:
        """Registers a manifest, or tensors, of however many. AlreadyExistsError: another one has the name."""
        return self._run(_requests.put_manifest(name, manifest))

    def get(self, name: str) -> Manifest:
        """The manifest of that name, with all its tensors. NotFoundError: there is none."""
        return self._run(_requests.get_manifest(name))

    def list(self) -> list[results.RegisteredManifest]:
        """All of them, sorted by name, without their tensors."""
        return self._run(_requests.list_manifests())

    def delete(self, name: str, revision: int = 0) -> None:
        """Takes the name away. AbortedError: the manifest is not at that `revision`, unless 0. NotFoundError."""
        self._run(_requests.delete_manifest(name, revision))


class NetworkDescription(_Service):
    """The network that plans are made for."""

    def get(self) -> results.Network:
        """As it is now; with revision 0 there is none, and all rates are assumed."""
        return self._run(_requests.get_network())

    def set(self, topology: Document, revision: int | None = None) -> results.Network:
        """Describes it, and returns what is current now.

        `topology` is a network file, its text, or the same as a dictionary. AbortedError: it is not at `revision` any
        more.
        """
        return self._run(_requests.set_network(topology, revision))

    def measure(
        self, link_seconds: float | None = None, link_bytes: int = 0, keep_description: bool = False,
    ) -> results.MeasuredNetwork:
        """Probes the links between the workers' hosts, and describes the network by what is found.

        Each link is filled for `link_seconds` (0.01 to 10; by default 0.5), or until `link_bytes` (65,536 to 64 GiB; 0:
        1 GiB) were sent. With `keep_description` the network stays as it is described. FailedPreconditionError: fewer
        than two hosts have workers, or another measurement runs.
        """
        return self._run(_requests.measure_network(link_seconds, link_bytes, keep_description))

    def calibrate_gpus(self, keep_description: bool = False) -> results.GpuCalibration:
        """Measures what calls of the workers' GPUs cost, and has that in the network's description, unless
        `keep_description`. FailedPreconditionError: no GPU is up."""
        return self._run(_requests.calibrate_gpus(keep_description))


class Operations(_Service):
    """Operations, by id."""

    def get(self, id: str) -> results.Operation:
        """The operation as it is now. NotFoundError: there is none."""
        return self._run(_requests.get_operation(id))

    def list(self, count: int = 100) -> list[results.Operation]:
        """At most `count`, newest first."""
        return self._run(_requests.list_operations(count))

    def watch(self, id: str) -> RunningOperation:
        """To iterate over its states, to wait for it or cancel it."""
        return RunningOperation(self._caller, None, id)

    def cancel(self, id: str, reason: str = "") -> None:
        """Returns at once; `reason` will be in the operation's error. FailedPreconditionError: it has ended otherwise.
        NotFoundError."""
        self._run(_requests.cancel_operation(id, reason))


class Workers(_Service):
    """The workers of the cluster, by name, as the controller sees them."""

    def list(self) -> list[results.WorkerInfo]:
        """All of them, sorted by name."""
        return self._run(_requests.list_workers())

    def drain(self, name: str) -> None:
        """It gets no new work, and ends when it is idle. NotFoundError."""
        self._run(_requests.drain_worker(name))

    def undrain(self, name: str) -> None:
        """Takes a drain back, while the worker is not idle yet: it takes work again once it has heard of it.
        NotFoundError: there is no live one of the name. FailedPreconditionError: it leaves by itself."""
        self._run(_requests.undrain_worker(name))

    def evict(self, name: str) -> None:
        """It is lost at once, and its process stays out; started again, it may join. What it runs fails. NotFoundError:
        there is no live one of the name."""
        self._run(_requests.evict_worker(name))

    def forget(self, name: str) -> None:
        """Takes a lost worker off the list. FailedPreconditionError: it is not lost. NotFoundError."""
        self._run(_requests.forget_worker(name))


class Controller(_Service):
    """The controller that leads."""

    def get(self) -> controller_results.ControllerInfo:
        """What it is, and how its store does."""
        return self._run(_requests.get_controller())

    def log_lines(self, count: int = 100) -> list[str]:
        """The newest `count` lines of its log, at most 1,000, oldest first; each is JSON."""
        return self._run(_requests.list_log_lines(count))

    def back_up_store(self) -> str:
        """Copies its store into its folder for backups, verifies the copy, and returns the file, on its machine.

        FailedPreconditionError: the store is in no folder, or there is none for backups.
        """
        return self._run(_requests.back_up_store())

    def verify_store(self) -> int:
        """Reads its whole store as the disk has it, and returns a revision that was verified at least.

        FailedPreconditionError: it is in no folder. DataLossError: it is damaged.
        """
        return self._run(_requests.verify_store())

    def release_store_reserve(self) -> None:
        """Gives deletes the room of the store's reserve, until there is room for everything again.

        FailedPreconditionError: it is in no folder.
        """
        self._run(_requests.release_store_reserve())


class Pipelines(_Service):
    """Pipelines by name, their plans, and their runs by id.

    A pipeline is a PipelineSpec or a LayerProgramSpec: a dictionary, JSON, or the path of a file; where it says so also
    a registered name. `choice` says which schedule, and `options` how it runs.
    """

    def create(self, pipeline: Document) -> int:
        """Registers it by the name that it has, and returns the store's revision. AlreadyExistsError: another one has
        that name."""
        return self._run(_requests.create_pipeline(pipeline))

    def get(self, name: str) -> dict[str, Any]:
        """As it was given, as a dictionary. NotFoundError: there is none."""
        return self._run(_requests.get_pipeline(name))

    def list(self) -> list[dict[str, Any]]:
        """All of them, sorted by name."""
        return self._run(_requests.list_pipelines())

    def delete(self, name: str) -> None:
        """Takes the name away. NotFoundError: there is none."""
        self._run(_requests.delete_pipeline(name))

    def plan(
        self, pipeline: Document, choice: PipelineChoice = PipelineChoice(),  # noqa: B008  # immutable
    ) -> pipeline_results.PipelinePlan:
        """Plans and proves, without running; also by name."""
        return self._run(_requests.plan_pipeline(pipeline, choice))

    def start(
        self, pipeline: Document, choice: PipelineChoice = PipelineChoice(),  # noqa: B008
        options: RunOptions = RunOptions(),  # noqa: B008
    ) -> PipelineRunning:
        """Begins a run, and returns when the controller has it; also by name."""
        running = PipelineRunning(self._caller, _requests.start_call(pipeline, choice, options), "")
        next(running._states(None))
        return running

    def runs(self, count: int = 100) -> Sequence[pipeline_results.PipelineRun]:
        """At most `count`, newest first, without measurements and schedules."""
        return self._run(_requests.list_runs(count))

    def watch(self, id: str) -> PipelineRunning:
        """To iterate over a run's states, to wait for it or stop it."""
        return PipelineRunning(self._caller, None, id)


@_arguments.checked
class Client:
    """A cluster's controller, by connect(). A context manager; thread-safe.

    Its services are `meshes`, `manifests`, `network`, `operations`, `workers`, `controller` and `pipelines`.

    `manifest` is one, or a registered name. `source` and `destination` are a mesh, given or by its registered name, its
    layouts, and the storage that holds the tiles: a Side, or a tuple of these. `redistribution` changes layouts inside
    one mesh by steps. `options` are the fields of ReshardOptions.
    """

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
        """Of the controllers, of which one answers."""
        return list(self._caller.route.addresses)

    def plan(
        self, manifest: Manifest | str, source: SideLike, destination: SideLike,
        redistribution: Redistribution | None = None, **options: Any,
    ) -> results.PlanSummary:
        """Plans and proves without executing; needs no worker, and no storage.

        InvalidArgumentError, NotFoundError name the field of what cannot be; ResourceExhaustedError: `device_bytes_max`
        does not suffice.
        """
        spec = _requests.spec_message(manifest, source, destination, _requests.reshard_options(options), redistribution)
        return self._caller.run(_requests.plan_reshard(spec))

    def explain(
        self, manifest: Manifest | str, source: SideLike, destination: SideLike,
        redistribution: Redistribution | None = None, relays: int = 0, **options: Any,
    ) -> str:
        """The text of a plan, with so many `relays` (0: 1,000). Raises what plan() does."""
        spec = _requests.spec_message(manifest, source, destination, _requests.reshard_options(options), redistribution)
        return self._caller.run(_requests.explain_reshard(spec, relays))

    def start_reshard(
        self, manifest: Manifest | str, source: SideLike, destination: SideLike, *, request_id: str | None = None,
        redistribution: Redistribution | None = None, **options: Any,
    ) -> RunningOperation:
        """Begins to move tensors, and returns when the controller has the operation.

        The same `request_id` with the same content is the same operation, for 24 hours unless the controller was told
        otherwise; AlreadyExistsError: it was used with other content. InvalidArgumentError, NotFoundError name the
        field of what cannot be.
        """
        spec = _requests.spec_message(manifest, source, destination, _requests.reshard_options(options), redistribution)
        running = RunningOperation(self._caller, _requests.execute_call(spec, request_id), "")
        states = running._states(None)
        next(states)
        states.close()  # type: ignore[attr-defined]
        return running

    def reshard(
        self, manifest: Manifest | str, source: SideLike, destination: SideLike, *, timeout: float | None = None,
        show_progress: bool | None = None, **options: Any,
    ) -> results.Operation:
        """Moves tensors from where they are to where they are to be, and returns the operation as it has committed.

        `options` may have `request_id` and `redistribution` as well. `timeout` in seconds ends the waiting, not the
        operation. `show_progress`: a bar on standard error; by default where that is a terminal or in a notebook.
        Raises what start_reshard() does, and what the operation ended with, if that is not COMMITTED.
        """
        running = self.start_reshard(manifest, source, destination, **options)
        with _progress.bar(show_progress) as bar:
            return running.wait(timeout, bar)

    def redistribute(
        self, manifest: Manifest | str, mesh: Mesh | str, source: tuple[Any, str], destination: tuple[Any, str], *,
        steps: Redistribution = Redistribution(), timeout: float | None = None,  # noqa: B008
        show_progress: bool | None = None, **options: Any,
    ) -> results.Operation:
        """Changes the layouts of tensors inside one `mesh`, by the cheapest steps.

        `source` and `destination` are layouts and a storage; `steps` says what of them is partial sums, and how the
        steps are found. `timeout` (in seconds), `show_progress`, `options` and what is raised are as of reshard().
        """
        return self.reshard(
            manifest, (mesh, *source), (mesh, *destination), timeout=timeout, show_progress=show_progress,
            redistribution=steps, **options)

    def close(self) -> None:
        """Calls that are under way end with an exception. Repeatable."""
        self._caller.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {', '.join(self.addresses)}>"


@_arguments.checked
def connect(
    address: str | Sequence[str] | None = None, *, insecure: bool = False, call_timeout: float = 30.0,
    retry_for: float | None = None, follow_for: float = 60.0,
) -> Client:
    """A client of a cluster; it connects at the first call.

    `address` is a controller's, "unix:/PATH", "HOST:PORT" or "[IPV6]:PORT", or those of several, of which one leads;
    by default that of $CROSSMESH_CONTROLLER. One that stands by leads the client on to the leader. `insecure` allows
    addresses beyond this machine, in plain text. Times are in seconds: `call_timeout` of a call; `retry_for`, how long
    it is tried again while no controller is available, by default 5, and 15 with several, of which the next one may
    have to be elected; and `follow_for`, the same while an operation is followed. Raises InvalidArgumentError for a
    malformed address.
    """
    given = address if address is not None else os.environ.get("CROSSMESH_CONTROLLER", "")
    addresses = [_calls.check_address(each, insecure) for each in _calls.addresses_of(given)]
    options = _calls.options_of(len(addresses), call_timeout, retry_for, follow_for)
    return Client(Route(addresses, insecure), options)
