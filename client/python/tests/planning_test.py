"""Plans, bounds and simulations as functions, beside the command line's."""

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

import crossmesh
from crossmesh import Layout, Manifest, Mesh, Tensor, planning, programs
from crossmesh.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, ResourceExhaustedError

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SOURCE = (Mesh("fsdp=4 on a.0,b.0,c.0,d.0"), (EXAMPLES / "gpt2.fsdp.rules").read_text())
DESTINATION = (Mesh("replica=2,model=2 on e.0-1,f.0-1"), (EXAMPLES / "gpt2.tp.rules").read_text())


@pytest.fixture(scope="module")
def gpt2():
    return crossmesh.manifest(EXAMPLES / "gpt2.json")


def test_a_plan_is_the_command_lines(gpt2):
    plan = crossmesh.plan(gpt2, SOURCE, DESTINATION, replica_axes=["replica"])
    shown = programs.document_of([
        "plan", "--manifest", str(EXAMPLES / "gpt2.json"), "--source", str(SOURCE[0]), "--source-rules",
        str(EXAMPLES / "gpt2.fsdp.rules"), "--destination", str(DESTINATION[0]), "--destination-rules",
        str(EXAMPLES / "gpt2.tp.rules"), "--replica-axes", "replica"])["summary"]
    assert plan.id == shown["id"]
    for figure in ("bound_seconds", "predicted_seconds", "strategy", "assumed_rates"):
        assert plan.summary[figure] == shown[figure]
    for figure in ("network_bytes", "destination_bytes", "relays", "peak_device_bytes"):
        assert plan.summary[figure] == int(shown[figure])
    assert plan.bound == crossmesh.bound(gpt2, SOURCE, DESTINATION, replica_axes=["replica"])
    assert plan.bound.assumed_rates and plan.bound.proof
    assert "relay" in plan.text()
    assert plan == crossmesh.plan(gpt2, SOURCE, DESTINATION, replica_axes=["replica"])


def test_a_plan_runs_in_simulation_no_faster_than_its_bound(gpt2):
    for strategy in crossmesh.strategies():
        plan = crossmesh.plan(gpt2, SOURCE, DESTINATION, strategy=strategy)
        run = crossmesh.simulate(plan)
        assert run.seconds >= plan.bound.seconds * (1 - 1e-9), strategy
        assert max(port.bytes / port.bytes_per_second for port in run.ports) <= run.seconds * (1 + 1e-9)
        assert run.picture()["picture"] == "plan"


def test_layouts_stand_for_rules():
    manifest = Manifest([Tensor("w", "F32", [8, 4]), Tensor("b", "F32", [8])])
    mesh, other = Mesh("a=2 on x.0,y.0"), Mesh("b=2 on z.0,z.1")
    layouts = {"w": Layout("[a, -]"), "b": "[a]"}
    by_name = crossmesh.plan(manifest, (mesh, layouts), (other, "* [b, ...]"))
    by_rules = crossmesh.plan(manifest, (mesh, "w [a, -]\nb [a]"), (str(other), "* [b, ...]"))
    assert by_name.id == by_rules.id
    one = Manifest([Tensor("w", "F32", [8, 4])])
    assert crossmesh.plan(one, (mesh, Layout("[a, -]")), (other, Layout("[b, -]"))).destination_bytes == 128
    with pytest.raises(InvalidArgumentError):
        planning.rules({"w*": "[a]"})


def test_a_described_network_decides_the_bound():
    manifest = Manifest([Tensor("w", "U8", [1000])])
    network = {"hosts": [
        {"name": name, "nics": [{"name": "n", "out_bytes_per_second": rate, "in_bytes_per_second": rate}]}
        for name, rate in (("x", 100), ("y", 50))]}
    sides = (Mesh("on x.0"), "* [-]"), (Mesh("on y.0"), "* [-]")
    bound = crossmesh.bound(manifest, *sides, topology=network)
    assert bound.seconds == pytest.approx(20) and not bound.assumed_rates
    assert crossmesh.bound(manifest, *sides, topology=json.dumps(network)) == bound
    with pytest.raises(InvalidArgumentError):
        crossmesh.bound(manifest, *sides, topology={"host": []})
    with pytest.raises(FailedPreconditionError):
        crossmesh.bound(manifest, *sides, topology="/nowhere/network.json")


