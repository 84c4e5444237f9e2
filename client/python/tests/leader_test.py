"""Of several controllers clients find the one that leads: the rules, and two controllers over an etcd."""

import asyncio
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import numpy
import pytest

import crossmesh
from crossmesh import _calls, _route, _wire, aio, cluster, errors, programs

ADDRESSES = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
AWAY = errors.UnavailableError.code
# A lease of 5 s, and what a client and a loaded machine need beside it.
ANSWER_SECONDS_MAX = 10.0
MESH = "x=2 on node-0.0,node-1.0"
MANIFEST = crossmesh.Manifest([crossmesh.Tensor("w", "I8", [64 << 20])])


def _told(leader, reason="NOT_LEADER"):
    """The metadata of a controller that stands by."""
    info = _wire.message("google.rpc.ErrorInfo")(
        reason=reason, metadata={} if leader is None else {"leader": leader})
    status = _wire.message("google.rpc.Status")(code=AWAY)
    status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
    return (("grpc-status-details-bin", status.SerializeToString()),)


def _follows(told, route=None):
    route = route if route is not None else _route.Route(ADDRESSES, insecure=False)
    route.ended(route.current, AWAY, _calls.leader_named_by(AWAY, told))
    return route.current


def test_one_that_answers_is_stayed_with():
    route = _route.Route(ADDRESSES, insecure=False)
    for code in (0, 3, 5, 6, 8, 9, 10, 13):
        route.ended(route.current, code, None)
    assert route.current == ADDRESSES[0]


def test_the_list_is_gone_round_while_none_answers():
    route = _route.Route(ADDRESSES, insecure=False)
    asked = []
    for code in (AWAY, 1, 4, AWAY, AWAY, 1, 4):
        asked.append(route.current[-1])
        route.ended(route.current, code, None)
    assert asked == ["1", "2", "3", "1", "2", "3", "1"]


def test_the_leader_is_gone_to_also_when_it_is_not_in_the_list():
    route = _route.Route(ADDRESSES, insecure=False)
    assert _follows(_told("127.0.0.1:3"), route) == "127.0.0.1:3"
    assert _follows((), route) == "127.0.0.1:1"
    assert _follows(_told("127.0.0.1:9"), route) == "127.0.0.1:9"
    assert _follows((), route) == "127.0.0.1:2"


@pytest.mark.parametrize("leader", [None, "127.0.0.1:1", "", "not an address", "unix:relative"])
def test_one_that_names_itself_none_or_nonsense_is_left_for_the_next(leader):
    assert _follows(_told(leader)) == "127.0.0.1:2"


def test_news_of_one_that_is_not_asked_any_more_are_old():
    route = _route.Route(ADDRESSES, insecure=False)
    route.ended(ADDRESSES[0], AWAY, None)
    route.ended(ADDRESSES[0], AWAY, ADDRESSES[2])
    assert route.current == ADDRESSES[1]


def test_other_errors_name_no_leader():
    assert _calls.leader_named_by(AWAY, _told("127.0.0.1:3", "OTHER")) is None
    assert _calls.leader_named_by(9, _told("127.0.0.1:3")) is None
    assert _calls.leader_named_by(AWAY, ()) is None
    assert _calls.leader_named_by(AWAY, (("grpc-status-details-bin", b"\xff"),)) is None


def test_a_leader_beyond_this_machine_has_to_be_allowed():
    route = _route.Route(ADDRESSES, insecure=False)
    assert _follows(_told("10.0.0.1:1"), route) == "10.0.0.1:1"
    with pytest.raises(errors.UnavailableError, match="insecure=True"):
        route.check(route.current)
    assert route.current == ADDRESSES[1]
    _route.Route(["10.0.0.1:1"], insecure=True).check("10.0.0.1:1")


def test_several_controllers_are_searched_for_longer_and_with_shorter_pauses():
    assert _calls.options_of(1, 30, None, 60) == _calls.Options(30, 5, 60, 3)
    assert _calls.options_of(2, 30, None, 60) == _calls.Options(30, 15, 60, 0.5)
    assert _calls.options_of(2, 30, 1, 60).retry == 1


class Etcd:
    """Debian's, over Unix sockets, in a folder."""

    def __init__(self, folder: pathlib.Path):
        # It takes what follows unix:// for a path below its working folder, and wants it to look like host and port.
        client, peer = "unix://localhost:1", "unix://localhost:2"
        self.endpoint = f"unix:{folder / 'localhost:1'}"
        self._path = str(folder / "localhost:1")
        with open(folder / "etcd.log", "wb") as log:
            self._process = subprocess.Popen(
                cluster._ending_with_this_process([
                 "/usr/bin/etcd", "--data-dir=data", f"--listen-client-urls={client}",
                 f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
                 f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}", "--max-txn-ops=4096",
                 "--heartbeat-interval=10", "--election-timeout=100"]),
                cwd=folder, stdout=log, stderr=log)

    def await_service(self):
        until = time.monotonic() + 60
        while b'"health":"true"' not in self._health():
            assert self._process.poll() is None and time.monotonic() < until
            time.sleep(0.02)

    def _health(self):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as stream:
            stream.connect(self._path)
            stream.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return b"".join(iter(lambda: stream.recv(4096), b""))
        return b""

    def end(self):
        self._process.kill()
        self._process.wait()


