"""Meshes and layouts from and to JAX: Mesh, and NamedSharding with its PartitionSpec::

    mesh = crossmesh.jax.mesh(array.sharding.mesh)
    layout = crossmesh.jax.layout(array.sharding, array.shape)
    sharding = crossmesh.jax.sharding(layout, mesh, array.shape, jax_mesh)
    array = crossmesh.jax.reshard(array, NamedSharding(array.sharding.mesh, PartitionSpec(None, "x")))

Both say per dimension which axes cut it, major first. JAX has no uneven parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crossmesh import _arguments
from crossmesh._core import Layout, Manifest, Mesh, Tensor
from crossmesh._dtypes import name_of
from crossmesh._jax_resharding import reshard as reshard
from crossmesh.errors import InvalidArgumentError

if TYPE_CHECKING:
    import jax


@_arguments.checked
def mesh(jax_mesh: jax.sharding.Mesh, device_name: Callable[[Any], str] | None = None) -> Mesh:
    """The mesh of a JAX mesh, whose slots are its positions, whatever the ids of their devices.

    `device_name` gives the device HOST.INDEX of a jax.Device; without it that is processP.ID. Raises
    InvalidArgumentError for an AbstractMesh, which has no devices, and names that are no names of axes.
    """
    if not hasattr(jax_mesh, "devices") or not hasattr(getattr(jax_mesh, "devices", None), "flatten"):
        raise InvalidArgumentError(
            f"mesh: expected a jax.sharding.Mesh with devices, found {type(jax_mesh).__name__}",
            "mesh", "a jax.sharding.Mesh with devices", type(jax_mesh).__name__)
    name = device_name or (lambda device: f"process{device.process_index}.{device.id}")
    axes = list(zip((str(axis) for axis in jax_mesh.axis_names), jax_mesh.devices.shape, strict=True))
    return Mesh.of(axes, [name(device) for device in jax_mesh.devices.flatten()])


@_arguments.checked
def jax_mesh(mesh: Mesh, devices: Sequence[Any] | None = None) -> jax.sharding.Mesh:
    """The JAX mesh of a mesh, over jax.devices() in the order of slots, or over `devices`. Raises InvalidArgumentError
    where there are fewer."""
    import jax
    import numpy

    chosen = list(jax.devices() if devices is None else devices)
    if len(chosen) < mesh.slots:
        raise InvalidArgumentError(
            f"devices: expected {mesh.slots}, as the mesh has slots, found {len(chosen)}",
            "devices", str(mesh.slots), str(len(chosen)))
    array = numpy.empty(mesh.slots, dtype=object)
    array[:] = chosen[:mesh.slots]
    return jax.sharding.Mesh(array.reshape([size for _, size in mesh.axes]), [name for name, _ in mesh.axes])


@_arguments.checked
def layout(sharding: jax.sharding.Sharding, shape: Sequence[int]) -> Layout:
    """The layout of an array of this shape with a NamedSharding.

    Raises InvalidArgumentError for other shardings, UNCONSTRAINED, axes with partial sums (unreduced), more entries
    than the array has dimensions, and lengths that parts do not divide.
    """
    import jax

    if not isinstance(sharding, jax.sharding.NamedSharding):
        raise InvalidArgumentError(
            f"sharding: expected a NamedSharding, found {type(sharding).__name__}",
            "sharding", "a NamedSharding", type(sharding).__name__)
    spec = sharding.spec
    if getattr(spec, "unreduced", None):
        raise InvalidArgumentError(
            f"sharding {spec}: expected whole values, found partial sums over {sorted(spec.unreduced)}; reduce them "
            "first", f"sharding {spec}", "whole values", f"partial sums over {sorted(spec.unreduced)}")
    entries = list(spec)
    if len(entries) > len(shape):
        raise InvalidArgumentError(
            f"sharding {spec}: expected at most {len(shape)} entries, found {len(entries)}",
            f"sharding {spec}", f"at most {len(shape)} entries", str(len(entries)))
    dimensions = [_axes_of(entry, spec) for entry in entries] + [[] for _ in range(len(shape) - len(entries))]
    result = Layout.of(dimensions)
    sizes = dict(sharding.mesh.shape)
    # Only sizes of axes count here, so any devices will do.
    names = [str(name) for name in sizes]
    count = 1
    for size in sizes.values():
        count *= size
    devices = [f"slot{i // 1024}.{i % 1024}" for i in range(count)]
    result.validate(Mesh.of(list(zip(names, sizes.values(), strict=True)), devices), list(shape))
    return result


@_arguments.checked
def layout_of(array: jax.Array) -> Layout:
    """The layout of an array, by its sharding and its shape, as layout()."""
    return layout(array.sharding, array.shape)


@_arguments.checked
def partition_spec(layout: Layout, mesh: Mesh, shape: Sequence[int]) -> jax.sharding.PartitionSpec:
    """The PartitionSpec that cuts as the layout does. Raises InvalidArgumentError for explicit tiles, and where a
    dimension has parts of different lengths, since JAX has only equal ones."""
    from jax.sharding import PartitionSpec

    dimensions = layout.dimensions
    if dimensions is None:
        raise InvalidArgumentError(
            "layout: expected axes for each dimension, found explicit tiles, which PartitionSpec cannot say",
            "layout", "axes for each dimension", "explicit tiles")
    # Equal parts are the same by every rule.
    Layout.of(dimensions).validate(mesh, list(shape))
    return PartitionSpec(*(tuple(axes) if len(axes) > 1 else axes[0] if axes else None for axes in dimensions))


@_arguments.checked
def sharding(
    layout: Layout, mesh: Mesh, shape: Sequence[int], over: jax.sharding.Mesh | None = None
) -> jax.sharding.NamedSharding:
    """The NamedSharding of a layout, `over` a JAX mesh with the axes of `mesh`; by default over jax_mesh(mesh). Raises
    InvalidArgumentError for other axes, and where `partition_spec` does."""
    from jax.sharding import NamedSharding

    spec = partition_spec(layout, mesh, shape)
    chosen = jax_mesh(mesh) if over is None else over
    found = [(str(name), size) for name, size in chosen.shape.items()]
    if found != mesh.axes:
        raise InvalidArgumentError(
            f"JAX mesh: expected axes {mesh.axes}, found {found}", "JAX mesh", f"axes {mesh.axes}", str(found))
    return NamedSharding(chosen, spec)


def named(tree: Any) -> dict[str, Any]:
    """The leaves of the pytree `tree` by their paths, such as params.layers.0.kernel; for Storage.fill, and for
    Storage.read where they are numpy arrays, which are written in place."""
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {".".join(_key_text(key) for key in path): leaf for path, leaf in leaves}


@_arguments.checked
def restored(tree: Any, values: Mapping[str, Any]) -> Any:
    """A pytree of the structure of `tree` with other values, by name, each with the sharding of the leaf that it
    replaces.

    Arrays of JAX cannot be written in place. Raises InvalidArgumentError for a leaf that has no value of its shape.
    """
    import jax

    leaves = []
    for name, leaf in named(tree).items():
        found = "none" if name not in values else f"shape {list(values[name].shape)}"
        if found != f"shape {list(leaf.shape)}":
            raise InvalidArgumentError(
                f'leaf "{name}": expected a value of shape {list(leaf.shape)}, found {found}',
                f'leaf "{name}"', f"a value of shape {list(leaf.shape)}", found)
        leaves.append(jax.device_put(values[name], leaf.sharding) if isinstance(leaf, jax.Array) else values[name])
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(tree), leaves)


def manifest(tree: Any) -> Manifest:
    """The manifest of `tree`, a pytree of arrays, with the names that `named` gives them. Raises InvalidArgumentError,
    naming the leaf, for what is no array or has a dtype that Crossmesh does not move."""
    tensors = []
    for name, leaf in named(tree).items():
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise InvalidArgumentError(
                f'leaf "{name}": expected an array, found {type(leaf).__name__}',
                f'leaf "{name}"', "an array", type(leaf).__name__)
        tensors.append(Tensor(name, name_of(f'leaf "{name}"', leaf.dtype), list(leaf.shape)))
    return Manifest(tensors)


def _key_text(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _axes_of(entry: Any, spec: Any) -> list[str]:
    from jax.sharding import PartitionSpec

    if entry is None:
        return []
    if entry is PartitionSpec.UNCONSTRAINED:
        raise InvalidArgumentError(
            f"sharding {spec}: expected axes or None, found UNCONSTRAINED, which says nothing of where bytes lie",
            f"sharding {spec}", "axes or None", "UNCONSTRAINED")
    return [str(axis) for axis in entry] if isinstance(entry, tuple) else [str(entry)]
