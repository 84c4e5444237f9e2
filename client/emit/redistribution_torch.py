"""A redistribution as a program of PyTorch's own collectives. `crossmesh redistribute --emit torch` fills in PROGRAM.

    import my_redistribution
    local = my_redistribution.redistribute(local)     # on every rank of the default process group

The ranks are the slots of the mesh, row-major. `local` is what the rank holds before: of each dimension the indices of
its part, ascending. What comes back is what it holds afterwards.
"""

import math

import torch
import torch.distributed as dist

from digits import _digit, _factors, _size  # copied in

PROGRAM = None

_groups = {}  # by atoms: of this rank


def _coordinate(rank, atom):
    return rank // PROGRAM["atoms"][atom]["stride"] % _size(atom)


def _split(local, digits):
    """Brings digits to the front: [size of each digit..., what is left of each dimension...]."""
    factors, front, owners = _factors(local.shape, digits)
    others = [i for i in range(len(factors)) if i not in front]
    rest = [math.prod(factors[i] for i in others if owners[i] == d) for d in range(local.dim())]
    return local.reshape(factors).permute(front + others).reshape([d[2] for d in digits] + rest)


def _merge(pieces, digits):
    """The inverse of _split."""
    rest = pieces.shape[len(digits):]
    lengths = [length * math.prod(d[2] for d in digits if d[0] == dimension) for dimension, length in enumerate(rest)]
    factors, front, _ = _factors(lengths, digits)
    others = [i for i in range(len(factors)) if i not in front]
    order = front + others
    back = [order.index(i) for i in range(len(order))]
    return pieces.reshape([factors[i] for i in order]).permute(back).reshape(lengths)


def _group(atoms):
    """The process group of the ranks that differ from this one in these atoms alone; all ranks make all groups."""
    atoms = tuple(atoms)
    if atoms not in _groups:
        members = {}
        for rank in range(PROGRAM["ranks"]):
            others = tuple(_coordinate(rank, atom) for atom in range(len(PROGRAM["atoms"])) if atom not in atoms)
            members.setdefault(others, []).append(rank)
        for ranks in members.values():
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                _groups[atoms] = group
    return _groups[atoms]


def _operation():
    return {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN,
            "max": dist.ReduceOp.MAX}[PROGRAM["reduction"]]


def _slice(local, step):
    digits = [_digit(step["after"], atom, step["before"]) for atom in step["atoms"]]
    return _split(local, digits)[tuple(_coordinate(dist.get_rank(), atom) for atom in step["atoms"])].contiguous()


def _all_gather(local, step):
    pieces = local.new_empty(step["group"] * local.numel())
    dist.all_gather_into_tensor(pieces, local.reshape(-1), group=_group(step["atoms"]))
    digits = [_digit(step["before"], atom, step["after"]) for atom in step["atoms"]]
    return _merge(pieces.reshape([d[2] for d in digits] + list(local.shape)), digits)


def _all_to_all(local, step):
    new = [_digit(step["after"], atom, step["before"]) for atom in step["atoms"]]
    old = [_digit(step["before"], atom, step["after"]) for atom in step["atoms"]]
    sent = _split(local, new).contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=_group(step["atoms"]))
    return _merge(received, old)


def _reduce_scatter(local, step):
    digits = [_digit(step["after"], atom, step["before"]) for atom in step["atoms"]]
    pieces = _split(local, digits)
    rest = pieces.shape[len(digits):]
    own = pieces.new_empty(math.prod(rest))
    dist.reduce_scatter_tensor(own, pieces.reshape(-1), op=_operation(), group=_group(step["atoms"]))
    return own.reshape(rest)


def _all_reduce(local, step):
    reduced = local.contiguous().clone()
    dist.all_reduce(reduced, op=_operation(), group=_group(step["atoms"]))
    return reduced


def _permute(local, step):
    rank = dist.get_rank()
    source, target = step["sources"][rank], step["sources"].index(rank)
    if source == rank:
        return local
    received = torch.empty_like(local, memory_format=torch.contiguous_format)
    requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, local.contiguous(), target),
                                       dist.P2POp(dist.irecv, received, source)])
    for request in requests:
        request.wait()
    return received


def _part(layout, dimension, rank):
    part = 0
    for atom, _ in layout["dimensions"][dimension]["cuts"]:
        part = part * _size(atom) + _coordinate(rank, atom)
    return part


def _indices(layout, rank):
    """Of each dimension the indices that a rank holds."""
    held = []
    for number, dimension in enumerate(layout["dimensions"]):
        intervals = dimension["parts"][_part(layout, number, rank)]
        held.append([index for begin, end in intervals for index in range(begin, end)])
    return held


def _sender(step, block, receiver):
    """Of the ranks with a block and the receiver's summands the one that sends it to the receiver."""
    def summand(rank):
        return [_coordinate(rank, atom) for atom in step["before"]["partial"]]
    holders = [rank for rank in block if summand(rank) == summand(receiver)]
    return receiver if receiver in holders else holders[receiver % len(holders)]


def _relay(local, step):
    rank, ranks = dist.get_rank(), range(PROGRAM["ranks"])
    dimensions = range(len(step["before"]["dimensions"]))
    blocks = {}
    for holder in ranks:
        blocks.setdefault(tuple(_part(step["before"], d, holder) for d in dimensions), []).append(holder)
    messages = []  # (sender, receiver, common indices)
    for receiver in ranks:
        wanted = _indices(step["after"], receiver)
        for block in blocks.values():
            held = _indices(step["before"], block[0])
            common = [sorted(set(h) & set(w)) for h, w in zip(held, wanted)]
            if all(common):
                messages.append((_sender(step, block, receiver), receiver, common))
    held, wanted = _indices(step["before"], rank), _indices(step["after"], rank)
    result = local.new_empty([len(indices) for indices in wanted])

    def places(common, indices):
        grid = [torch.tensor([indices[d].index(i) for i in common[d]], dtype=torch.long) for d in dimensions]
        return torch.meshgrid(*grid, indexing="ij") if grid else ()

    operations, arrivals = [], []
    for sender, receiver, common in messages:
        if sender == rank and receiver == rank:
            result[places(common, wanted)] = local[places(common, held)]
        elif sender == rank:
            operations.append(dist.P2POp(dist.isend, local[places(common, held)].contiguous(), receiver))
        elif receiver == rank:
            arrivals.append((local.new_empty([len(c) for c in common]), common))
            operations.append(dist.P2POp(dist.irecv, arrivals[-1][0], sender))
    for request in dist.batch_isend_irecv(operations) if operations else ():
        request.wait()
    for received, common in arrivals:
        result[places(common, wanted)] = received
    return result


_STEPS = {"slice": _slice, "all_gather": _all_gather, "all_to_all": _all_to_all, "permute": _permute,
          "reduce_scatter": _reduce_scatter, "all_reduce": _all_reduce, "relay": _relay}


def redistribute(local):
    for step in PROGRAM["steps"]:
        local = _STEPS[step["kind"]](local, step)
    if PROGRAM["summands"] > 1 and PROGRAM["reduction"] == "mean":
        local = local / PROGRAM["summands"]
    return local
