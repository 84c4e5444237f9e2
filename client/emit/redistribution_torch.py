"""A redistribution as a program of PyTorch's own collectives. `crossmesh redistribute --emit torch` fills in PROGRAM.

    import my_redistribution
    local = my_redistribution.redistribute(local)     # on every rank of the default process group

The ranks are the slots of the mesh, row-major. `local` is what the rank holds before: of each dimension the indices of
its part, ascending. What comes back is what it holds afterwards.
"""

import functools
import math

import torch
import torch.distributed as dist

from digits import _digit, _factors, _size  # copied in

PROGRAM = None

_groups = {}  # by atoms: of this rank


def _coordinate(rank, atom):
    return rank // PROGRAM["atoms"][atom]["stride"] % _size(atom)


@functools.cache
def _split_forms(shape, digits):
    factors, front, owners = _factors(shape, digits)
    others = [i for i in range(len(factors)) if i not in front]
    rest = [math.prod(factors[i] for i in others if owners[i] == d) for d in range(len(shape))]
    return factors, front + others, [d[2] for d in digits] + rest


def _split(local, digits):
    """Brings digits to the front: [size of each digit..., what is left of each dimension...]."""
    factors, order, shape = _split_forms(tuple(local.shape), digits)
    return local.reshape(factors).permute(order).reshape(shape)


@functools.cache
def _merge_forms(rest, digits):
    lengths = [length * math.prod(d[2] for d in digits if d[0] == dimension) for dimension, length in enumerate(rest)]
    factors, front, _ = _factors(lengths, digits)
    order = front + [i for i in range(len(factors)) if i not in front]
    return [factors[i] for i in order], [order.index(i) for i in range(len(order))], lengths


def _merge(pieces, digits):
    """The inverse of _split."""
    factors, back, lengths = _merge_forms(tuple(pieces.shape[len(digits):]), digits)
    return pieces.reshape(factors).permute(back).reshape(lengths)


def _digits(step, of, cuts):
    return tuple(_digit(step[of], atom, step[cuts]) for atom in step["atoms"])


def _new_group(ranks):
    return dist.new_group(ranks)


def _group(atoms):
    """The process group of the ranks that differ from this one in these atoms alone; all ranks make all groups."""
    atoms = tuple(atoms)
    if atoms not in _groups:
        members = {}
        for rank in range(PROGRAM["ranks"]):
            others = tuple(_coordinate(rank, atom) for atom in range(len(PROGRAM["atoms"])) if atom not in atoms)
            members.setdefault(others, []).append(rank)
        for ranks in members.values():
            group = _new_group(ranks)
            if dist.get_rank() in ranks:
                _groups[atoms] = group
    return _groups[atoms]


def _operation():
    return {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN,
            "max": dist.ReduceOp.MAX}[PROGRAM["reduction"]]


# In memory of the host Gloo gathers and reduces along a ring, in steps that wait for each other, and its reduce-scatter
# sends as much as an all-reduce. Its all-to-all sends everything at once: all steps go by that, unless copies for it
# take longer than a ring does. Bytes of the whole:
_SUMMED_WHOLE = 1 << 17  # at most, where all summands are gathered, instead of summed in parts and gathered then
_SPREAD = 1 << 21  # at most, where a member sends copies of what it has


def _exchange(sent, out, into, group=None):
    """What all members have for this one; so many elements go to, and come from, each of them."""
    received = sent.new_empty(sum(into))
    dist.all_to_all_single(received, sent, into, out, group=group)
    return received


def _spread(local, size, group):
    """What all members have, by member."""
    count = local.numel()
    sent = local.reshape([1, count]).expand(size, count).reshape(-1)
    return _exchange(sent, [count] * size, [count] * size, group).reshape([size, count])


def _operator():
    return {"min": torch.minimum, "max": torch.maximum}.get(PROGRAM["reduction"], torch.add)


def _combined(pieces):
    operation = _operator()
    total = operation(pieces[0], pieces[1])
    for piece in pieces[2:]:
        operation(total, piece, out=total)
    return total


# Each gives the function that carries out a step.


