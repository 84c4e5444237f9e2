"""Ctrl-C in whatever blocks: each ends at once, with KeyboardInterrupt, and leaves what can be gone on with."""

import pathlib
import threading

import numpy
import processes
import pytest

import crossmesh
from crossmesh import client

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
MANIFEST = crossmesh.Manifest([crossmesh.Tensor("w", "I8", [64 << 20])])
MESH = "x=2 on node-0.0,node-1.0"

# Sends the signal once the main thread is in a function of that name, and what is said is so, and lets others run.
PRELUDE = """
import logging, os, signal, socket, sys, threading, time
import crossmesh
from crossmesh import aio, errors

logging.getLogger("asyncio").setLevel(logging.ERROR)  # how long a callback takes is the machine's affair

def interrupted_in(name, call, once=lambda: True):
    main, begun = threading.main_thread().ident, threading.Event()
    def is_in():
        frame = sys._current_frames()[main]
        while frame is not None and frame.f_code.co_name != name:
            frame = frame.f_back
        return frame is not None
    def interrupt():
        begun.wait()
        while not (is_in() and once()):
            time.sleep(0.001)
        time.sleep(0.05)  # the later, the surer that it waits: what is expected is the same at any time
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    begin = time.monotonic()
    try:
        begun.set()
        call()
    except KeyboardInterrupt:
        assert time.monotonic() - begin < 10
        print("interrupted", flush=True)
"""


def _run(script, *words):
    return processes.output_of(PRELUDE, script, *words)


@pytest.fixture(scope="module")
def cluster():
    with crossmesh.local_cluster(workers=2) as running:
        for rank in range(2):
            storage = running.memory(rank).storage("from", f"node-{rank}.0", MANIFEST, MESH, "* [x]")
            storage.fill({"w": numpy.zeros(64 << 20, "i1")})
        yield running


def test_calls_of_the_main_thread_are_made_by_another_which_no_signal_interrupts(cluster, monkeypatch):
    makers = []
    opened = client._Caller.open
    monkeypatch.setattr(
        client._Caller, "open", lambda *call: (makers.append(threading.current_thread()), opened(*call))[1])
    cluster.client.workers.list()
    assert len(makers) == 1 and makers[0] is not threading.main_thread() and not makers[0].is_alive()
    apart = threading.Thread(target=cluster.client.workers.list)
    apart.start()
    apart.join()
    assert makers[1:] == [apart]


def test_a_search_for_a_controller(tmp_path):
    assert _run("""
        client = crossmesh.connect(sys.argv[1], retry_for=60)
        interrupted_in("pause", client.workers.list)
    """, f"unix:{tmp_path}/none") == "interrupted\n"


def test_a_call_of_the_asynchronous_client(tmp_path):
    assert _run("""
        import asyncio
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        listener.listen()
        async def use():
            async with aio.connect("unix:" + sys.argv[1]) as client:
                await client.workers.list()
        interrupted_in("select", lambda: asyncio.run(use()))
        listener.close()
    """, str(tmp_path / "s")) == "interrupted\n"


@pytest.mark.parametrize("wait", ["running.wait()", "list(running)", "client.operations.watch(running.id).wait(50)"])
def test_a_wait_for_an_operation_which_goes_on(cluster, wait):
    assert _run(f"""
        client = crossmesh.connect(sys.argv[1])
        manifest = crossmesh.Manifest([crossmesh.Tensor("w", "I8", [64 << 20])])
        running = client.start_reshard(
            manifest, ({MESH!r}, "* [x]", "from"), ({MESH!r}, "* [-]", "to"), create_destination=True, nic_share=0.0001)
        next(state for state in running if state.moved_bytes > 0)
        interrupted_in("_messages", lambda: {wait})
        print(client.operations.get(running.id).state.value)
        running.cancel()
        try:
            running.wait(50)
        except crossmesh.Error as error:
            print(error.operation.state.value)
    """, cluster.address) == "interrupted\nRUNNING\nCANCELLED\n"


def test_a_worker_that_does_not_answer_for_its_memory(tmp_path):
    assert _run("""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(sys.argv[1])
            listener.listen()
            interrupted_in("_ask", crossmesh.worker_memory(sys.argv[1], timeout=60).list)
    """, str(tmp_path / "m")) == "interrupted\n"


