"""A stand-in for what emitted programs use of PyTorch: tensors on numpy, stricter about memory than PyTorch is."""

import numpy

contiguous_format = "contiguous"
long = numpy.int64


class Tensor(numpy.ndarray):
    def contiguous(self):
        return numpy.ascontiguousarray(self).view(Tensor)

    def clone(self):
        return self.copy()

    def dim(self):
        return self.ndim

    def new_empty(self, shape):
        return empty_like(self, shape=shape)

    def numel(self):
        return self.size

    def permute(self, order):
        return self.transpose(order)


def from_numpy(array):
    return array.view(Tensor)


def empty_like(tensor, memory_format=contiguous_format, shape=None):
    """Filled with what nobody has sent, so that it is seen where it is left."""
    assert memory_format == contiguous_format
    return numpy.full(tensor.shape if shape is None else shape, 1e9, tensor.dtype).view(Tensor)


def tensor(values, dtype):
    return numpy.array(values, dtype).view(Tensor)


def meshgrid(*indices, indexing):
    return tuple(numpy.meshgrid(*indices, indexing=indexing))
