"""Meshes, layouts, rules and manifests as Python has them, against numpy."""

import itertools
import pickle
import random

import numpy
import pytest

import crossmesh
from crossmesh import Layout, Manifest, Mesh, Rules, Tensor, errors
from crossmesh.errors import InvalidArgumentError, NotFoundError


def test_a_mesh_is_its_text_and_its_parts():
    mesh = Mesh("data=2,model=2 on a.0-1,b.0-1")
    assert mesh.axes == [("data", 2), ("model", 2)]
    assert mesh.devices == ["a.0", "a.1", "b.0", "b.1"]
    assert mesh.coordinates(2) == {"data": 1, "model": 0}
    assert mesh == Mesh.of({"data": 2, "model": 2}, "a.0-1,b.0-1") == Mesh.of(mesh.axes, mesh.devices)
    assert str(mesh.select(data=1)) == "model=2 on b.0-1"
    assert len(mesh) == mesh.slots == 4
    assert eval(repr(mesh)) == mesh


def test_an_error_says_what_it_is_about():
    with pytest.raises(InvalidArgumentError) as caught:
        Mesh("data=2 on a.0").select(data=1)
    assert caught.value.code == 3
    with pytest.raises(InvalidArgumentError) as caught:
        Mesh("data=2 on a.0-1").coordinates(2)
    assert (caught.value.object, caught.value.expected, caught.value.found) == ("slot", "0 to 1", "2")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("message", "details"), [
    ("page_size: expected 0 to 1000, found -1", ("page_size", "0 to 1000", "-1")),
    ('spec.source: mesh "m": expected one, found none; create it first', ('spec.source: mesh "m"', "one", "none")),
    ("spec.manifest: expected a name or an inline manifest", ("spec.manifest", "a name or an inline manifest", "")),
    ("a.json: expected strict JSON, found: malformed at byte 3", ("a.json", "strict JSON", "malformed at byte 3")),
    ("expected a first message with a name", ("", "a first message with a name", "")),
    ("spec.source: mesh: axis a is named twice; at 0 and 1", ("spec.source: mesh", "", "axis a is named twice")),
    ("grid z=24: z=24 does not divide 64 rows; the nearest: z=16, z=32",
     ("grid z=24", "", "z=24 does not divide 64 rows")),
    ("a; b: expected c, found d; e: f", ("a; b", "c", "d")),
    (r'tensor "a: expected \" b, found c": expected "k; l, found m", found "n; o"',
     (r'tensor "a: expected \" b, found c"', '"k; l, found m"', '"n; o"')),
    ("", ("", "", "")), ("the worker stops", ("", "", "")), ('mesh "a: expected b', ("", "", "")), ("\\", ("", "", "")),
    ('"\\', ("", "", ""))])
def test_details_of_a_message_are_those_that_a_controller_finds_in_it(message, details):
    error = errors.error_of(3, message)
    assert (error.object, error.expected, error.found) == details


def test_values_are_equal_by_value_and_can_be_pickled():
    values = [
        Mesh("data=2 on a.0-1"), Layout("[data, -] chunk"), Layout("{[0:3, 0:4] [6:9, 0:4]; [3:6, 0:4]; }"),
        Tensor("w", "BF16", [2, 3]), Manifest([Tensor("w", "BF16", [2, 3])])]
    for value in values:
        again = pickle.loads(pickle.dumps(value))
        assert again == value and hash(again) == hash(value)
    for one, other in itertools.combinations(values, 2):
        assert one != other