def test_a_cluster_that_does_not_start(tmp_path):
    for name in ("crossmesh-controller", "crossmesh-worker"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec sleep 1000\n")
        program.chmod(0o755)
    assert _run("""
        import pathlib
        os.environ["CROSSMESH_PROGRAMS"] = sys.argv[1]
        def start():
            with crossmesh.local_cluster(workers=1):
                pass
        pids = pathlib.Path(sys.argv[1], "pids")
        interrupted_in("await_ready", start, lambda: pids.exists() and len(pids.read_text().splitlines()) == 2)
        for pid in pids.read_text().split():
            assert not pathlib.Path("/proc", pid).exists()
    """, str(tmp_path)) == "interrupted\n"


def test_a_cluster_whose_worker_does_not_end():
    """All of its daemons are killed then, and its folder goes."""
    assert _run("""
        import pathlib
        cluster = crossmesh.local_cluster(workers=2)
        pids, folder = cluster.pids, cluster.folder
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        interrupted_in("end", cluster.stop)
        assert not any(pathlib.Path("/proc", str(pid)).exists() for pid in pids) and not folder.exists()
        cluster.stop()
    """) == "interrupted\n"


def test_workers_that_do_not_come(cluster):
    assert _run("""
        with crossmesh.local_cluster(workers=0) as cluster:
            interrupted_in("await_workers", lambda: cluster.await_workers(1))
            assert cluster.client.workers.list() == []
    """) == "interrupted\n"


def test_a_loan_that_an_operation_uses_and_a_worker_that_drains(cluster):
    """Both go on: the loan ends when it is asked to again, the worker by itself."""
    assert _run("""
        manifest = crossmesh.Manifest([crossmesh.Tensor("w", "I8", [64 << 20])])
        client = crossmesh.connect(sys.argv[1])
        worker = crossmesh.Worker("lends", "lends.0", sys.argv[1], log_level="error")
        lent = worker.lend("s", "lends.0", bytearray(64 << 20), manifest, "y=1 on lends.0", "* [-]")
        while "lends" not in [known.name for known in client.workers.list()]:
            pass
        sides = ("y=1 on lends.0", "* [-]", "s"), ("y=1 on node-0.0", "* [-]", "t")
        running = client.start_reshard(manifest, *sides, create_destination=True, nic_share=0.0001)
        while client.operations.get(running.id).moved_bytes == 0:
            pass
        interrupted_in("release", lambda: lent.release(60))
        assert lent.state().generation == 1
        interrupted_in("stop", lambda: worker.stop(60))
        running.cancel()
        worker.stop()
        try:
            lent.release()
        except errors.NotFoundError:
            print("ended")
    """, cluster.address) == "interrupted\ninterrupted\nended\n"


def test_a_rank_that_waits_for_what_another_one_gives(cluster):
    """The loop is as before: it hears that the other rank has left."""
    assert _run("""
        from crossmesh.client import PipelineChoice, RunOptions
        pipeline = {
            "name": "two",
            "ranks": [{"inlineMesh": {"axes": "x=1", "devices": device}} for device in ("ranks.0", "ranks.1")],
            "stages": [{"name": name, "rank": rank, "forwardSeconds": 1e-4, "inputGradientSeconds": 1e-4,
                        "weightGradientSeconds": 1e-4} for rank, name in enumerate("ab")],
            "edges": [{"from": 0, "to": 1, "tensors": [{
                "tensor": {"name": "h", "dtype": "F32", "shape": ["4", "3"]}, "batchDimension": 0,
                "sourceLayout": "[-, -]", "destinationLayout": "[-, -]"}]}],
            "microbatches": [{"count": 2, "samples": "4"}],
        }
        client = crossmesh.connect(sys.argv[1])
        with crossmesh.Worker("ranks", "ranks.0-1", sys.argv[1], log_level="error") as worker:
            while "ranks" not in [known.name for known in client.workers.list()]:
                pass
            run = client.pipelines.start(
                pipeline, PipelineChoice(schedule="1f1b"), RunOptions(iterations=1, stop_at_failure=True))
            first, second = sorted((worker.pipeline(30), worker.pipeline(30)), key=lambda loop: loop.rank)
            interrupted_in("__next__", lambda: next(second))
            interrupted_in("_messages", lambda: run.wait(50))
            first.leave()
            try:
                next(second)
            except crossmesh.Error as error:
                assert "has left the pipeline" in str(error), error
                print("told")
    """, cluster.address) == "interrupted\ninterrupted\ntold\n"


@pytest.mark.parametrize("call", [
    "plan.simulate()", "crossmesh.bound(*sides)", "crossmesh.schedules(sys.argv[1], schedule='auto')"])
def test_what_is_computed(call):
    assert _run(f"""
        manifest = crossmesh.Manifest([crossmesh.Tensor(f"t{{i}}", "U8", [4096 + i, 997]) for i in range(300)])
        sides = (manifest, (crossmesh.Mesh.of({{"a": 32}}, [f"s{{i}}.0" for i in range(32)]), "* [a, -] chunk"),
                 (crossmesh.Mesh.of({{"b": 24}}, [f"d{{i}}.0" for i in range(24)]), "* [-, b] balanced"))
        plan = crossmesh.plan(*sides) if {call!r}.startswith("plan") else None
        def again():
            while True:
                {call}
        interrupted_in("again", again)
    """, str(EXAMPLES / "pipeline.json")) == "interrupted\n"
