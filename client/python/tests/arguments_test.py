"""Arguments of the wrong type: each is refused by a sentence that names it, before anything is done."""

import asyncio
import dataclasses
import inspect
import pathlib

import numpy
import pytest

import crossmesh
from crossmesh import _arguments, aio, client, drawing, embedded, errors, memory, parallel, planning
from crossmesh import cluster as cluster_module
from crossmesh import jax as jax_adapter
from crossmesh import torch as torch_adapter

MANIFEST = crossmesh.Manifest([crossmesh.Tensor("w", "F32", [8, 8])])
MESH, RULES = "x=2 on a.0,b.0", "* [x, -]"
SIDE, STORED = (MESH, RULES), (MESH, RULES, "weights")
NOWHERE = "unix:/nowhere/controller.sock"


@pytest.fixture(scope="module")
def cluster():
    with crossmesh.local_cluster(workers=1) as running:
        yield running


@pytest.fixture
def storage(cluster):
    return cluster.memory(0).storage("s", "node-0.0", MANIFEST, "x=1 on node-0.0", "* [-, -]")


def refused(call, *words, **named):
    """The exception's object, expected and found, which its sentence has."""
    with pytest.raises(errors.InvalidArgumentError) as caught:
        call(*words, **named)
    error = caught.value
    assert str(error) == f"{error.object}: expected {error.expected}, found {error.found}"
    return error.object, error.expected, error.found


def test_a_client_names_the_argument_what_it_expected_and_what_it_found(cluster):
    assert refused(crossmesh.connect, 3) == ("argument address of connect", "str | Sequence[str] | None", "int 3")
    assert refused(crossmesh.connect, [NOWHERE, 3]) == (
        "argument address of connect", "str | Sequence[str] | None", "list of str, int")
    assert refused(crossmesh.connect, NOWHERE, call_timeout="1 s") == (
        "argument call_timeout of connect", "float", "str '1 s'")
    assert refused(crossmesh.connect, NOWHERE, insecure=None) == ("argument insecure of connect", "bool", "None")
    one = crossmesh.connect(NOWHERE)
    assert refused(one.meshes.create, "m", 3) == ("argument mesh of Meshes.create", "Mesh | str", "int 3")
    assert refused(one.manifests.put, None, MANIFEST) == ("argument name of Manifests.put", "str", "None")
    assert refused(one.manifests.put, "m", ["w"]) == (
        "argument manifest of Manifests.put", "Manifest | Iterable[Tensor]", "list of str")
    assert refused(one.network.set, 3) == (
        "argument topology of NetworkDescription.set", "str | PathLike[str] | Mapping[str, Any]", "int 3")
    assert refused(one.operations.watch("id").wait, "60")[0] == "argument timeout of RunningOperation.wait"
    assert refused(one.pipelines.runs, 2.5) == ("argument count of Pipelines.runs", "int", "float 2.5")


def test_sides_and_options_of_a_reshard_are_named():
    one = crossmesh.connect(NOWHERE)
    assert refused(one.plan, MANIFEST, 3, STORED)[0] == "source"
    assert refused(one.plan, MANIFEST, (3, RULES), STORED) == ("argument mesh of Side", "Mesh | str", "int 3")
    assert refused(one.plan, MANIFEST, (MESH, {"w": 3}), STORED)[0] == "argument layouts of Side"
    assert refused(one.plan, 3, STORED, STORED) == ("argument manifest of Client.plan", "Manifest | str", "int 3")
    assert refused(one.plan, MANIFEST, STORED, STORED, chunk_bytes="64K") == (
        "argument chunk_bytes of ReshardOptions", "int", "str '64K'")
    # A text is a sequence of letters, which nobody means.
    assert refused(one.plan, MANIFEST, STORED, STORED, replica_axes="replica") == (
        "argument replica_axes of ReshardOptions", "Sequence[str]", "str 'replica'")
    what, expected, found = refused(one.plan, MANIFEST, STORED, STORED, strateg="relay")
    assert (what, found) == ('option "strateg"', "another")
    assert "strategy" in expected


def test_the_asynchronous_client_refuses_when_it_is_awaited():
    async def plan():
        async with aio.connect(NOWHERE) as one:
            await one.plan(3, STORED, STORED)

    assert refused(lambda: asyncio.run(plan())) == ("argument manifest of Client.plan", "Manifest | str", "int 3")
    assert inspect.iscoroutinefunction(aio.Client.plan)


def test_plans_pictures_and_layouts_of_frameworks_are_as_strict():
    assert refused(crossmesh.plan, None, SIDE, SIDE) == ("argument manifest of plan", "Manifest", "None")
    assert refused(crossmesh.plan, MANIFEST, (3, RULES), SIDE)[:2] == ("source", "a mesh and its rules")
    assert refused(crossmesh.plan, MANIFEST, (MESH, 3), SIDE)[0] == "argument layouts of rules"
    assert refused(crossmesh.plan, MANIFEST, SIDE, SIDE, broadcasts="no")[0] == "argument broadcasts of plan"
    assert refused(crossmesh.simulate, "plan") == ("argument plan of simulate", "Plan", "str 'plan'")
    assert refused(crossmesh.schedules, 3)[0] == "argument pipeline of schedules"
    assert refused(crossmesh.manifest, None) == ("argument source of manifest", "str | PathLike[str]", "None")
    assert refused(crossmesh.draw, None) == ("argument what of draw", "Mesh | Layout | Plan | Timeline", "None")
    assert refused(parallel.column, 3) == ("argument axis of column", "str", "int 3")
    assert refused(parallel.vocabulary, "x", crossmesh.Mesh(MESH), 8)[:2] == (
        "argument shape of vocabulary", "Sequence[int]")
    assert refused(torch_adapter.mesh, 3) == ("argument device_mesh of mesh", "DeviceMesh", "int 3")
    assert refused(torch_adapter.redistribute, 3, []) == ("argument tensor of redistribute", "DTensor", "int 3")
    assert refused(jax_adapter.layout_of, 3) == ("argument array of layout_of", "Array", "int 3")


