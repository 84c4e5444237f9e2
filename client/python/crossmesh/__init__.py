"""Sharded tensors from one device mesh to another: layouts, plans with their lower bound, and a cluster's clients.

Importing this costs next to nothing: what a name needs is imported when the name is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossmesh._core import Layout as Layout
    from crossmesh._core import Manifest as Manifest
    from crossmesh._core import Mesh as Mesh
    from crossmesh._core import Rules as Rules
    from crossmesh._core import Tensor as Tensor
    from crossmesh._core import strategies as strategies
    from crossmesh.client import Client as Client
    from crossmesh.client import connect as connect
    from crossmesh.cluster import local_cluster as local_cluster
    from crossmesh.drawing import Picture as Picture
    from crossmesh.drawing import draw as draw
    from crossmesh.embedded import Worker as Worker
    from crossmesh.errors import Error as Error
    from crossmesh.manifests import manifest as manifest
    from crossmesh.memory import worker_memory as worker_memory
    from crossmesh.planning import Bound as Bound
    from crossmesh.planning import Plan as Plan
    from crossmesh.planning import Timeline as Timeline
    from crossmesh.planning import bound as bound
    from crossmesh.planning import grids as grids
    from crossmesh.planning import plan as plan
    from crossmesh.planning import rules as rules
    from crossmesh.planning import schedules as schedules
    from crossmesh.planning import simulate as simulate

# Where each name of the package is defined. A module of the package has no name of this table, since importing it would
# put the module in the name's place.
_DEFINED_IN = {
    # what is planned
    "Layout": "_core",
    "Manifest": "_core",
    "Mesh": "_core",
    "Rules": "_core",
    "Tensor": "_core",
    "manifest": "manifests",
    # plans
    "Bound": "planning",
    "Picture": "drawing",
    "Plan": "planning",
    "Timeline": "planning",
    "bound": "planning",
    "draw": "drawing",
    "grids": "planning",
    "plan": "planning",
    "rules": "planning",
    "schedules": "planning",
    "simulate": "planning",
    "strategies": "_core",
    # clients, and a worker in this process
    "Client": "client",
    "Error": "errors",
    "Worker": "embedded",
    "connect": "client",
    "local_cluster": "cluster",
    "worker_memory": "memory",
}
_MODULES = ("aio", "jax", "parallel", "torch")

__all__ = [
    "Bound",
    "Client",
    "Error",
    "Layout",
    "Manifest",
    "Mesh",
    "Picture",
    "Plan",
    "Rules",
    "Tensor",
    "Timeline",
    "Worker",
    "bound",
    "connect",
    "draw",
    "grids",
    "local_cluster",
    "manifest",
    "plan",
    "rules",
    "schedules",
    "simulate",
    "strategies",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"crossmesh.{name}")
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'crossmesh' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"crossmesh.{_DEFINED_IN[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_DEFINED_IN, *_MODULES})
