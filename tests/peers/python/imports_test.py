"""The package beside frameworks in one process, imported in several orders, after which each computes."""

import importlib.util
import itertools
import os
import random
import subprocess
import sys

import pytest

import crossmesh

# What each does once all are imported.
WORKS = {
    "crossmesh.embedded": "worker = crossmesh.Worker('w', 'w.0', {address!r})\n"
                          "lent = worker.lend('s', 'w.0', bytearray(64))\nlent.check(); worker.stop()",
    "crossmesh": "assert crossmesh.bound(crossmesh.Manifest([crossmesh.Tensor('t', 'F32', [64])]), "
                 "('x=2 on a.0,b.0', '* [x]'), ('y=1 on c.0', '* [-]')).seconds > 0",
    "google.protobuf.struct_pb2": "google.protobuf.struct_pb2.Struct().update({{'a': 1}})",
    "grpc": "grpc.insecure_channel({address!r}).close()",
    "jax": "assert float(jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((8, 8)))) == 512",
    "numpy": "assert (numpy.ones((64, 64)) @ numpy.ones((64, 64))).sum() == 64 ** 3",
    "ray": "assert ray.cloudpickle.loads(ray.cloudpickle.dumps(lambda: 7))() == 7",
    "torch": "assert (torch.ones(64, 64) @ torch.ones(64, 64)).sum() == 64 ** 3",
}
MISSING = [name for name in ("jax", "ray", "torch") if importlib.util.find_spec(name) is None]
ORDERS = 12

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"needs {', '.join(MISSING)}, which tests/peers/run FOLDER package installs")


@pytest.fixture(scope="module")
def cluster():
    with crossmesh.local_cluster(workers=0) as running:
        yield running


def _orders() -> list[list[str]]:
    """Every one of the frameworks comes first once, and last once; the rest is by chance."""
    draw = random.Random(int(os.environ.get("CROSSMESH_TEST_SEED", "1")))
    names = sorted(WORKS)
    orders = [[first, *draw.sample([n for n in names if n not in (first, last)], len(names) - 2), last]
              for first, last in zip(names, names[1:] + names[:1], strict=True)]
    return orders + [draw.sample(names, len(names)) for _ in range(ORDERS - len(orders))]


@pytest.mark.parametrize("order", _orders(), ids="-".join)
def test_all_are_imported_into_one_process_and_compute(cluster, order):
    script = "\n".join(itertools.chain(
        (f"import {name}" for name in order), (WORKS[name].format(address=cluster.address) for name in order)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=120,
        env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, f"{script}\n{done.stderr}"
