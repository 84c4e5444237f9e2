"""Daemons of other versions than the package's: what they lack, and what they say that it does not know."""

import asyncio
import contextlib
import json
import socket
import threading
from concurrent import futures

import grpc
import pytest

import crossmesh
from crossmesh import _wire, aio, embedded, errors, results


@contextlib.contextmanager
def _controller(folder, methods):
    """One of another version: it has these methods, each with the answer that it gives."""
    handlers = {}
    for name, answer in methods.items():
        method = _wire.method(name)
        handlers[name.split("/")[1]] = grpc.unary_unary_rpc_method_handler(
            lambda request, context, answer=answer: answer, request_deserializer=method.request.FromString)
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(f"crossmesh.v1.{service}", handlers)
         for service in {name.split("/")[0] for name in methods}])
    address = f"unix:{folder / 's'}"
    server.add_insecure_port(address)
    server.start()
    try:
        yield address
    finally:
        server.stop(None).wait()


def test_a_call_that_an_older_controller_does_not_have_is_named(tmp_path):
    async def undrain(address):
        async with aio.connect(address) as client:
            await client.workers.undrain("node-0")

    told = r"expected one that has WorkerService/UndrainWorker, found none; it is of another version than this package"
    with _controller(tmp_path, {}) as address:
        with crossmesh.connect(address) as client, pytest.raises(errors.UnimplementedError, match=told) as caught:
            client.workers.undrain("node-0")
        assert caught.value.object == f"controller {address}"
        with pytest.raises(errors.UnimplementedError, match=told):
            asyncio.run(undrain(address))
        with crossmesh.connect(address) as client, pytest.raises(errors.UnimplementedError, match="ExecuteReshard"):
            client.start_reshard("m", ("a", "* [...]", "s"), ("b", "* [...]", "t"))


def test_a_real_controller_names_what_it_does_not_have_by_the_same_words(monkeypatch):
    with crossmesh.local_cluster(workers=0) as cluster:
        monkeypatch.setattr(_wire, "method", _later)
        with pytest.raises(errors.UnimplementedError, match="one that has WorkerService/ListWorkers, found none"):
            cluster.client.workers.list()


def _later(name, method=_wire.method):
    known = method(name)
    return _wire.Method(f"{known.path}Soon", known.request, known.response, known.request_stream, known.response_stream)


def test_what_a_later_controller_says_beside_what_is_known_is_left_out(tmp_path):
    reply = _wire.method("WorkerService/ListWorkers").response(workers=[{"name": "node-0"}])
    # A field 500 of length 3 in the worker, and a state 77.
    worker = reply.workers[0].SerializeToString() + b"\xa2\x1f\x03abc"
    state = next(f.number for f in reply.workers[0].DESCRIPTOR.fields if f.name == "state")
    worker += bytes([state << 3, 77])
    answer = bytes([0x0a, len(worker)]) + worker
    with _controller(tmp_path, {"WorkerService/ListWorkers": answer}) as address, crossmesh.connect(address) as client:
        (listed,) = client.workers.list()
    assert (listed.name, listed.state) == ("node-0", results.WorkerState.UNSPECIFIED)


@contextlib.contextmanager
def _worker(folder, reply):
    """A memory socket that answers once."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "m"))
        listener.listen()

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.send(json.dumps(reply).encode())

        thread = threading.Thread(target=answer)
        thread.start()
        yield crossmesh.worker_memory(str(folder / "m"))
        thread.join()


STORAGE = {"storage": "s", "device": "a.0", "bytes": 64, "generation": 3, "dirty": False, "gpu": "", "shadow_bytes": 0}


def test_what_a_later_worker_says_of_storages_is_left_out(tmp_path):
    reply = {"code": 0, "message": "", "storages": [{**STORAGE, "tier": "cold"}], "complete": True}
    with _worker(tmp_path, reply) as memory:
        assert memory.list() == [crossmesh.memory.StorageState(**STORAGE)]


def test_a_worker_of_another_protocol_is_told(tmp_path):
    reply = {"code": 0, "message": "", "storages": [{"name": "s"}]}
    with _worker(tmp_path, reply) as memory, pytest.raises(errors.InternalError, match="is it of another version"):
        memory.list()


def test_a_worker_that_the_controller_refuses_says_so_wherever_it_waits(tmp_path, monkeypatch):
    why = "worker w: expected protocol 9, as a controller of version 0.9.0 speaks, found protocol 3 of version 0.2.0"

    def refuse(requests, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)

    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(
        "crossmesh.v1.WorkerService", {"WorkerSession": grpc.stream_stream_rpc_method_handler(refuse)})])
    server.add_insecure_port(f"unix:{tmp_path / 's'}")
    server.start()
    options = embedded._worker.WorkerOptions()
    options.version_refused_max = 0.2
    monkeypatch.setattr(embedded._worker, "WorkerOptions", lambda: options)
    with crossmesh.Worker("w", "w.0", f"unix:{tmp_path / 's'}", log_level="error") as worker:
        for wait in (worker.wait, worker.pipeline):
            with pytest.raises(errors.FailedPreconditionError, match=r"of version 0\.9\.0 speaks, found protocol 3"):
                wait()
    server.stop(None).wait()
