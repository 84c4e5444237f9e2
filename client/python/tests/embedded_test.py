"""Workers in processes of Python: memory that is lent, what blocks, forks, and ends."""

import gc
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy
import pytest

import crossmesh
from crossmesh import errors

MESH = "x=2 on a.0,b.0"
MANIFEST = crossmesh.Manifest([
    crossmesh.Tensor("w", "F32", [7, 5]), crossmesh.Tensor("b", "BF16", [64]), crossmesh.Tensor("s", "F64", [])])
CUT, WHOLE = "s []\n* [x, ...] chunk", "* [...]"


@pytest.fixture(scope="module")
def cluster():
    with crossmesh.local_cluster(workers=0) as running:
        yield running


@pytest.fixture(scope="module")
def workers(cluster):
    with crossmesh.Worker("a", "a.0", cluster.address) as a, crossmesh.Worker("b", ["b.0"], [cluster.address]) as b:
        cluster.await_workers(2)
        yield a, b


def _values(seed):
    generator = numpy.random.default_rng(seed)
    return {tensor.name: generator.integers(0, 256, tensor.bytes, numpy.uint8)
            .view(crossmesh.memory.numpy_type(tensor.dtype)).reshape(tensor.shape) for tensor in MANIFEST}


def _lend(workers, name, layouts):
    return [worker.lend(name, f"{worker.name}.0", numpy.zeros(1024, "u1"), MANIFEST, MESH, layouts)
            for worker in workers]


