"""The blocking client over real daemons."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading

import pytest

import crossmesh
from crossmesh import _calls, _convert, _core, _progress, _requests, _wire, errors, pipeline_results, results

MANIFEST = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [8, 8]), crossmesh.Tensor("b", "BF16", [7])])
MESH = "fsdp=2 on node-0.0,node-1.0"


@pytest.fixture(scope="module")
def cluster():
    with crossmesh.local_cluster(workers=2) as running:
        yield running


@pytest.fixture
def client(cluster):
    return cluster.client


def test_meshes_come_back_as_they_were_registered(client):
    revision = client.meshes.create("trainer", MESH)
    assert client.meshes.create("trainer", crossmesh.Mesh(MESH)) == revision  # the same again
    assert client.meshes.get("trainer") == crossmesh.Mesh(MESH)
    assert [mesh.text for mesh in client.meshes.list()] == [MESH]
    with pytest.raises(errors.AlreadyExistsError):
        client.meshes.create("trainer", "fsdp=1 on node-0.0")
    client.meshes.delete("trainer")
    with pytest.raises(errors.NotFoundError) as caught:
        client.meshes.get("trainer")
    assert (caught.value.object, caught.value.expected, caught.value.found) == (
        'mesh "trainer"', "a registered one", "none")


def test_manifests_of_several_messages_come_back_as_they_were_registered(client):
    many = crossmesh.Manifest([crossmesh.Tensor(f"t{i}", "F32", [i % 7, 3]) for i in range(10_000)])
    for name, manifest in {"many": many, "none": crossmesh.Manifest([]), "two": MANIFEST}.items():
        entry = client.manifests.put(name, manifest)
        assert (entry.tensors, entry.digest) == (len(manifest), manifest.digest)
        assert client.manifests.get(name) == manifest
    assert [entry.name for entry in client.manifests.list()] == ["many", "none", "two"]


def test_the_network_is_described_and_a_lost_race_is_told(client):
    before = client.network.get()
    nic = {"name": "eth0", "out_bytes_per_second": 10**9, "in_bytes_per_second": 10**9}
    topology = {"hosts": [{"name": "node-0", "nics": [nic]}]}
    now = client.network.set(topology, before.revision)
    assert now.revision == before.revision + 1
    assert now.topology.hosts[0].nics[0].out_bytes_per_second == 10**9
    with pytest.raises(errors.AbortedError):
        client.network.set({"hosts": []}, before.revision)
    with pytest.raises(errors.InvalidArgumentError, match="topology: expected a Topology"):
        client.network.set({"hots": []})


def test_a_plan_of_the_controller_is_that_of_the_package(client):
    client.network.set({})
    with pytest.raises(errors.InvalidArgumentError, match=r"manifest .*: expected Manifest \| str, found list of"):
        client.plan(list(MANIFEST), (MESH, "* [...]"), (MESH, "* [...]"))
    sides = (crossmesh.Mesh(MESH), "w [fsdp, -]\n* [fsdp] chunk"), (crossmesh.Mesh(MESH), "* [...]  # whole")
    told = client.plan(MANIFEST, *sides)
    made = crossmesh.plan(MANIFEST, *sides)
    assert told.strategy == "relay"
    assert told.bound_seconds == pytest.approx(made.bound.seconds)
    assert told.network_bytes == made.network_bytes


def test_an_operation_that_fails_raises_with_what_became_of_it(client):
    sides = (MESH, "* [fsdp, ...] chunk", "no-such"), (MESH, "* [...]", "received")
    with pytest.raises(errors.FailedPreconditionError, match='source storage "no-such"') as caught:
        client.reshard(MANIFEST, *sides, create_destination=True, timeout=60, show_progress=False)
    operation = caught.value.operation
    assert operation.state is results.OperationState.FAILED
    assert client.operations.get(operation.id).state is operation.state
    assert [state.state for state in client.operations.watch(operation.id)] == [operation.state]
    assert client.operations.list(1)[0].id == operation.id
    with pytest.raises(errors.FailedPreconditionError):
        client.operations.cancel(operation.id)


def test_a_request_id_names_one_operation(client):
    sides = (MESH, "* [fsdp, ...] chunk", "no-such"), (MESH, "* [...]", "received")
    first = client.start_reshard(MANIFEST, *sides, request_id="once", create_destination=True)
    again = client.start_reshard(MANIFEST, *sides, request_id="once", create_destination=True)
    assert first.id == again.id
    with pytest.raises(errors.AlreadyExistsError):
        client.start_reshard(MANIFEST, *sides, request_id="once")


def test_workers_are_listed_and_what_cannot_be_forgotten_is_told(client):
    assert [worker.name for worker in client.workers.list()] == ["node-0", "node-1"]
    assert all(worker.state is results.WorkerState.READY for worker in client.workers.list())
    with pytest.raises(errors.FailedPreconditionError):
        client.workers.forget("node-0")
    with pytest.raises(errors.NotFoundError):
        client.workers.drain("node-9")


def test_a_call_is_made_again_at_the_next_address(cluster):
    missing = f"unix:{cluster.folder}/none.sock"
    with crossmesh.connect([missing, cluster.address]) as client:
        assert len(client.workers.list()) == 2
    with crossmesh.connect(missing, retry_for=0.3) as client, pytest.raises(errors.UnavailableError) as caught:
        client.workers.list()
    assert missing in str(caught.value)


def test_a_closed_client_and_a_forked_one_say_so(cluster):
    client = crossmesh.connect(cluster.address)
    client.workers.list()
    child = os.fork()
    if child == 0:
        try:
            client.workers.list()
        except errors.FailedPreconditionError as error:
            os._exit(0 if "after a fork" in str(error) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.close()
    client.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        client.workers.list()


def test_threads_share_a_client(client):
    failed = []

    def call():
        try:
            for _ in range(20):
                assert len(client.workers.list()) == 2
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_ctrl_c_ends_a_call_to_a_silent_controller(tmp_path):
    """A listener that accepts no connection; what it is told apart by is that the process says it waits."""
    script = f"""
