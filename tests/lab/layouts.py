"""Meshes, layouts and the boxes that they give each slot: docs/text-forms.md as far as the lab's cases use it."""

import fnmatch
import math
from dataclasses import dataclass

Box = tuple[tuple[int, int], ...]  # half-open, one interval per dimension
ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2}
STORAGE_ALIGNMENT = 64


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str = "F32"


@dataclass(frozen=True)
class Mesh:
    """`devices` are slots in order, the last axis fastest."""

    axes: tuple[tuple[str, int], ...]
    devices: tuple[str, ...]

    def text(self) -> str:
        return f"{','.join(f'{name}={size}' for name, size in self.axes)} on {','.join(self.devices)}"

    def hosts(self) -> list[str]:
        """In order of their first slot."""
        return list(dict.fromkeys(host_of(device) for device in self.devices))

    def coordinates(self, slot: int) -> dict[str, int]:
        found = {}
        for name, size in reversed(self.axes):
            slot, found[name] = divmod(slot, size)
        return found


@dataclass(frozen=True)
class Placement:
    """One side of a reshard: a mesh, and a layout per name pattern of which the first that matches holds."""

    mesh: Mesh
    rules: tuple[tuple[str, str], ...]

    def layout(self, name: str) -> str:
        return next(layout for pattern, layout in self.rules if fnmatch.fnmatchcase(name, pattern))

    def rules_text(self) -> str:
        return "".join(f"{pattern} {layout}\n" for pattern, layout in self.rules)


def host_of(device: str) -> str:
    return device.rsplit(".", 1)[0]


def parse_rules(text: str) -> tuple[tuple[str, str], ...]:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return tuple((pattern, layout.strip()) for pattern, layout in (line.split(maxsplit=1) for line in lines if line))


def cut(interval: tuple[int, int], parts: list[tuple[int, int]], uneven: str) -> tuple[int, int]:
    """The part of an interval that lies at these coordinates: (place, number of places) per axis, major first."""
    begin, end = interval
    if uneven == "nested_chunk":
        for part in parts:
            begin, end = cut((begin, end), [part], "chunk")
        return begin, end
    place, count = 0, 1
    for coordinate, size in parts:
        place, count = place * size + coordinate, count * size
    length = end - begin
    if uneven == "balanced":
        step, more = divmod(length, count)
        cuts = [begin + index * step + min(index, more) for index in (place, place + 1)]
    else:  # exact is chunk where it is allowed
        step = math.ceil(length / count)
        cuts = [begin + min(index * step, length) for index in (place, place + 1)]
    return cuts[0], cuts[1]


def spelled_out(layout: str, rank: int) -> str:
    """With as many `-` in the place of `...` as a tensor's rank needs."""
    inner, uneven = layout.removeprefix("[").split("]")
    dimensions = [dimension.strip() for dimension in inner.split(",") if dimension.strip()]
    if "..." in dimensions:
        at = dimensions.index("...")
        dimensions[at:at + 1] = ["-"] * (rank - len(dimensions) + 1)
    return f"[{', '.join(dimensions)}] {uneven.strip()}".strip()


def box_of(mesh: Mesh, layout: str, shape: tuple[int, ...], slot: int) -> Box:
    """What a slot holds of a tensor."""
    inner, uneven = spelled_out(layout, len(shape)).removeprefix("[").split("]")
    sizes, here = dict(mesh.axes), mesh.coordinates(slot)
    return tuple(
        (0, length) if dimension == "-" else
        cut((0, length), [(here[axis], sizes[axis]) for axis in dimension.split("*")], uneven.strip())
        for length, dimension in zip(shape, inner.split(", ") if inner else [], strict=True))


def box_bytes(box: Box, dtype: str) -> int:
    return math.prod(end - begin for begin, end in box) * ITEM_BYTES[dtype]


def aligned(size: int) -> int:
    """With what lies between a tensor's end and the begin of the next one in a storage."""
    return math.ceil(size / STORAGE_ALIGNMENT) * STORAGE_ALIGNMENT


def storage_bytes(placement: Placement, tensors: tuple[Tensor, ...], slot: int) -> int:
    """Tensors lie one after the other, each at a multiple of the alignment."""
    return sum(aligned(box_bytes(box_of(placement.mesh, placement.layout(tensor.name), tensor.shape, slot),
                                 tensor.dtype)) for tensor in tensors)
