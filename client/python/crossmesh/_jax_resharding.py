"""A change of a JAX array's sharding by the steps that Crossmesh finds, as JAX's own collectives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from crossmesh import _arguments, programs
from crossmesh.errors import InvalidArgumentError

if TYPE_CHECKING:
    import jax


@functools.lru_cache(maxsize=1024)
def _program(words: tuple[str, ...], devices: tuple[Any, ...]) -> tuple[jax.sharding.NamedSharding, Callable[..., Any]]:
    """What `crossmesh redistribute --emit jax` prints: the sharding of what it takes, and itself, compiled once."""
    import jax

    namespace: dict[str, Any] = {"__name__": "crossmesh_resharding"}
    text = programs.text_of([*words, "--no-relay", "--emit", "jax"])
    exec(compile(text, "<crossmesh redistribute>", "exec"), namespace)
    over = namespace["mesh"](list(devices))
    taken = namespace["source_spec"]()
    run = jax.shard_map(
        namespace["redistribute"], mesh=over, in_specs=taken, out_specs=namespace["destination_spec"](),
        check_vma=False)
    return jax.sharding.NamedSharding(over, taken), jax.jit(run)


@_arguments.checked
def reshard(array: jax.Array, sharding: jax.sharding.NamedSharding) -> jax.Array:
    """The array with another NamedSharding over the same mesh, all of whose devices this process has.

    Raises InvalidArgumentError inside jit, where devices are other processes', for another mesh or kind of memory, and
    for shardings that `layout` refuses. `jax.device_put` moves between meshes.
    """
    from crossmesh import jax as adapter

    _require_here(array)
    source = adapter.layout(array.sharding, array.shape)
    wanted = adapter.layout(sharding, array.shape)
    _require_same("mesh", sharding.mesh, getattr(array.sharding, "mesh", None))
    _require_same("kind of memory", sharding.memory_kind, array.sharding.memory_kind)
    ours = adapter.mesh(sharding.mesh, lambda device: f"local.{device.id}")
    shape = list(array.shape)
    if source.tiles(ours, shape) == wanted.tiles(ours, shape):
        return _labelled(array, sharding)
    words = (
        "redistribute", "--mesh", str(ours), "--shape", str(shape), "--source", str(source), "--destination",
        str(wanted))
    taken, run = _program(words, tuple(sharding.mesh.devices.flatten()))
    moved: jax.Array = run(_labelled(array, taken))
    return _labelled(moved, sharding)


def _labelled(array: jax.Array, sharding: jax.sharding.NamedSharding) -> jax.Array:
    """The same buffers, by another name of the same sharding."""
    import jax

    return jax.make_array_from_single_device_arrays(
        array.shape, sharding, [shard.data for shard in array.addressable_shards], dtype=array.dtype)


def _require_here(array: jax.Array) -> None:
    import jax

    if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
        raise InvalidArgumentError(
            f"array: expected a jax.Array outside jit, found {type(array).__name__}",
            "array", "a jax.Array outside jit", type(array).__name__)
    if not array.is_fully_addressable:
        raise InvalidArgumentError(
            "array: expected all its devices in this process, found those of other processes",
            "array", "all its devices in this process", "those of other processes")


def _require_same(what: str, wanted: object, found: object) -> None:
    if wanted != found:
        raise InvalidArgumentError(
            f"{what} of the sharding: expected the array's, {found}, found {wanted}",
            f"{what} of the sharding", f"the array's, {found}", str(wanted))