def _slice(step):
    digits = _digits(step, "after", "before")
    own = tuple(_coordinate(dist.get_rank(), atom) for atom in step["atoms"])
    return lambda local: _split(local, digits)[own].contiguous()


def _all_gather(step):
    digits, group = _digits(step, "before", "after"), _group(step["atoms"])
    sizes = [digit[2] for digit in digits]

    def gather(local):
        if local.device.type == "cpu" and step["group"] * local.numel() * local.element_size() <= _SPREAD:
            pieces = _spread(local, step["group"], group)
        else:
            pieces = local.new_empty(step["group"] * local.numel())
            dist.all_gather_into_tensor(pieces, local.reshape(-1), group=group)
        return _merge(pieces.reshape(sizes + list(local.shape)), digits)
    return gather


def _all_to_all(step):
    new, old, group = _digits(step, "after", "before"), _digits(step, "before", "after"), _group(step["atoms"])

    def exchange(local):
        sent = _split(local, new).contiguous()
        received = torch.empty_like(sent)
        dist.all_to_all_single(received.reshape(-1), sent.reshape(-1), group=group)
        return _merge(received, old)
    return exchange


def _reduce_scatter(step):
    digits, group, operation = _digits(step, "after", "before"), _group(step["atoms"]), _operation()

    def reduce(local):
        pieces = _split(local, digits)
        rest, sent = pieces.shape[len(digits):], pieces.reshape(-1)
        if local.device.type == "cpu":
            counts = [math.prod(rest)] * step["group"]
            return _combined(_exchange(sent, counts, counts, group).reshape([step["group"], counts[0]])).reshape(rest)
        own = sent.new_empty(math.prod(rest))
        dist.reduce_scatter_tensor(own, sent, op=operation, group=group)
        return own.reshape(rest)
    return reduce


