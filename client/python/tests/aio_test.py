"""The client for asyncio: what it does, and that it is the other one's twin."""

import asyncio
import inspect

import pytest

import crossmesh
from crossmesh import aio, client, errors, results

MANIFEST = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [8, 8])])
MESH = "fsdp=2 on node-0.0,node-1.0"
SERVICES = ("Meshes", "Manifests", "NetworkDescription", "Operations", "Workers", "Controller", "Pipelines",
            "Client", "RunningOperation", "PipelineRunning")


def _public(kind):
    return {name: member for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize("name", SERVICES)
def test_both_clients_have_the_same_methods(name):
    blocking, awaited = _public(getattr(client, name)), _public(getattr(aio, name))
    awaited.pop("begin", None)
    assert set(blocking) == set(awaited)
    for method, function in blocking.items():
        twin = awaited[method]
        parameters = inspect.signature(function).parameters
        assert list(parameters.values()) == list(inspect.signature(twin).parameters.values()), method
        assert inspect.iscoroutinefunction(twin) == (method != "watch"), method


def test_calls_are_made_at_once_and_a_failed_operation_raises():
    async def use(address):
        async with aio.connect([f"{address}.none", address]) as cluster:
            await cluster.meshes.create("m", MESH)
            await cluster.manifests.put("w", MANIFEST)
            workers, mesh, manifest, plan = await asyncio.gather(
                cluster.workers.list(), cluster.meshes.get("m"), cluster.manifests.get("w"),
                cluster.plan("w", ("m", "* [fsdp, -]"), ("m", "* [-, -]")))
            assert len(workers) == 2
            assert mesh == crossmesh.Mesh(MESH)
            assert manifest == MANIFEST
            assert plan.strategy == "relay"
            running = await cluster.start_reshard(
                "w", ("m", "* [fsdp, -]", "no-such"), ("m", "* [-, -]", "x"), create_destination=True)
            states = [state.state async for state in running]
            assert states[-1] is results.OperationState.FAILED
            with pytest.raises(errors.FailedPreconditionError):
                await cluster.operations.watch(running.id).wait(timeout=60)
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            await cluster.workers.list()

    with crossmesh.local_cluster(workers=2) as running:
        asyncio.run(use(running.address))


def test_a_cancelled_task_ends_its_call(tmp_path):
    async def use():
        async def accept(reader, writer):
            accepted.set()

        accepted = asyncio.Event()
        path = str(tmp_path / "s")
        server = await asyncio.start_unix_server(accept, path)
        async with aio.connect(f"unix:{path}") as cluster:
            call = asyncio.create_task(cluster.workers.list())
            await accepted.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        server.close()

    asyncio.run(use())