import socket, sys, threading, crossmesh
listener = socket.socket(socket.AF_UNIX); listener.bind({str(tmp_path / 's')!r}); listener.listen()
client = crossmesh.connect("unix:{tmp_path / 's'}")
def say():
    listener.accept(); print("waits", flush=True); threading.Event().wait()
threading.Thread(target=say, daemon=True).start()
try:
    client.workers.list()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[0] == "interrupted\n"


@pytest.mark.parametrize("address", ["", "node-a", "unix:relative", "localhost:0", "localhost:70000", "[::1"])
def test_malformed_addresses_are_refused(address):
    with pytest.raises(errors.InvalidArgumentError):
        crossmesh.connect(address)


def test_an_address_beyond_this_machine_has_to_be_allowed():
    for address in ("127.0.0.1:1", "[::1]:1", "localhost:1"):
        crossmesh.connect(address).close()
    with pytest.raises(errors.InvalidArgumentError, match="insecure=True"):
        crossmesh.connect("10.0.0.1:1")
    crossmesh.connect("10.0.0.1:1", insecure=True).close()


def test_only_what_may_be_repeated_is_tried_again():
    error = errors.UnavailableError("away")
    attempts = _calls.Attempts(_calls.Call("m", None), _calls.Options(retry=60))
    assert 0 <= attempts.pause_after(error) <= 0.1
    with pytest.raises(errors.NotFoundError):
        attempts.pause_after(errors.NotFoundError("none"))
    for call, seconds in ((_calls.Call("m", None, repeatable=False), 60), (_calls.Call("m", None), 0)):
        with pytest.raises(errors.UnavailableError):
            _calls.Attempts(call, _calls.Options(retry=seconds)).pause_after(error)


def test_what_a_controller_has_no_room_for_is_tried_again_when_it_says():
    def pushed_back(code, milliseconds):
        info = _wire.message("google.rpc.ErrorInfo")(reason="PUSHED_BACK", metadata={"retry_after_ms": milliseconds})
        status = _wire.message("google.rpc.Status")(code=code)
        status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
        return _calls.status_error(
            "a", code, "busy", (("grpc-status-details-bin", status.SerializeToString()),), 1)

    attempts = _calls.Attempts(_calls.Call("m", None), _calls.Options(retry=60))
    for code in (errors.ResourceExhaustedError.code, errors.UnavailableError.code):
        for said, heard in (("2500", 2.5), ("-7", 0), ("0", 0)):
            assert attempts.pause_after(pushed_back(code, said)) == heard
    assert pushed_back(8, "99999999").retry_after == 60 and pushed_back(8, "soon").retry_after is None
    for refused in (pushed_back(8, "60000"), pushed_back(8, "soon"), errors.ResourceExhaustedError("full")):
        with pytest.raises(errors.ResourceExhaustedError):
            attempts.pause_after(refused)


def test_a_cancellation_that_was_not_asked_for_is_an_absence():
    assert isinstance(_calls.status_error("a", 1, "gone", (), 1), errors.UnavailableError)
    assert isinstance(_calls.status_error("a", 4, "late", (), 1), errors.DeadlineExceededError)


@pytest.mark.parametrize(("kind", "message"), [
    (results.Operation, "Operation"), (results.OperationReport, "OperationReport"), (results.Network, "Network"),
    (results.PlanSummary, "PlanSummary"), (results.WorkerInfo, "Worker"), (results.Topology, "Topology"),
    (results.TaskReport, "TaskReport"), (pipeline_results.PipelinePlan, "PipelinePlan"),
    (pipeline_results.PipelineRun, "PipelineRun"), (_requests.Redistribution, "Redistribution"),
    (_requests.PipelineChoice, "PipelineChoice")])
def test_values_have_all_fields_of_their_messages(kind, message):
    names = {field.metadata.get("wire_name", field.name) for field in dataclasses.fields(kind)}
    fields = set(_wire.message(message).DESCRIPTOR.fields_by_name)
    assert names == fields - ({"reshard"} if message == "Operation" else set())