def test_bad_input_names_what_is_wrong(gpt2):
    with pytest.raises(InvalidArgumentError) as caught:
        crossmesh.plan(gpt2, SOURCE, DESTINATION, strategy="fastest")
    assert "fastest" in str(caught.value)
    with pytest.raises(InvalidArgumentError):
        crossmesh.plan(gpt2, SOURCE, DESTINATION, binding="direct")
    with pytest.raises(InvalidArgumentError):
        crossmesh.plan(gpt2, SOURCE[0], DESTINATION)
    with pytest.raises(ResourceExhaustedError):
        crossmesh.plan(gpt2, SOURCE, DESTINATION, device_bytes_max=1000)
    with pytest.raises(InvalidArgumentError, match="argument manifest of plan: expected Manifest, found str 'gpt2'"):
        crossmesh.plan("gpt2", SOURCE, DESTINATION)


def slow_plan(tensors):
    """Takes some milliseconds for each tensor, since no two are alike."""
    manifest = Manifest([Tensor(f"t{i}", "U8", [4096 + i, 997]) for i in range(tensors)])
    source = Mesh.of({"a": 64}, [f"s{i}.0" for i in range(64)])
    destination = Mesh.of({"b": 48}, [f"d{i}.0" for i in range(48)])
    begin = time.monotonic()
    crossmesh.plan(manifest, (source, "* [a, -] chunk"), (destination, "* [-, b] balanced"))
    return time.monotonic() - begin


def test_other_threads_run_while_a_plan_is_made():
    counted, done = [], threading.Event()

    def count():
        while not done.is_set():
            counted.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.monotonic()
    slow_plan(300)
    end = time.monotonic()
    done.set()
    thread.join()
    inside = [at for at in counted if begin < at < end]
    # With the lock held it could only count before and after what is planned: once each. How often it counts else is
    # the machine's affair.
    assert len(inside) > 4, (len(inside), end - begin)


def interrupted_plan():
    """When it began and ended, with a SIGINT soon after its begin."""
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    try:
        slow_plan(1000)
    finally:
        timer.join()
    return begin, time.monotonic()


def test_ctrl_c_ends_a_plan():
    with pytest.raises(KeyboardInterrupt):
        interrupted_plan()


def test_a_signal_is_handled_while_a_plan_is_made():
    """A handler that lets it go on says when it was called: were it after the plan, Ctrl-C would have to wait."""
    called = []
    former = signal.signal(signal.SIGINT, lambda *_: called.append(time.monotonic()))
    try:
        begin, end = interrupted_plan()
    finally:
        signal.signal(signal.SIGINT, former)
    assert (called[0] - begin) / (end - begin) < 0.9


def test_schedules_are_compared_and_planned():
    every = crossmesh.schedules(EXAMPLES / "pipeline.json")
    assert {"1f1b", "auto"} <= {candidate["name"] for candidate in every}
    one = crossmesh.schedules(json.loads((EXAMPLES / "pipeline.json").read_text()), schedule="1f1b")
    assert one["schedule"] == "1f1b" and one["predicted_seconds"] >= one["bound_seconds"]
    assert isinstance(one["proven_ops"], int)
    with pytest.raises(InvalidArgumentError):
        crossmesh.schedules({"rank": []})


def test_grids_are_ranked():
    ranked = crossmesh.grids(model="GPT-20B", batch=512, sequence=2048, gpu_host="h100x8", count=64)
    assert ranked["grids"]
    with pytest.raises(InvalidArgumentError):
        crossmesh.grids(model="none", batch=512, sequence=2048, gpu_host="h100x8", count=64)


def test_a_program_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(programs.VARIABLE, str(tmp_path))
    with pytest.raises(NotFoundError) as caught:
        programs.path("crossmesh")
    assert "CROSSMESH_PROGRAMS" in str(caught.value)