def _all_reduce(step):
    group, size, operation = _group(step["atoms"]), step["group"], _operation()

    def reduce(local):
        size_bytes, count = local.numel() * local.element_size(), local.numel()
        if local.device.type == "cpu" and size == 2:
            counts = [count if member != dist.get_rank(group) else 0 for member in range(size)]
            other = _exchange(local.reshape(-1), counts, counts, group).reshape(local.shape)
            return _operator()(local, other, out=other)
        if local.device.type != "cpu" or size_bytes > _SPREAD:
            reduced = local.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(reduced, op=operation, group=group)
            return reduced
        if size_bytes <= _SUMMED_WHOLE:
            return _combined(_spread(local, size, group)).reshape(local.shape)
        counts = [(count + member) // size for member in range(size)]
        own = counts[dist.get_rank(group)]
        part = _combined(_exchange(local.reshape(-1), counts, [own] * size, group).reshape([size, own]))
        sent = part.reshape([1, own]).expand(size, own).reshape(-1)
        return _exchange(sent, [own] * size, counts, group).reshape(local.shape)
    return reduce


def _permute(step):
    rank = dist.get_rank()
    source, target = step["sources"][rank], step["sources"].index(rank)

    def permute(local):
        received = torch.empty_like(local, memory_format=torch.contiguous_format)
        operations = []
        if source != rank:
            operations = [dist.P2POp(dist.isend, local.contiguous(), target), dist.P2POp(dist.irecv, received, source)]
        for request in dist.batch_isend_irecv(operations) if operations else ():
            request.wait()
        return received if operations else local
    return permute


def _part(layout, dimension, rank):
    part = 0
    for atom, _ in layout["dimensions"][dimension]["cuts"]:
        part = part * _size(atom) + _coordinate(rank, atom)
    return part


def _held(layout, rank):
    """Of each dimension the intervals of indices that a rank holds."""
    return [dimension["parts"][_part(layout, number, rank)] for number, dimension in enumerate(layout["dimensions"])]


def _common(one, other):
    both = [(max(a, c), min(b, d)) for a, b in one for c, d in other]
    return [(begin, end) for begin, end in both if begin < end]


def _place(common, held):
    """Where in an array of the indices `held` those that are common lie: a slice, or a tensor of places."""
    places, before = [], 0
    for begin, end in held:
        places += [(before + c - begin, before + d - begin) for c, d in common if begin <= c < end]
        before += end - begin
    if all(end == begin for (_, end), (begin, _) in zip(places, places[1:])):
        return slice(places[0][0], places[-1][1])
    return torch.cat([torch.arange(begin, end) for begin, end in places])


def _count(common):
    return math.prod(sum(end - begin for begin, end in intervals) for intervals in common)


def _region(common, held):
    """An index of the elements that are common."""
    places = [_place(c, h) for c, h in zip(common, held)]
    if all(isinstance(place, slice) for place in places):
        return tuple(places)
    lengths = [sum(end - begin for begin, end in h) for h in held]
    places = [torch.arange(0, length)[p] if isinstance(p, slice) else p for p, length in zip(places, lengths)]
    return torch.meshgrid(*places, indexing="ij")


def _sender(step, block, receiver):
    """Of the ranks with a block the one that differs from the receiver in nothing but what cuts: the nearest one."""
    cut = {atom for dimension in step["before"]["dimensions"] for atom, _ in dimension["cuts"]}
    others = [atom for atom in range(len(PROGRAM["atoms"])) if atom not in cut]

    def of_others(rank):
        return [_coordinate(rank, atom) for atom in others]
    return next(rank for rank in block if of_others(rank) == of_others(receiver))


def _messages(step):
    """Of all ranks: (sender, receiver, the indices of each dimension)."""
    blocks = {}
    for holder in range(PROGRAM["ranks"]):
        block = tuple(_part(step["before"], d, holder) for d in range(len(step["before"]["dimensions"])))
        blocks.setdefault(block, []).append(holder)
    for receiver in range(PROGRAM["ranks"]):
        wanted = _held(step["after"], receiver)
        for block in blocks.values():
            common = [_common(h, w) for h, w in zip(_held(step["before"], block[0]), wanted)]
            if all(common):
                yield _sender(step, block, receiver), receiver, common


def _relay(step):
    rank, ranks = dist.get_rank(), range(PROGRAM["ranks"])
    held, wanted = _held(step["before"], rank), _held(step["after"], rank)
    shape = [sum(end - begin for begin, end in intervals) for intervals in wanted]
    messages = list(_messages(step))
    nothing_moves = all(s == r for s, r, _ in messages)
    kept = [(_region(c, wanted), _region(c, held)) for s, r, c in messages if s == r == rank]
    sent = [(r, _region(c, held), _count(c)) for r in ranks for s, to, c in messages if s == rank != to == r]
    taken = [(s, _region(c, wanted), _count(c)) for s in ranks for by, r, c in messages if r == rank != by == s]
    out, into = ([sum(count for peer, _, count in of if peer == member) for member in ranks] for of in (sent, taken))

    def relay(local):
        result = local.new_empty(shape)
        parts = [local[region].reshape(-1).contiguous() for _, region, _ in sent]
        if nothing_moves:
            arrivals = ()
        elif local.device.type == "cpu":
            received = _exchange(torch.cat(parts) if parts else local.new_empty(0), out, into)
            arrivals = received.split([count for _, _, count in taken]) if taken else ()
        else:
            arrivals = [local.new_empty(count) for _, _, count in taken]
            operations = [dist.P2POp(dist.isend, part, to) for part, (to, _, _) in zip(parts, sent)]
            operations += [dist.P2POp(dist.irecv, part, by) for part, (by, _, _) in zip(arrivals, taken)]
            for request in dist.batch_isend_irecv(operations) if operations else ():
                request.wait()
        for place, source in kept:
            result[place] = local[source]
        for part, (_, region, _) in zip(arrivals, taken):
            result[region] = part.reshape(result[region].shape)
        return result
    return relay


_STEPS = {"slice": _slice, "all_gather": _all_gather, "all_to_all": _all_to_all, "permute": _permute,
          "reduce_scatter": _reduce_scatter, "all_reduce": _all_reduce, "relay": _relay}


@functools.cache
def _functions():
    return [_STEPS[step["kind"]](step) for step in PROGRAM["steps"]]


def redistribute(local):
    for function in _functions():
        local = function(local)
    if PROGRAM["summands"] > 1 and PROGRAM["reduction"] == "mean":
        local = local / PROGRAM["summands"]
    return local