@pytest.mark.parametrize("kind", [results.OperationState, results.ReplicaState, results.WorkerState,
                                  results.RunState, results.NetworkSource])
def test_states_are_those_of_the_api(kind):
    field = {"RunState": ("PipelineRun", "state"), "NetworkSource": ("Network", "source"),
             "ReplicaState": ("Replica", "state"), "WorkerState": ("Worker", "state")}.get(
                 kind.__name__, ("Operation", "state"))
    descriptor = _wire.message(field[0]).DESCRIPTOR.fields_by_name[field[1]]
    assert {_convert._enum_of(kind, descriptor, number).name for number in descriptor.enum_type.values_by_number} == \
        set(kind.__members__)


def _following(timeout=None, follow=60):
    first = _calls.Call("ReshardService/ExecuteReshard", "request")
    return _calls.Following("operation", first, "OperationService/WatchOperation", "operation",
                            _calls.Options(follow=follow), timeout)


def test_a_stream_that_is_cut_is_taken_up_by_the_request_and_then_by_the_id():
    following = _following()
    away = errors.UnavailableError("away")
    assert following.stream().request == "request"
    assert following.pause_after(away) >= 0
    assert following.stream().request == "request"
    following.heard(_wire.message("ExecuteReshardResponse")(operation={"id": "op-1"}))
    for cut in (away, errors.DeadlineExceededError("its own"), errors.ResourceExhaustedError("slow"), None):
        following._heard = True
        following.pause_after(cut)
        assert following.stream().request.id == "op-1"
    with pytest.raises(errors.DeadlineExceededError, match="its own"):  # on a stream that said nothing
        following.pause_after(errors.DeadlineExceededError("its own"))
    with pytest.raises(errors.NotFoundError):
        following.pause_after(errors.NotFoundError("none"))


def test_following_ends_with_its_time_and_with_a_controller_that_stays_away():
    following = _following(follow=0)
    following.stream()
    following.id = "op-1"
    with pytest.raises(errors.UnavailableError, match="away; operation op-1 may still be running"):
        following.pause_after(errors.UnavailableError("away"))
    late = _following(timeout=0)
    with pytest.raises(errors.DeadlineExceededError, match="expected its end within 0 s"):
        late.stream()


def test_lists_of_several_pages_are_whole_and_counts_are_kept(client, monkeypatch):
    monkeypatch.setattr(_requests, "_PAGE_SIZE", 2)
    for index in range(5):
        client.meshes.create(f"page-{index}", MESH)
    names = [mesh.name for mesh in client.meshes.list()]
    assert [name for name in names if name.startswith("page-")] == [f"page-{index}" for index in range(5)]
    sides = (MESH, "* [fsdp, ...] chunk", "no-such"), (MESH, "* [...]", "received")
    ids = [client.start_reshard(MANIFEST, *sides).id for _ in range(4)]
    assert [operation.id for operation in client.operations.list(3)] == ids[:0:-1]


def test_details_are_those_that_came_with_the_status():
    status = _wire.message("google.rpc.Status")(code=5, message="no")
    info = _wire.message("google.rpc.ErrorInfo")(metadata={"object": "mesh", "found": "none"})
    status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
    for code, kind in ((5, errors.NotFoundError), (11, errors.Error), (16, errors.Error)):
        metadata = (("other", "x"), ("grpc-status-details-bin", status.SerializeToString()))
        error = _calls.status_error("a", code, 'tensor "x": expected one, found two', metadata, 1)
        assert type(error) is kind
        assert (error.object, error.expected, error.found) == ("mesh", "", "none")
    metadata = (("grpc-status-details-bin", b"\xff"),)
    error = _calls.status_error("a", 5, 'tensor "x": expected one, found two', metadata, 1)
    assert (error.object, error.expected, error.found) == ('tensor "x"', "one", "two")


def test_rules_are_taken_apart_as_the_command_line_does():
    text = ("# layers\nm.{l}.* [a*b, -] nested_chunk on stage={l}/12, expert=1 as BF16  # x\n"
            "* {[0:3, 0:4] [6:9, 0:4]; [3:6, 0:4]; }\nnorm#1 [-] as F32\n\n[odd] [...]  on stage=0")
    assert _core.rule_rows(text) == [
        ("m.{l}.*", "[a*b, -] nested_chunk", "stage={l}/12, expert=1", "BF16"),
        ("*", "{[0:3, 0:4] [6:9, 0:4]; [3:6, 0:4]; }", "", ""),
        ("norm#1", "[-]", "", "F32"), ("[odd]", "[...]", "stage=0", "")]


def test_a_bar_ends_its_line_also_after_an_exception(capsys):
    operation = _convert.value_of(
        results.Operation, _wire.message("Operation")(state=2, moved_bytes=5 * 10**8, total_bytes=10**9))
    with pytest.raises(KeyboardInterrupt), _progress.bar(True) as show:
        show(operation)
        raise KeyboardInterrupt
    assert capsys.readouterr().err == (
        "\rRUNNING    [###############               ]  50%  0.50 of 1.00 GB\n")
    with _progress.bar(None) as show:  # no terminal
        assert show is None