def test_the_module_is_the_command_line():
    import sys

    shown = subprocess.run([sys.executable, "-m", "crossmesh", "--version"], capture_output=True, text=True, check=True)
    assert "0." in shown.stdout


def test_a_layout_is_drawn():
    layout, mesh = Layout("[a, -] chunk"), Mesh("a=3 on h.0-2")
    picture = crossmesh.draw(layout, mesh=mesh, shape=[7, 4])
    assert picture._repr_svg_().startswith("<svg") and picture.svg.count("fill=\"#") == 3 + len(texts_of(picture.svg))
    assert crossmesh.draw(Layout("[-]"), mesh=mesh, shape=[0]).svg
    assert crossmesh.draw(Layout("[]"), mesh=mesh, shape=[]).svg
    with pytest.raises(InvalidArgumentError):
        crossmesh.draw(layout)


def texts_of(svg):
    """Of a picture, which must be well-formed."""
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]


def test_a_mesh_shows_every_slot_with_its_device_and_coordinates():
    mesh = Mesh("data=2,model=2 on a.0-1,b.0-1")
    texts = texts_of(mesh._repr_svg_())
    assert crossmesh.draw(mesh).svg == mesh._repr_svg_()
    assert texts[:4] == ["a.0", "data 0, model 0", "a.1", "data 0, model 1"]
    assert texts[-1] == f"{mesh}: 4 slots on 2 hosts"
    assert texts_of(crossmesh.draw(Mesh("on a.0")).svg)[0] == "a.0"
    many = texts_of(crossmesh.draw(Mesh.of({"a": 100}, [f"h.{i}" for i in range(100)])).svg)
    assert many[-1] == "a=100 on h.0-99: 100 slots on 1 host, 36 more slots" and len(many) == 2 * 64 + 1


def test_a_layout_shows_which_axes_cut_what():
    shown = Layout("[data*model, -] chunk")._repr_html_()
    rows = [[cell.text for cell in row] for row in ElementTree.fromstring(f"<p>{shown}</p>").iter("tr")]
    assert rows == [["dimension", "cut by axis"], ["0", "data, then model"], ["1", "no axis: whole"]]
    assert "torch.chunk" in shown
    assert "explicit tiles" in Layout("{[0:2]; [2:4]}")._repr_html_()
    assert "all of it" in Layout("[-]")._repr_html_()


def test_a_plan_shows_how_long_its_ports_are_busy():
    manifest = Manifest([Tensor("w", "U8", [1000])])
    network = {"hosts": [
        {"name": name, "nics": [{"name": "n", "out_bytes_per_second": rate, "in_bytes_per_second": rate}]}
        for name, rate in (("x", 100), ("y", 50))]}
    plan = crossmesh.plan(manifest, (Mesh("on x.0"), "* [-]"), (Mesh("on y.0"), "* [-]"), topology=network)
    texts = texts_of(plan._repr_svg_())
    assert texts[1:5] == ["x/n out", "1 kB, 10 s", "y/n in", "1 kB, 20 s"]
    assert "the bound, 20 s;" in texts[-1]
    assert plan._repr_svg_() == plan.simulate()._repr_svg_()
    wide = (Mesh.of({"a": 40}, [f"s{i}.0" for i in range(40)]), "* [a]"), (Mesh("on y.0"), "* [-]")
    shown = texts_of(crossmesh.plan(manifest, *wide)._repr_svg_())
    assert len(shown) == 2 + 2 * 32 and "9 ports that are less busy are left out" in shown[-1]
    assert "y/nic in" in shown  # the busiest, and the last
    nothing = crossmesh.plan(manifest, (Mesh("on x.0"), "* [-]"), (Mesh("on x.1"), "* [-]"))
    assert texts_of(nothing._repr_svg_())


def test_a_plan_that_no_simulation_knows_shows_its_text_alone():
    manifest = Manifest([Tensor("w", "U8", [1000])])
    plan = crossmesh.plan(manifest, (Mesh("on x.0"), "* [-]"), (Mesh("on y.0"), "* [-]"))
    plan.summary["simulated"] = False
    assert plan._repr_svg_() is None
