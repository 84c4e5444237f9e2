"""Sharded tensors from one device mesh to another: layouts, plans with their lower bound, and a cluster's clients.

Importing this costs next to nothing: what a name needs is imported when the name is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossmesh.client import Client as Client
    from crossmesh.client import connect as connect
    from crossmesh.cluster import local_cluster as local_cluster
    from crossmesh.errors import Error as Error

# Where each name of the package is defined. A module of the package has no name of this table, since importing it would
# put the module in the name's place.
_DEFINED_IN = {
    # clients
    "Client": "client",
    "Error": "errors",
    "connect": "client",
    "local_cluster": "cluster",
}
_MODULES = ("aio", "jax", "torch")

__all__ = ["Client", "Error", "connect", "local_cluster"]


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
