"""Workers that drain, are evicted, or end and come again, under a client that is connected."""

import asyncio
import os
import select
import signal
import time

import numpy
import pytest

import crossmesh
from crossmesh import aio, cluster, errors
from crossmesh.results import WorkerState

MANIFEST = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [8, 4])])
MESH = "x=2 on node-0.0,node-1.0"
VALUES = {"w": numpy.arange(32, dtype="f4").reshape(8, 4)}


def _storage(running, rank, **options):
    return running.memory(rank).storage("from", f"node-{rank}.0", MANIFEST, MESH, "* [x, -]", **options)


def _reshard(running):
    running.client.reshard(
        MANIFEST, (MESH, "* [x, -]", "from"), (MESH, "* [-, -]", "to"), create_destination=True, timeout=60)
    return running.memory(0).storage("to", "node-0.0", MANIFEST, MESH, "* [-, -]", create=False)["w"]


def _await_state(client, name, state):
    """A worker tells its controller by its next heartbeat."""
    until = time.monotonic() + 60
    while {worker.name: worker.state for worker in client.workers.list()}[name] is not state:
        assert time.monotonic() < until
        time.sleep(0.01)


async def _undrain(address, name):
    async with aio.connect(address) as client:
        await client.workers.undrain(name)


def test_a_drain_is_taken_back_while_the_worker_is_not_idle_and_an_evicted_one_is_lost():
    large = crossmesh.Manifest([crossmesh.Tensor("w", "I8", [64 << 20])])
    with crossmesh.local_cluster(workers=2) as running:
        client = running.client
        for rank in range(2):
            running.memory(rank).storage("large", f"node-{rank}.0", large, MESH, "* [x]")
        operation = client.start_reshard(
            large, (MESH, "* [x]", "large"), (MESH, "* [-]", "to"), create_destination=True, nic_share=0.0001)
        assert next(state for state in operation if state.moved_bytes > 0)
        for undrain in (client.workers.undrain, lambda name: asyncio.run(_undrain(running.address, name))):
            client.workers.drain("node-0")
            _await_state(client, "node-0", WorkerState.DRAINING)
            undrain("node-0")
            _await_state(client, "node-0", WorkerState.READY)
        operation.cancel()
        with pytest.raises(errors.Error):
            operation.wait(60)
        for call in (client.workers.undrain, client.workers.evict):
            with pytest.raises(errors.NotFoundError, match="node-9"):
                call("node-9")
        client.workers.evict("node-1")
        _await_state(client, "node-1", WorkerState.LOST)
        assert [worker.name for worker in client.workers.list() if worker.state is WorkerState.READY] == ["node-0"]
        client.workers.forget("node-1")


def _kill(pid):
    watched = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([watched], [], [], 20)[0]
    os.close(watched)


def _incarnation(running):
    return next(worker.incarnation for worker in running.client.workers.list() if worker.name == "node-1")


def test_a_worker_that_restarts_is_told_and_gone_on_with():
    with crossmesh.local_cluster(workers=2) as running:
        storages = [_storage(running, rank) for rank in range(2)]
        for storage in storages:
            storage.fill(VALUES)
        assert (_reshard(running) == VALUES["w"]).all()
        held = storages[1]["w"]
        former = _incarnation(running)
        _kill(running.pids[2])
        again = cluster._Daemon(running.folder, "node-1-again", running._worker_words(1))
        try:
            again.await_ready()
            # What was taken of the former one: its memory is there, and no call takes it for that of the new one.
            assert (held == VALUES["w"][4:]).all()
            for use in (storages[1].check, lambda: storages[1]["w"], lambda: storages[1].fill(VALUES)):
                with pytest.raises(errors.UnavailableError, match="create it again at the new one, and fill it"):
                    use()
            with pytest.raises(errors.NotFoundError, match=r'storage "from" of device node-1\.0'):
                storages[1].refresh()
            while _incarnation(running) == former:
                time.sleep(0.01)
            running.await_workers(2)
            with pytest.raises(errors.FailedPreconditionError, match='source storage "from"') as caught:
                _reshard(running)
            assert "node-1.0" in str(caught.value)
            _storage(running, 1).fill({"w": VALUES["w"] + 1})
            assert (_reshard(running) == VALUES["w"] + numpy.repeat([[0], [1]], 4, axis=0)).all()
            storages[0].check()
        finally:
            again.ask_to_end()
            again.end()
