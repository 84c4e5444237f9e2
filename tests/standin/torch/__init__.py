"""A stand-in for what emitted programs use of PyTorch: tensors on numpy, stricter about memory than PyTorch is."""

import types

import numpy

contiguous_format = "contiguous"
add, minimum, maximum = numpy.add, numpy.minimum, numpy.maximum
device_type = "cuda"  # of all tensors


class Tensor(numpy.ndarray):
    @property
    def device(self):
        return types.SimpleNamespace(type=device_type)

    def contiguous(self):
        return numpy.ascontiguousarray(self).view(Tensor)

    def clone(self, memory_format):
        assert memory_format == contiguous_format
        return self.copy()

    def dim(self):
        return self.ndim

    def element_size(self):
        return self.itemsize

    def expand(self, *shape):
        return numpy.broadcast_to(self, shape, subok=True)

    def new_empty(self, shape):
        return empty_like(self, shape=shape)

    def numel(self):
        return self.size

    def split(self, counts):
        return numpy.split(self, numpy.cumsum(counts)[:-1])

    def permute(self, order):
        return self.transpose(order)


def from_numpy(array):
    return array.view(Tensor)


def empty_like(tensor, memory_format=contiguous_format, shape=None):
    """Filled with what nobody has sent, so that it is seen where it is left."""
    assert memory_format == contiguous_format
    return numpy.full(tensor.shape if shape is None else shape, 1e9, tensor.dtype).view(Tensor)


def arange(begin, end):
    return numpy.arange(begin, end).view(Tensor)


def cat(tensors):
    return numpy.concatenate(tensors).view(Tensor)


def meshgrid(*indices, indexing):
    return tuple(numpy.meshgrid(*indices, indexing=indexing))