def test_a_storage_names_what_it_is_to_be_filled_from_and_read_into(cluster, storage):
    assert refused(storage.fill, None) == ("argument values of Storage.fill", "Mapping[str, Any]", "None")
    assert refused(storage.read, [numpy.zeros(1)]) == (
        "argument values of Storage.read", "Mapping[str, Any]", "list of ndarray")
    assert refused(storage.tiles, 3) == ("argument tensor of Storage.tiles", "str", "int 3")
    assert refused(cluster.memory(0).storage, "s", "node-0.0", "w", MESH, RULES)[0] == (
        "argument manifest of WorkerMemory.storage")
    assert refused(crossmesh.worker_memory, 3)[0] == "argument path of worker_memory"
    assert refused(crossmesh.local_cluster, "2") == ("argument workers of local_cluster", "int", "str '2'")


def test_a_worker_of_this_process_starts_nothing_with_a_wrong_argument(cluster):
    assert refused(crossmesh.Worker, "w", 3, cluster.address) == (
        "argument devices of Worker", "str | Sequence[str]", "int 3")
    assert refused(crossmesh.Worker, "w", "w.0", cluster.address, memory_max=None) == (
        "argument memory_max of Worker", "int", "None")
    with crossmesh.Worker("w", "w.0", cluster.address) as worker:
        assert refused(worker.lend, "s", None, bytearray(64))[0] == "argument device of Worker.lend"
        assert refused(worker.wait, "1")[0] == "argument timeout of Worker.wait"
        assert refused(worker.lend("s", "w.0", bytearray(64)).release, "1")[0] == (
            "argument timeout of LentStorage.release")


def test_a_long_text_is_shown_in_part():
    *_, found = refused(crossmesh.simulate, "x" * 1000)
    assert found == "str '" + "x" * 59 + "..."


class Registry:
    """Of no mapping's class, as torch.nn.ParameterDict is."""

    def __init__(self, values):
        self._values = values

    def keys(self):
        return self._values.keys()

    def __getitem__(self, name):
        return self._values[name]

    def __contains__(self, name):
        return name in self._values


def test_what_a_value_can_do_counts_not_its_class(storage, tmp_path):
    """Numbers of numpy, sequences that are no lists, mappings that are no dictionaries, paths."""
    storage.fill(Registry({"w": numpy.full((8, 8), 3, "f4")}))
    numpy.savez(tmp_path / "w.npz", w=numpy.full((8, 8), 4, "f4"))
    storage.fill(numpy.load(tmp_path / "w.npz"))
    assert (storage["w"] == 4).all()
    crossmesh.plan(MANIFEST, SIDE, SIDE, seed=numpy.int64(3), nic_share=numpy.float32(0.5), broadcasts=numpy.True_)
    crossmesh.plan(MANIFEST, SIDE, SIDE, nic_share=1, replica_axes=())
    mesh = crossmesh.Mesh(MESH)
    assert parallel.vocabulary("x", mesh, numpy.array([256, 8])) == parallel.vocabulary("x", mesh, (256, 8))
    assert client.Side(mesh, {"w": crossmesh.Layout("[x, -]")}).storage == ""
    crossmesh.connect((NOWHERE,)).close()
    assert crossmesh.worker_memory(pathlib.Path("/nowhere")).path == "/nowhere"


def test_what_can_be_gone_through_once_is_left_to_the_function():
    given = iter([3])

    @_arguments.checked
    def count(values: "_arguments.Iterable[str]") -> int:
        return len(list(values))

    assert count(given) == 1


def test_how_many_arguments_there_are_is_for_python_to_say():
    with pytest.raises(TypeError, match=r"missing 2 required positional arguments"):
        crossmesh.plan(MANIFEST)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        crossmesh.plan(MANIFEST, SIDE, SIDE, sed=1)


MODULES = [aio, client, cluster_module, drawing, embedded, jax_adapter, memory, parallel, planning, torch_adapter]
# Their arguments are words of the command line; what a program shows; made by the package alone.
UNCHECKED = {
    "grids", "checked_array", "has_matplotlib", "numpy_type", "svg_of_picture", "torch_tensor", "manifest", "named",
    "RankLoop.leave"}


def public_functions():
    for module in MODULES:
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(value):
                yield name, value
            elif inspect.isclass(value):
                yield from ((f"{name}.{method}", of) for method, of in vars(value).items()
                            if inspect.isfunction(of) and not method.startswith("_"))


def test_every_public_function_that_takes_something_is_checked():
    unchecked = set()
    for name, function in public_functions():
        parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
        if parameters and not hasattr(function, "__wrapped__"):
            unchecked.add(name)
    assert unchecked <= UNCHECKED
    for kind in (client.Side, client.Redistribution, client.ReshardOptions, client.PipelineChoice, client.RunOptions):
        assert dataclasses.is_dataclass(kind)
        assert hasattr(kind.__init__, "__wrapped__")
