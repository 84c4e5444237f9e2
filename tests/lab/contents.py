"""What the tensors of a case hold: bytes by which each element can be told from those around it, and from before."""

import functools
import itertools
import math
import random
from collections.abc import Iterator

from layouts import ITEM_BYTES, Box, Placement, Tensor, aligned, box_bytes, box_of

# A tensor is random bytes over and over. No row, tile or chunk is a multiple of this prime, so what came from another
# place of the tensor differs.
PERIOD_BYTES = 1_048_583


@functools.lru_cache(maxsize=1)  # slots ask for the same tensor, one after the other
def tensor_bytes(tensor: Tensor, version: int) -> bytes:
    """All of it, row-major. Two versions have nothing in common."""
    size = math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]
    period = random.Random(f"{tensor.name} {version}").randbytes(PERIOD_BYTES)
    return (period * math.ceil(size / PERIOD_BYTES))[:size]


def runs(tensor: Tensor, box: Box) -> Iterator[tuple[int, int]]:
    """Ranges of the tensor's bytes that make up a box, in the box's order. A scalar has none: no case has one."""
    split = len(box) - 1  # dimensions behind it are whole
    while split > 0 and box[split] == (0, tensor.shape[split]):
        split -= 1
    inner = math.prod(tensor.shape[split + 1:]) * ITEM_BYTES[tensor.dtype]
    begin, end = box[split]
    for outer in itertools.product(*(range(*interval) for interval in box[:split])):
        row = 0
        for place, length in zip(outer, tensor.shape):
            row = row * length + place
        first = row * tensor.shape[split]
        yield (first + begin) * inner, (first + end) * inner


def tile_of(whole: bytes, tensor: Tensor, box: Box) -> bytes:
    """Of a tensor with these bytes."""
    return b"".join(whole[begin:end] for begin, end in runs(tensor, box))


def tile_bytes(tensor: Tensor, box: Box, version: int) -> bytes:
    return tile_of(tensor_bytes(tensor, version), tensor, box)


def tiles(placement: Placement, tensors: tuple[Tensor, ...], slot: int) -> Iterator[tuple[Tensor, Box, int]]:
    """Tensor, box and offset of each tile in a slot's storage."""
    offset = 0
    for tensor in tensors:
        box = box_of(placement.mesh, placement.layout(tensor.name), tensor.shape, slot)
        yield tensor, box, offset
        offset += aligned(box_bytes(box, tensor.dtype))


def fill(memory: memoryview, placement: Placement, tensors: tuple[Tensor, ...], slot: int, version: int) -> None:
    for tensor, box, offset in tiles(placement, tensors, slot):
        tile = tile_bytes(tensor, box, version)
        memory[offset:offset + len(tile)] = tile


def first_difference(found: memoryview, expected: memoryview) -> int:
    """The place of the first byte that differs; there must be one. Both are of one length."""
    begin, end = 0, len(expected)
    while end - begin > 1:
        middle = (begin + end) // 2
        if found[begin:middle] == expected[begin:middle]:
            begin = middle
        else:
            end = middle
    return begin


def wrong_element(memory: memoryview, placement: Placement, tensors: tuple[Tensor, ...], slot: int,
                  version: int) -> str | None:
    """The first element of a slot's storage that is not that of the version, or None."""
    return wrong_element_of(memory, placement, {tensor: tensor_bytes(tensor, version) for tensor in tensors}, slot)


def wrong_element_of(memory: memoryview, placement: Placement, wholes: dict[Tensor, bytes], slot: int) -> str | None:
    """The first element of a slot's storage that is not that of these tensors, or None."""
    for tensor, box, offset in tiles(placement, tuple(wholes), slot):
        expected = memoryview(tile_of(wholes[tensor], tensor, box))
        found = memory[offset:offset + len(expected)]
        if found != expected:
            item = ITEM_BYTES[tensor.dtype]
            element = first_difference(found, expected) // item
            here = slice(element * item, (element + 1) * item)
            return (f"{placement.mesh.devices[slot]}, element {element} of its tile of {tensor.name}: expected "
                    f"{expected[here].hex()}, found {found[here].hex()}")
    return None
