"""Processes that are forked off one that has a client, a cluster or a rank: each is told, and takes nothing along."""

import processes
import pytest

import crossmesh

PRELUDE = """
import logging, os, sys, warnings
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # whose handlers say that they do nothing
import crossmesh
from crossmesh import aio, errors

logging.getLogger("asyncio").setLevel(logging.ERROR)  # how long a callback takes is the machine's affair
warnings.simplefilter("ignore", DeprecationWarning)  # that it has threads
warnings.simplefilter("ignore", ResourceWarning)  # what is the parent's is left open by the child

def told(use, text):
    try:
        use()
    except errors.FailedPreconditionError as error:
        assert text in str(error), error
        print("told", flush=True)

def await_child(child):
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(scope="module")
def cluster():
    with crossmesh.local_cluster(workers=0) as running:
        yield running


def _run(script, *words):
    return processes.output_of(PRELUDE, script, *words)


def test_the_asynchronous_client(cluster):
    assert _run("""
        import asyncio
        async def use():
            client = aio.connect(sys.argv[1])
            await client.workers.list()
            child = os.fork()
            if child == 0:
                try:
                    await client.workers.list()
                except errors.FailedPreconditionError as error:
                    assert "after a fork" in str(error), error
                    print("told", flush=True)
                try:
                    await client.start_reshard("m", ("a", "* [...]", "s"), ("b", "* [...]", "t"))
                except errors.FailedPreconditionError:
                    print("told", flush=True)
                await client.close()
                os._exit(0)
            await_child(child)
            print(await client.workers.list())
            await client.close()
        asyncio.run(use())
    """, cluster.address) == "told\ntold\n[]\n"


def test_a_client_that_is_dropped(cluster):
    """Its channel stays in the child, since gRPC cannot take it apart there: to do so crashes, but not every time. So
    the channel itself is looked at."""
    assert _run("""
        import gc, weakref
        client = crossmesh.connect(sys.argv[1])
        client.workers.list()
        (channel,) = [weakref.ref(one) for one in client._caller._channels.values()]
        child = os.fork()
        if child == 0:
            del client
            gc.collect()
            assert channel() is not None
            sys.exit(0)
        await_child(child)
        print(client.workers.list())
        del client
        gc.collect()
        print(channel())
    """, cluster.address) == "[]\nNone\n"


def test_an_asynchronous_client_that_is_dropped(cluster):
    assert _run("""
        import asyncio, gc
        async def use():
            client = aio.connect(sys.argv[1])
            await client.workers.list()
            return client
        loop = asyncio.new_event_loop()
        client = loop.run_until_complete(use())
        child = os.fork()
        if child == 0:
            del client
            gc.collect()
            print("dropped", flush=True)
            os._exit(0)  # the end of the loop would be its parent's as well
        await_child(child)
        print(loop.run_until_complete(client.workers.list()))
        loop.run_until_complete(client.close())
        loop.close()
    """, cluster.address) == "dropped\n[]\n"


def test_an_operation_that_is_followed(cluster):
    assert _run("""
        with crossmesh.connect(sys.argv[1]) as client:
            running = client.operations.watch("op-1")
            client.workers.list()
            child = os.fork()
            if child == 0:
                told(running.wait, "after a fork")
                told(running.cancel, "after a fork")
                told(lambda: next(iter(running)), "after a fork")
                sys.exit(0)
            await_child(child)
    """, cluster.address) == 3 * "told\n"


def test_a_cluster_of_this_machine_is_its_parents():
    """What leaves the block in the child ends no daemon, and removes no folder; a client is connected there anew."""
    assert _run("""
        with crossmesh.local_cluster(workers=1) as cluster:
            storage = cluster.memory(0).storage(
                "s", "node-0.0", crossmesh.Manifest([crossmesh.Tensor("w", "I8", [8])]), "x=1 on node-0.0", "* [-]")
            child = os.fork()
            if child == 0:
                told(cluster.client.workers.list, "after a fork")
                told(lambda: cluster.await_workers(1), "after a fork")
                storage["w"][...] = 7  # and so to the end of the block
            else:
                await_child(child)
                assert cluster.memory(0).list()
                assert len(cluster.client.workers.list()) == 1
                print(storage["w"].sum())
    """) == "told\ntold\n56\n"


def test_a_rank_of_a_pipeline(cluster):
    """What the child calls is refused; what it drops, or ends with, leaves the run alone."""
    assert _run("""
        import gc
        from crossmesh.client import PipelineChoice, RunOptions
        pipeline = {
            "name": "one", "ranks": [{"inlineMesh": {"axes": "x=1", "devices": "forks.0"}}],
            "stages": [{"name": "a", "rank": 0, "forwardSeconds": 1e-4, "inputGradientSeconds": 1e-4,
                        "weightGradientSeconds": 1e-4}],
            "microbatches": [{"count": 2, "samples": "4"}],
        }
        client = crossmesh.connect(sys.argv[1])
        with crossmesh.Worker("forks", "forks.0", sys.argv[1], log_level="error") as worker:
            while "forks" not in [known.name for known in client.workers.list()]:
                pass
            run = client.pipelines.start(pipeline, PipelineChoice(schedule="1f1b"), RunOptions(iterations=1))
            loop = worker.pipeline(30)
            step = next(loop)
            child = os.fork()
            if child == 0:
                told(lambda: next(loop), "forked off")
                told(step.done, "forked off")
                told(lambda: step.fail("why"), "forked off")
                told(worker.pipeline, "forked off")
                loop.leave()
                del loop, step
                gc.collect()
                os._exit(0)
            await_child(child)
            with loop:
                child = os.fork()
                if child == 0:
                    sys.exit(0)  # by the ends of both blocks
                await_child(child)
                for step in loop:
                    pass
            print(run.wait(30).state.value)
    """, cluster.address) == 4 * "told\n" + "DONE\n"