def _run(script, *words, **options):
    """In a process of its own, in which everything warns."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(script), *words], capture_output=True, text=True,
        timeout=60, **options)


def test_what_is_lent_is_moved_from_and_to(cluster, workers):
    values = _values(1)
    sources, targets = _lend(workers, "source", CUT), _lend(workers, "target", WHOLE)
    for source in sources:
        source.fill(values)
    operation = cluster.client.reshard(
        MANIFEST, (MESH, CUT, "source"), (MESH, WHOLE, "target"), binding="in_place", timeout=60)
    assert operation.report.destination_bytes == 2 * MANIFEST.bytes
    for target in targets:
        state = target.state()
        assert (state.generation, state.dirty) == (2, False)
        with pytest.raises(errors.FailedPreconditionError, match="expected generation 1, found generation 2"):
            target.check()
        target.refresh()
        for name, value in values.items():
            assert target[name].tobytes() == value.tobytes()
    for storage in sources + targets:
        storage.release()
        with pytest.raises(errors.NotFoundError):
            storage.check()


def test_a_shadow_is_no_place_for_what_is_lent(cluster, workers):
    storages = [*_lend(workers, "from", CUT), *_lend(workers, "to", WHOLE)]
    with pytest.raises(errors.FailedPreconditionError, match="expected an operation in place, found shadow"):
        cluster.client.reshard(MANIFEST, (MESH, CUT, "from"), (MESH, WHOLE, "to"), timeout=60)
    for storage in storages:
        assert storage.state().generation == 1
        storage.release()


def test_storages_of_the_workers_own_memory_are_arrays_as_well(cluster, workers):
    values = _values(2)
    for worker in workers:
        worker.storage("own", f"{worker.name}.0", MANIFEST, MESH, CUT).fill(values)
    cluster.client.reshard(MANIFEST, (MESH, CUT, "own"), (MESH, WHOLE, "all"), create_destination=True, timeout=60)
    for worker in workers:
        whole = worker.storage("all", f"{worker.name}.0", MANIFEST, MESH, WHOLE, create=False)
        assert {name: whole[name].tobytes() for name in whole} == {n: v.tobytes() for n, v in values.items()}
        for name in ("own", "all"):
            _delete_once_unused(worker.memory, name, f"{worker.name}.0")


def _delete_once_unused(memory, name, device):
    """A worker lets go of what an operation used soon after that has committed."""
    while True:
        try:
            return memory.delete(name, device)
        except errors.FailedPreconditionError as error:
            assert "expected no leases" in str(error)


def test_an_object_lives_while_it_is_lent(workers):
    class Array(numpy.ndarray):
        pass

    array = numpy.zeros(64, "u1").view(Array)
    watched = weakref.ref(array)
    storage = workers[0].lend("held", "a.0", array)
    del array
    gc.collect()
    held = watched()
    assert held is not None
    with pytest.raises(ValueError, match="resize"):
        held.resize(128)
    del held
    storage.release()
    del storage
    gc.collect()
    assert watched() is None


def test_the_extension_itself_holds_what_it_is_lent_and_lets_go_of_it_on_stop(cluster):
    memory, other = bytearray(64), bytearray(64)
    worker = crossmesh.Worker("holds", "j.0", cluster.address)
    worker._embedded.lend("one", "j.0", memory)
    worker._embedded.lend("two", "j.0", other)
    with pytest.raises(BufferError):
        memory.extend(b"x")
    worker._embedded.release("one", "j.0", 10)
    memory.extend(b"x")
    with pytest.raises(BufferError):
        other.extend(b"x")
    worker.stop()
    del worker
    gc.collect()
    other.extend(b"x")


def test_what_was_deleted_by_others_is_let_go_of_on_stop(cluster):
    """By a thread without the GIL, so that something else has to."""
    memory = bytearray(64)
    worker = crossmesh.Worker("deletes", "m.0", cluster.address)
    worker._embedded.lend("one", "m.0", memory)
    worker.memory.delete("one", "m.0")
    worker.stop()
    memory.extend(b"x")


@pytest.mark.parametrize(("memory", "bytes_of_it"), [
    (bytearray(64), 64), (memoryview(bytearray(32)), 32), (numpy.zeros((4, 4), "f4"), 64), (numpy.zeros(()), 8)])
def test_whatever_has_the_buffer_protocol_can_be_lent(workers, memory, bytes_of_it):
    storage = workers[0].lend("any", "a.0", memory)
    assert storage.bytes == storage.state().bytes == bytes_of_it
    if isinstance(memory, bytearray):
        with pytest.raises(BufferError):
            memory.extend(b"x")
    storage.release()


def test_what_cannot_be_lent_is_refused_with_the_reason(workers):
    worker = workers[0]
    read_only = numpy.zeros(8)
    read_only.flags.writeable = False
    class OfAGpu:
        def __dlpack__(self, **options):
            raise BufferError("not for the host")

        def __dlpack_device__(self):
            return 2, 0

    for memory, found in ((read_only, "may only be read"), (numpy.zeros((4, 4))[:, 1], "strides"), ("text", "str"),
                          (b"bytes", "may only be read"), (OfAGpu(), "OfAGpu: "),
                          (numpy.array([None]), "references to objects")):
        with pytest.raises(errors.InvalidArgumentError, match=found) as caught:
            worker.lend("no", "a.0", memory)
        assert caught.value.object == 'storage "no" of device a.0' and caught.value.expected and caught.value.found
    with pytest.raises(errors.InvalidArgumentError, match="expected memory of 384 bytes, found 100"):
        worker.lend("no", "a.0", bytearray(100), MANIFEST, MESH, WHOLE)
    with pytest.raises(errors.InvalidArgumentError, match=r"expected one of worker a, a\.0, found none"):
        worker.lend("no", "b.0", bytearray(64))
    with pytest.raises(errors.InvalidArgumentError, match="storage: expected a name, found none"):
        worker.lend("", "a.0", bytearray(64))
    with pytest.raises(BufferError):
        worker._embedded.lend("no", "a.0", b"bytes")
    storage = worker.lend("twice", "a.0", bytearray(64))
    with pytest.raises(errors.AlreadyExistsError):
        worker.lend("twice", "a.0", bytearray(64))
    storage.release()
    with pytest.raises(errors.NotFoundError):
        storage.release()


def test_options_that_cannot_be_are_refused(cluster):
    for words, found in ((("A!", "a.0", cluster.address), r'found "A!"'), (("w", "", cluster.address), "device"),
                         (("w", "w.0", "nowhere at all"), "nowhere")):
        with pytest.raises(errors.Error, match=found):
            crossmesh.Worker(*words)
    with pytest.raises(errors.InvalidArgumentError, match='found "loud"'):
        crossmesh.Worker("w", "w.0", cluster.address, log_level="loud")


@pytest.mark.parametrize(("option", "found"), [
    ({"listen": "0.0.0.0:0"}, r"0\.0\.0\.0:0"), ({"metrics_listen": "0.0.0.0:0"}, r"0\.0\.0\.0:0"),
    ({"interfaces": ["none0"]}, "none0"), ({"trusted_networks": ["10.0.0.0/99"]}, "10.0.0.0/99"),
    ({"memory_socket": "/nowhere/at/all"}, "/nowhere/at/all"), ({"state_folder": "/dev/null"}, "/dev/null")])
def test_options_reach_the_worker(cluster, option, found):
    """As far as the worker refuses one that it cannot have."""
    with pytest.raises(errors.Error, match=found):
        crossmesh.Worker("w", "w.0", cluster.address, **option)


def test_a_bound_of_memory_and_addresses_of_all_machines_are_the_workers(cluster):
    manifest = crossmesh.Manifest([crossmesh.Tensor("w", "I8", [1 << 27])])
    with crossmesh.Worker("bounded", "l.0", cluster.address, memory_max=1 << 26, listen="0.0.0.0:0",
                          insecure=True) as worker:
        assert worker.address.startswith("0.0.0.0:")
        with pytest.raises(errors.ResourceExhaustedError, match="67108864"):
            worker.storage("large", "l.0", manifest, "x=1 on l.0", "* [-]")


# In a network of its own, where `lo` has an address that other machines could have.
NOT_LOOPBACK = """
import ctypes, fcntl, socket, struct, sys