def parts_of(rule, length, sizes):
    """The plainest reading of docs/text-forms.md, coordinate by coordinate."""
    index = numpy.arange(length)
    if rule == "balanced":
        return numpy.array_split(index, int(numpy.prod(sizes)))
    if rule == "chunk":
        count = int(numpy.prod(sizes))
        each = -(-length // count)
        return [index[i * each:(i + 1) * each] for i in range(count)]
    parts = [index]
    for size in sizes:
        parts = [piece for part in parts
                 for piece in (part[i * -(-len(part) // size):(i + 1) * -(-len(part) // size)] for i in range(size))]
    return parts


@pytest.mark.parametrize("seed", range(40))
def test_tiles_are_those_of_numpy(seed):
    draw = random.Random(seed)
    sizes = [draw.randint(1, 3) for _ in range(draw.randint(1, 3))]
    names = [f"a{i}" for i in range(len(sizes))]
    mesh = Mesh.of(list(zip(names, sizes, strict=True)), f"h.0-{numpy.prod(sizes) - 1}")
    rule = draw.choice(["chunk", "nested_chunk", "balanced"])
    shape = [draw.randint(0, 9) for _ in range(draw.randint(1, 3))]
    free = draw.sample(names, len(names))
    dimensions = [[free.pop() for _ in range(min(len(free), draw.randint(0, 2)))] for _ in shape]
    tiles = Layout.of(dimensions, rule).tiles(mesh, shape)
    whole = numpy.arange(numpy.prod(shape)).reshape(shape)
    for slot, tile in enumerate(tiles):
        at = mesh.coordinates(slot)
        index = []
        for axes, length in zip(dimensions, shape, strict=True):
            of_axes = [sizes[names.index(axis)] for axis in axes]
            place = int(numpy.ravel_multi_index([at[axis] for axis in axes], of_axes)) if axes else 0
            index.append(parts_of(rule, length, of_axes)[place])
        expected = whole[numpy.ix_(*index)].reshape(-1)
        found = numpy.concatenate([whole[box].reshape(-1) for box in tile] or [whole.reshape(-1)[:0]])
        assert numpy.array_equal(found, expected), (seed, slot)


def test_explicit_tiles_are_slices_or_pairs():
    mesh = Mesh("a=2 on h.0-1")
    layout = Layout.of_tiles([[((0, 3), (0, 4)), (slice(6, 9), slice(0, 4))], []])
    assert str(layout) == "{[0:3, 0:4] [6:9, 0:4]; }"
    assert layout.tiles(mesh, [9, 4])[0][1] == (slice(6, 9), slice(0, 4))
    assert layout.dimensions is None and layout.uneven is None


@pytest.mark.parametrize("box", [(slice(0, 3, 2),), (slice(None, 3),), ((3, 2),), ((-1, 2),)])
def test_a_box_that_is_none_is_refused(box):
    with pytest.raises(InvalidArgumentError):
        Layout.of_tiles([[box]])


def test_a_layout_that_does_not_fit_is_refused():
    mesh = Mesh("a=2 on h.0-1")
    for text, shape in (("[a]", [3]), ("[a, -]", [4]), ("[b]", [4])):
        with pytest.raises(InvalidArgumentError):
            Layout(text).tiles(mesh, shape)
    with pytest.raises(InvalidArgumentError):
        Layout.of([["a"], ["a"]]).validate(mesh, [4, 4])
    with pytest.raises(InvalidArgumentError):
        Layout.of([["a"]], "none")


def test_rules_match_by_name():
    rules = Rules("layers.{l}.* [model, ...] on stage={l}/2 as BF16\n* [-]")
    layout, coordinates, dtype = rules.match("layers.5.w", 2)
    assert (str(layout), coordinates, dtype) == ("[model, -]", {"stage": 2}, "BF16")
    assert rules.match("norm", 1) == (Layout("[-]"), {}, None)
    with pytest.raises(NotFoundError):
        Rules("a [-]").match("b", 1)


def test_a_manifest_is_read_and_written():
    manifest = Manifest([Tensor("a", "F32", [2, 3]), Tensor("b", "BF16", [])])
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert manifest.bytes == 26 and len(manifest) == 2 and "a" in manifest and "c" not in manifest
    assert [tensor.name for tensor in manifest] == ["a", "b"] and manifest["a"].shape == (2, 3)
    with pytest.raises(NotFoundError):
        manifest["c"]
    with pytest.raises(InvalidArgumentError):
        Manifest([Tensor("a", "F32", [1]), Tensor("a", "F32", [1])])
    with pytest.raises(InvalidArgumentError):
        Tensor("a", "FP32", [1])


def safetensors_file(path, tensors):
    import json

    header, place = {}, 0
    for name, shape in tensors.items():
        size = 4 * int(numpy.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(place))


def test_manifests_are_read_from_safetensors(tmp_path):
    import json

    safetensors_file(tmp_path / "one.safetensors", {"a": [2, 3]})
    safetensors_file(tmp_path / "two.safetensors", {"b": [4]})
    assert [t.name for t in crossmesh.manifest(tmp_path / "one.safetensors")] == ["a"]
    assert [t.name for t in crossmesh.manifest(tmp_path)] == ["a", "b"]
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"b": "two.safetensors"}}))
    assert [t.name for t in crossmesh.manifest(tmp_path)] == ["b"]
    index.write_text(json.dumps({"weight_map": {"b": "one.safetensors"}}))
    with pytest.raises(InvalidArgumentError):
        crossmesh.manifest(tmp_path)
    with pytest.raises(NotFoundError):
        crossmesh.manifest(tmp_path / "none.safetensors")
    with pytest.raises(NotFoundError):
        crossmesh.manifest(tmp_path / "none.json")
