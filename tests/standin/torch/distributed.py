"""Collectives between threads, each of which is a rank. What PyTorch refuses is refused, and nothing waits for ever."""

import queue
import threading
from dataclasses import dataclass

import numpy

SECONDS = 20  # that a rank waits for another one
_own = threading.local()


class ReduceOp:
    SUM, MIN, MAX = numpy.add, numpy.minimum, numpy.maximum


class Group:
    def __init__(self, ranks):
        self.ranks = ranks
        self._barrier = threading.Barrier(len(ranks), timeout=SECONDS)
        self._values = [None] * len(ranks)

    def exchange(self, value):
        """What all ranks bring, by rank of the group. All must bring as much of one type."""
        self._values[self.ranks.index(_own.rank)] = value
        self._barrier.wait()
        values = list(self._values)
        self._barrier.wait()
        shapes = {(value.size, value.dtype) for value in values}
        assert len(shapes) == 1, f"ranks {self.ranks}: expected as much of each, found {shapes}"
        return values

    def own(self):
        return self.ranks.index(_own.rank)


class World:
    def __init__(self, ranks):
        self.ranks = ranks
        self._lock = threading.Lock()
        self._groups, self._wires = {}, {}

    def group(self, ranks):
        with self._lock:
            return self._groups.setdefault(tuple(ranks), Group(list(ranks)))

    def wire(self, sender, receiver):
        with self._lock:
            return self._wires.setdefault((sender, receiver), queue.Queue())


@dataclass
class P2POp:
    op: object
    tensor: numpy.ndarray
    peer: int

    def wait(self):
        if self.op is irecv:
            sent = _own.world.wire(self.peer, _own.rank).get(timeout=SECONDS)
            assert (sent.shape, sent.dtype) == (self.tensor.shape, self.tensor.dtype), (sent.shape, self.tensor.shape)
            self.tensor[...] = sent


def isend():
    raise NotImplementedError("only in batches")


def irecv():
    raise NotImplementedError("only in batches")


def batch_isend_irecv(operations):
    assert operations, "PyTorch refuses a batch of none"
    for operation in operations:
        _require_contiguous(operation.tensor)
        assert operation.peer != _own.rank, "PyTorch refuses what a rank sends to itself"
        if operation.op is isend:
            _own.world.wire(_own.rank, operation.peer).put(operation.tensor.copy())
    return operations


def new_group(ranks):
    return _own.world.group(ranks)


def get_rank(group=None):
    return _own.rank if group is None else group.own()


def all_gather_into_tensor(output, own, group):
    _require_contiguous(output, own)
    output.reshape(-1)[:] = numpy.concatenate([value.reshape(-1) for value in group.exchange(own)])


def all_to_all_single(output, sent, output_split_sizes=None, input_split_sizes=None, group=None):
    _require_contiguous(output, sent)
    group = group or _own.world.group(range(_own.world.ranks))
    ranks, own = len(group.ranks), group.own()
    into, out = output_split_sizes or [len(output) / ranks] * ranks, input_split_sizes or [len(sent) / ranks] * ranks
    assert (sum(into), sum(out)) == (len(output), len(sent)), "PyTorch refuses splits that are not all of a tensor"
    cuts = numpy.cumsum(out).astype(int)[:-1]
    brought = group.exchange(numpy.array([piece.copy() for piece in numpy.split(sent, cuts)] + [None], object)[:-1])
    pieces = [of_rank[own] for of_rank in brought]
    assert [len(piece) for piece in pieces] == list(into), f"expected {into} from ranks {group.ranks}"
    output[...] = numpy.concatenate(pieces)


def reduce_scatter_tensor(output, pieces, op, group):
    _require_contiguous(output, pieces)
    output.reshape(-1)[:] = op.reduce(numpy.stack(group.exchange(pieces))).reshape(len(group.ranks), -1)[group.own()]


def all_reduce(tensor, op, group):
    _require_contiguous(tensor)
    tensor[...] = op.reduce(numpy.stack([value.copy() for value in group.exchange(tensor.copy())]))


def _require_contiguous(*tensors):
    for tensor in tensors:
        assert tensor.flags.c_contiguous, "PyTorch refuses a tensor that is not contiguous"


def run(ranks, of_rank):
    """Has a thread for each rank do `of_rank`; raises what the first of them raised."""
    world, failures = World(ranks), []

    def thread(rank):
        _own.world, _own.rank = world, rank
        try:
            of_rank(rank)
        except Exception as failure:  # of whatever kind, it is the caller's
            failures.append(failure)

    threads = [threading.Thread(target=thread, args=(rank,), daemon=True) for rank in range(ranks)]
    for started in threads:
        started.start()
    for started in threads:
        started.join()
    if failures:
        raise failures[0]