if ctypes.CDLL(None).unshare(0x50000000) != 0:  # CLONE_NEWUSER | CLONE_NEWNET
    sys.exit("not allowed")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    address = struct.pack("16sH2x4s8x", b"lo", socket.AF_INET, socket.inet_aton("192.0.2.1"))
    fcntl.ioctl(control, 0x8916, address)  # SIOCSIFADDR, in place of 127.0.0.1
import crossmesh

for options in ({}, {"insecure": True}, {"trusted_networks": ["192.0.2.0/24"]}):
    try:
        crossmesh.Worker("exposed", "x.0", sys.argv[1], listen=f"unix:{sys.argv[2]}/w.sock", **options).stop()
        print("starts")
    except crossmesh.errors.InvalidArgumentError as error:
        print(error)
"""


def test_data_goes_over_what_is_not_loopback_where_that_is_allowed(cluster, tmp_path):
    done = _run(NOT_LOOPBACK, cluster.address, str(tmp_path))
    if done.stderr == "not allowed\n":
        pytest.skip("this machine lets no process have a network of its own")
    refused, *allowed = done.stdout.splitlines()
    assert (done.returncode, allowed) == (0, ["starts", "starts"]), done.stderr
    assert refused.startswith('data interface "lo": expected a loopback address')
    assert "found 192.0.2.1" in refused


def test_a_drain_that_the_controller_asks_for_ends_the_wait(cluster):
    with crossmesh.Worker("drained", "d.0", cluster.address) as worker:
        assert not worker.wait(0.01)
        while "drained" not in [w.name for w in cluster.client.workers.list()]:
            pass
        cluster.client.workers.drain("drained")
        assert worker.wait(30)


def test_other_threads_run_while_one_waits_and_a_stop_wakes_it(cluster):
    worker = crossmesh.Worker("woken", "e.0", cluster.address)
    begun, told = threading.Event(), []

    def wait():
        begun.set()
        with pytest.raises(errors.CancelledError) as caught:
            worker.pipeline()
        told.append(caught.value)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    with pytest.raises(errors.DeadlineExceededError, match=r"within 0\.05 s"):
        worker.pipeline(timeout=0.05)
    worker.stop()
    for thread in threads:
        thread.join(30)
    assert len(told) == 3
    worker.stop()
    with pytest.raises(errors.CancelledError):
        worker.pipeline()
    with pytest.raises(errors.FailedPreconditionError, match="worker woken: expected one that runs, found one that"):
        worker.lend("late", "e.0", bytearray(64))


@pytest.mark.parametrize("blocks", ["worker.pipeline()", "worker.wait()"])
def test_ctrl_c_ends_what_blocks(cluster, blocks):
    script = f"""
        import crossmesh, os, signal, sys, threading
        worker = crossmesh.Worker("interrupted", "f.0", {cluster.address!r})
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            {blocks}
        except KeyboardInterrupt:
            worker.stop()
            print("ended")
    """
    done = _run(script)
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


def test_a_signal_handler_may_stop_the_worker(cluster):
    done = _run(f"""
        import crossmesh, os, signal, threading
        worker = crossmesh.Worker("handled", "f.0", {cluster.address!r})
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        print(worker.wait())
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_a_process_that_is_forked_off_is_told_and_ends(cluster):
    done = _run(f"""
        import crossmesh, os, sys, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        worker = crossmesh.Worker("forked", "g.0", {cluster.address!r})
        storage = worker.lend("s", "g.0", bytearray(64))
        child = os.fork()
        if child == 0:
            for use in (worker.pipeline, worker.stop, worker.wait, storage.check, lambda: worker.lend("t", "g.0", b"")):
                try:
                    use()
                except crossmesh.Error as error:
                    assert "forked off" in str(error) or "may only be read" in str(error), error
            del worker, storage, use
            print("told", flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        storage.check()
        assert worker.memory.list()
        print("goes on")
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("told\ngoes on\n", "", 0)


def test_an_interpreter_may_end_with_all_of_it_held(cluster):
    done = _run(f"""
        import crossmesh, numpy, threading
        worker = crossmesh.Worker("ends", "h.0", {cluster.address!r})
        manifest = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [8])])
        side = (manifest, "x=1 on h.0", "* [-]")
        lent = worker.lend("lent", "h.0", numpy.zeros(16), *side)["w"]
        own = worker.storage("own", "h.0", *side)["w"]
        view = memoryview(lent)
        def wait():
            while True:
                worker.pipeline()
        for _ in range(4):
            threading.Thread(target=wait, daemon=True).start()
        threading.excepthook = lambda told: None
    """)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_process_that_is_killed_is_missed(cluster):
    script = f"""