class Controllers:
    """Two of them, of which the first leads at first, and two workers."""

    def __init__(self, folder: pathlib.Path, stack: contextlib.ExitStack):
        self.folder = folder
        self.addresses = [f"unix:{folder / name}.sock" for name in ("first", "second")]
        etcd = Etcd(folder)
        stack.callback(etcd.end)
        etcd.await_service()
        self.daemons = []
        for name, address in zip(("first", "second"), self.addresses, strict=True):
            self.daemons.append(self._start(stack, name, [
                "crossmesh-controller", "--listen", address, "--metrics-listen", "127.0.0.1:0", "--etcd",
                etcd.endpoint]))
            if name == "first":
                self._await_leader(name)
        for name in ("node-0", "node-1"):
            self._start(stack, name, [
                "crossmesh-worker", "--name", name, "--devices", f"{name}.0", "--controller", ",".join(self.addresses),
                "--listen", f"unix:{folder / name}.sock", "--memory-socket", self.memory_socket(name),
                "--metrics-listen", "127.0.0.1:0"]).await_ready()

    def memory_socket(self, worker):
        return str(self.folder / f"{worker}.memory")

    def _start(self, stack, name, words):
        daemon = cluster._Daemon(self.folder, name, [str(programs.path(words[0])), *words[1:]])
        stack.callback(self._end, daemon)
        return daemon

    def _await_leader(self, name):
        """Controllers are ready when they stand by as well; one that leads has its ready file."""
        until = time.monotonic() + 60
        while not (self.folder / f"{name}.ready").exists():
            assert time.monotonic() < until
            time.sleep(0.02)

    @staticmethod
    def _end(daemon):
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon.pid, signal.SIGKILL)
        daemon.end()

    def signal(self, index, number):
        """Returns when it has come to that: a process stops, or ends, thread by thread."""
        pid = self.daemons[index].pid
        os.kill(pid, number)
        while pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "TZ":
            pass


@pytest.fixture
def controllers():
    if not pathlib.Path("/usr/bin/etcd").exists():
        pytest.skip("no etcd: Debian's package etcd-server")
    with tempfile.TemporaryDirectory(prefix="cm-") as folder, contextlib.ExitStack() as stack:
        yield Controllers(pathlib.Path(folder), stack)


def _await_workers(client):
    while [worker.state.value for worker in client.workers.list()] != ["READY"] * 2:
        time.sleep(0.02)


async def _make_mesh(addresses, name, known):
    """Asks by the asynchronous client: what was known, and something new; returns how long that took."""
    begin = time.monotonic()
    async with aio.connect(addresses) as client:
        assert [mesh.name for mesh in await client.meshes.list()] == known
        await client.meshes.create(name, MESH)
    return time.monotonic() - begin


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_operation_and_both_clients_go_on_with_the_next_leader(controllers, number):
    values = {"w": numpy.arange(64 << 20, dtype="u4").astype("i1")}
    memories = {
        f"{name}.0": crossmesh.worker_memory(controllers.memory_socket(name)) for name in ("node-0", "node-1")}
    for device, memory in memories.items():
        memory.storage("from", device, MANIFEST, MESH, "* [x]").fill(values)
    with crossmesh.connect(controllers.addresses) as client:
        _await_workers(client)
        client.meshes.create("a", MESH)
        running = client.start_reshard(  # for some seconds
            MANIFEST, (MESH, "* [x]", "from"), (MESH, "* [-]", "to"), create_destination=True, nic_share=0.001)
        assert next(state for state in running if state.moved_bytes > 0)
        controllers.signal(0, number)
        begin = time.monotonic()
        assert client.meshes.get("a") == crossmesh.Mesh(MESH)
        took = time.monotonic() - begin
        print(f"answers {took:.2f} s after signal {number}")
        assert took < ANSWER_SECONDS_MAX
        assert running.wait(60).id == running.id
        # So does one that asks the former leader first.
        assert asyncio.run(_make_mesh(controllers.addresses, "b", ["a"])) < ANSWER_SECONDS_MAX
        assert [known.name for known in client.meshes.list()] == ["a", "b"]
    for device, memory in memories.items():
        assert (memory.storage("to", device, MANIFEST, MESH, "* [-]", create=False)["w"] == values["w"]).all()


def test_one_that_stands_by_leads_clients_on(controllers):
    standby = controllers.addresses[1]
    assert asyncio.run(_make_mesh(standby, "a", [])) < ANSWER_SECONDS_MAX
    with crossmesh.connect(standby) as client:
        assert [mesh.name for mesh in client.meshes.list()] == ["a"]


@pytest.fixture
def silent(tmp_path):
    """The address of one whose socket accepts, and that says nothing: as a process that is stopped."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        yield f"unix:{tmp_path / 's'}"


async def _list_workers(addresses):
    async with aio.connect(addresses) as client:
        begin = time.monotonic()
        await client.workers.list()
        return time.monotonic() - begin


def test_one_that_accepts_and_is_silent_is_left_after_a_quarter_of_a_second(silent):
    with crossmesh.local_cluster(workers=0) as running:
        addresses = [silent, running.address]
        for _ in range(2):
            with crossmesh.connect(addresses) as client:
                begin = time.monotonic()
                client.workers.list()
                took = time.monotonic() - begin
            for seconds in (took, asyncio.run(_list_workers(addresses))):
                assert _route.CONNECT_SECONDS_MAX <= seconds < 1.9


def test_where_all_are_silent_that_is_told_after_the_time_for_all(silent):
    with crossmesh.connect([silent, silent], retry_for=0.5) as client, pytest.raises(
            errors.UnavailableError, match=r"expected a connection within 0\.25 s, found none"):
        client.workers.list()
