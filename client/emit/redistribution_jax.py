"""A redistribution as a program of JAX's own collectives. `crossmesh redistribute --emit jax` fills in PROGRAM.

    import jax, my_redistribution
    mesh = my_redistribution.mesh(jax.devices())      # an axis for each part of an axis that is used
    moved = jax.shard_map(my_redistribution.redistribute, mesh=mesh, in_specs=my_redistribution.source_spec(),
                          out_specs=my_redistribution.destination_spec(), check_vma=False)(array)

The devices are the slots of the mesh, row-major. A step that is a relay has no collective: plan with --no-relay.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
import numpy

from digits import _digit, _factors, _size  # copied in

PROGRAM = None


def _names(atoms):
    return tuple(PROGRAM["atoms"][atom]["name"] for atom in atoms)


def mesh(devices):
    """The devices by parts of axes, which are the axes of collectives."""
    sizes = [atom["size"] for atom in PROGRAM["atoms"]]
    return jax.sharding.Mesh(numpy.array(devices[:math.prod(sizes)]).reshape(sizes), _names(range(len(sizes))))


def _spec(layout):
    return jax.sharding.PartitionSpec(*(_names(atom for atom, _ in dimension["cuts"]) or None
                                        for dimension in layout["dimensions"]))


def source_spec():
    return _spec(PROGRAM["source"])


def destination_spec():
    return _spec(PROGRAM["destination"])


def _split(local, digits):
    """Brings digits to the front, as one axis: [devices of a group, what is left of each dimension...]."""
    factors, front, owners = _factors(local.shape, digits)
    others = [i for i in range(len(factors)) if i not in front]
    rest = [math.prod(factors[i] for i in others if owners[i] == d) for d in range(local.ndim)]
    return local.reshape(factors).transpose(front + others).reshape([-1] + rest)


def _merge(pieces, digits):
    """The inverse of _split."""
    rest = pieces.shape[1:]
    lengths = [length * math.prod(d[2] for d in digits if d[0] == dimension) for dimension, length in enumerate(rest)]
    factors, front, _ = _factors(lengths, digits)
    others = [i for i in range(len(factors)) if i not in front]
    order = front + others
    back = [order.index(i) for i in range(len(order))]
    return pieces.reshape([factors[i] for i in order]).transpose(back).reshape(lengths)


def _member(atoms):
    """The number of a device in its group."""
    number = 0
    for atom in atoms:
        number = number * _size(atom) + lax.axis_index(PROGRAM["atoms"][atom]["name"])
    return number


def _slice(local, step):
    digits = [_digit(step["after"], atom, step["before"]) for atom in step["atoms"]]
    return lax.dynamic_index_in_dim(_split(local, digits), _member(step["atoms"]), keepdims=False)


def _all_gather(local, step):
    digits = [_digit(step["before"], atom, step["after"]) for atom in step["atoms"]]
    return _merge(lax.all_gather(local, _names(step["atoms"])).reshape([-1, *local.shape]), digits)


def _all_to_all(local, step):
    new = [_digit(step["after"], atom, step["before"]) for atom in step["atoms"]]
    old = [_digit(step["before"], atom, step["after"]) for atom in step["atoms"]]
    pieces = _split(local, new)
    return _merge(lax.all_to_all(pieces, _names(step["atoms"]), split_axis=0, concat_axis=0, tiled=True), old)


def _reduce_scatter(local, step):
    digits = [_digit(step["after"], atom, step["before"]) for atom in step["atoms"]]
    pieces, names = _split(local, digits), _names(step["atoms"])
    if PROGRAM["reduction"] in ("sum", "mean"):
        return lax.psum_scatter(pieces, names, scatter_dimension=0, tiled=True).reshape(pieces.shape[1:])
    # Every summand of the device's own piece, then the least or greatest of them.
    summands = lax.all_to_all(pieces, names, split_axis=0, concat_axis=0, tiled=True)
    return (jnp.min if PROGRAM["reduction"] == "min" else jnp.max)(summands, axis=0)


def _all_reduce(local, step):
    reduce = {"sum": lax.psum, "mean": lax.psum, "min": lax.pmin, "max": lax.pmax}[PROGRAM["reduction"]]
    return reduce(local, _names(step["atoms"]))


def _permute(local, step):
    return lax.ppermute(local, _names(range(len(PROGRAM["atoms"]))),
                        [(source, device) for device, source in enumerate(step["sources"])])


def _relay(local, step):
    raise NotImplementedError("a relay is no collective of JAX: plan with --no-relay")


_STEPS = {"slice": _slice, "all_gather": _all_gather, "all_to_all": _all_to_all, "permute": _permute,
          "reduce_scatter": _reduce_scatter, "all_reduce": _all_reduce, "relay": _relay}


def redistribute(local):
    """What a device holds afterwards; inside shard_map over mesh()."""
    for step in PROGRAM["steps"]:
        local = _STEPS[step["kind"]](local, step)
    if PROGRAM["summands"] > 1 and PROGRAM["reduction"] == "mean":
        local = local / PROGRAM["summands"]
    return local