import crossmesh, sys
worker = crossmesh.Worker("killed", "k.0", {cluster.address!r})
worker.lend("s", "k.0", bytearray(64))
print("ready", flush=True)
worker.wait()
"""
    manifest = crossmesh.Manifest([crossmesh.Tensor("w", "I8", [64])])
    mesh = "x=1 on k.0"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        while "killed" not in [w.name for w in cluster.client.workers.list()]:
            pass
        cluster.client.reshard(
            manifest, (mesh, "* [-]", "s"), (mesh, "* [-]", "t"), create_destination=True, timeout=60)
        watched = os.pidfd_open(process.pid)
        process.send_signal(signal.SIGKILL)
        assert select.select([watched], [], [], 20)[0]
        os.close(watched)
        with pytest.raises(errors.Error, match="killed"):
            cluster.client.reshard(
                manifest, (mesh, "* [-]", "s"), (mesh, "* [-]", "u"), create_destination=True, timeout=60,
                stall_limit=2)


def test_what_is_being_received_is_dirty_until_it_is_committed(cluster, workers):
    script = f"""
import crossmesh
worker = crossmesh.Worker("stopped", "o.0", {cluster.address!r})
worker.lend("s", "o.0", bytearray(b"x" * 64))
print("ready", flush=True)
worker.wait()
"""
    manifest = crossmesh.Manifest([crossmesh.Tensor("w", "I8", [64])])
    memory = bytearray(64)
    target = workers[0].lend("dirty", "a.0", memory, manifest, "x=1 on a.0", "* [-]")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        while "stopped" not in [w.name for w in cluster.client.workers.list()]:
            pass
        process.send_signal(signal.SIGSTOP)
        try:
            running = cluster.client.start_reshard(
                manifest, ("x=1 on o.0", "* [-]", "s"), ("x=1 on a.0", "* [-]", "dirty"), binding="in_place",
                stall_limit=20)
            while not target.state().dirty:
                assert cluster.client.operations.get(running.id).error_code == 0
            process.send_signal(signal.SIGCONT)
            running.wait(60)
        finally:
            process.kill()
    assert (target.state().dirty, target.state().generation, memory) == (False, 2, b"x" * 64)
    target.release()


def test_a_thousand_loans_and_operations_take_no_memory(cluster, workers):
    manifest = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [1 << 16])])
    pages = resource.getpagesize()

    def resident():
        gc.collect()
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * pages

    def use():
        worker = workers[0]
        source = worker.lend("one", "a.0", numpy.ones(1 << 16, "f4"), manifest, "x=1 on a.0", "* [-]")
        target = worker.lend("two", "a.0", numpy.zeros(1 << 16, "f4"), manifest, "x=1 on a.0", "* [-]")
        cluster.client.reshard(manifest, ("x=1 on a.0", "* [-]", "one"), ("x=1 on a.0", "* [-]", "two"),
                               binding="in_place", timeout=60)
        assert target.refresh()["w"].sum() == 1 << 16
        source.release()
        target.release()

    for _ in range(200):
        use()
    before, descriptors = resident(), len(os.listdir("/proc/self/fd"))
    for _ in range(1000):
        use()
    assert resident() - before < 8 << 20
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
