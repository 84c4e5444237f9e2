"""Ranks of pipelines and layer programs, computed in this process by numpy, beside a reference of all at once."""

import contextlib
import gc
import json
import threading

import numpy
import processes
import pytest

import crossmesh
from crossmesh import embedded, errors
from crossmesh.client import PipelineChoice, RunOptions

SAMPLES = [4, 4, 4, 2]
PIPELINE = {
    "name": "two",
    "ranks": [{"inlineMesh": {"axes": "x=1", "devices": device}} for device in ("p.0", "q.0")],
    "stages": [{"name": name, "rank": rank, "forwardSeconds": 1e-4, "inputGradientSeconds": 1e-4,
                "weightGradientSeconds": 1e-4} for rank, name in enumerate("ab")],
    "edges": [{"from": 0, "to": 1, "tensors": [{
        "tensor": {"name": "h", "dtype": "F32", "shape": ["4", "3"]}, "batchDimension": 0,
        "sourceLayout": "[-, -]", "destinationLayout": "[-, -]"}]}],
    "microbatches": [{"count": 3, "samples": "4"}, {"count": 1, "samples": "2"}],
}


@pytest.fixture(scope="module")
def cluster():
    with crossmesh.local_cluster(workers=0) as running:
        yield running


@pytest.fixture(scope="module")
def workers(cluster):
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(crossmesh.Worker(name, f"{name}.0", cluster.address)) for name in "pqrs"]
        cluster.await_workers(4)
        yield made


def _in_threads(bodies):
    """Runs all, and returns what each raised, or None."""
    raised = [None] * len(bodies)

    def run(place):
        try:
            bodies[place]()
        except BaseException as error:
            raised[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return raised


class Stages:
    """y = (x A) B, trained on the square of y - t; each method is of one stage."""

    def __init__(self):
        generator = numpy.random.default_rng(3)
        self.a, self.b = (generator.normal(size=shape).astype("f4") for shape in ((5, 3), (3, 2)))
        self.x = [generator.normal(size=(count, 5)).astype("f4") for count in SAMPLES]
        self.t = [generator.normal(size=(count, 2)).astype("f4") for count in SAMPLES]
        self.kept = {}
        self.da, self.db, self.loss, self.losses = 0, 0, 0.0, []

    def alone(self, steps):
        for _ in range(steps):
            for m in range(len(SAMPLES)):
                self.second_forward(m, self.x[m] @ self.a)
                self.da = self.da + self.x[m].T @ self.second_backward(m)
            self.step_a()
            self.step_b()
        return self.losses

    def second_forward(self, m, h):
        error = h @ self.b - self.t[m]
        self.loss += float((error ** 2).sum())
        self.kept[m] = (h.copy(), error)

    def second_backward(self, m):
        h, error = self.kept.pop(m)
        self.db = self.db + h.T @ error
        return error @ self.b.T

    def step_a(self):
        self.a, self.da = self.a - numpy.float32(0.005) * self.da, 0

    def step_b(self):
        self.b, self.db = self.b - numpy.float32(0.005) * self.db, 0
        self.losses.append(self.loss)
        self.loss = 0.0


def _start(cluster, iterations, **options):
    return cluster.client.pipelines.start(
        PIPELINE, PipelineChoice(schedule="1f1b"), RunOptions(iterations=iterations, **options))


def test_two_stages_train_as_one_process(cluster, workers):
    stages = Stages()

    def first():
        for step in workers[0].pipeline(30):
            if isinstance(step, embedded.Complete):
                stages.step_a()
            elif step.kind == "forward":
                assert (step.stage, step.samples, step.inputs) == (0, SAMPLES[step.microbatch], ())
                step.output(1).array[...] = stages.x[step.microbatch] @ stages.a
                step.done()
            else:
                stages.da = stages.da + stages.x[step.microbatch].T @ step.input(1).array

    def second():
        with workers[1].pipeline(30) as loop:
            assert loop.rank == 1
            for step in loop:
                if isinstance(step, embedded.Complete):
                    stages.step_b()
                elif step.kind == "forward":
                    assert step.input("0>1").name == "h" and step.name == f"1F{step.microbatch}"
                    stages.second_forward(step.microbatch, step.input(0).array)
                else:
                    step.output(0).array[...] = stages.second_backward(step.microbatch)

    run = _start(cluster, 12)
    assert _in_threads([first, second]) == [None, None]
    assert run.wait(30).state.value == "DONE"
    alone = Stages().alone(12)
    # The same products in the same order: only which thread makes them differs.
    numpy.testing.assert_allclose(stages.losses, alone, rtol=1e-6)
    assert stages.losses[-1] < 0.9 * stages.losses[0]


def test_gradients_of_inputs_and_of_weights_are_apart_where_a_schedule_delays_them(cluster, workers):
    seen = [set(), set()]

    def compute(place):
        for step in workers[place].pipeline(30):
            if not isinstance(step, embedded.Complete):
                seen[place].add((step.kind, bool(step.inputs), bool(step.outputs)))

    choice = PipelineChoice(schedule="1f1b", delay_weight_gradients=True)
    run = cluster.client.pipelines.start(PIPELINE, choice, RunOptions(iterations=2))
    assert _in_threads([lambda: compute(0), lambda: compute(1)]) == [None, None]
    run.wait(30)
    assert seen[1] == {("forward", True, False), ("input_gradient", False, True), ("weight_gradient", False, False)}
    assert {kind for kind, _, _ in seen[0]} == {"forward", "input_gradient", "weight_gradient"}
    assert ("input_gradient", True, False) in seen[0]


def test_one_thread_at_a_time_waits_for_the_next_op(cluster, workers):
    run = _start(cluster, 1, stop_at_failure=True)
    first, second = (worker.pipeline(30) for worker in workers[:2])
    told, refused = [], threading.Event()

    def wait():  # for the first stage, which computes nothing
        with pytest.raises(errors.Error) as caught:
            second._loop.next()
        told.append(type(caught.value))
        refused.set()

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    was_refused = refused.wait(20)
    first.leave()  # which ends the one that waits
    for thread in threads:
        thread.join(60)
    assert was_refused and told[0] is errors.FailedPreconditionError and len(told) == 2
    with pytest.raises(errors.Error, match="has left the pipeline"):
        run.wait(30)


def test_what_an_op_raises_fails_the_run_with_that_reason(cluster, workers):
    def first():
        with workers[0].pipeline(30) as loop:
            for step in loop:
                if step.name == "0F2":
                    raise ZeroDivisionError("no such luck")

    def second():
        for _ in workers[1].pipeline(30):
            pass

    run = _start(cluster, 1, stop_at_failure=True)
    raised = _in_threads([first, second])
    assert isinstance(raised[0], ZeroDivisionError)
    assert isinstance(raised[1], errors.Error)
    with pytest.raises(errors.Error, match="ZeroDivisionError: no such luck"):
        run.wait(30)


def test_answers_that_cannot_be_are_refused_and_arrays_outlive_their_loop(cluster, workers):
    held = []

    def first():
        with workers[0].pipeline(30) as loop:
            step = next(loop)
            held.append(step.output(1).array)
            with pytest.raises(errors.NotFoundError, match=r"op 0F0: expected an input of 7, found none"):
                step.input(7)
            with pytest.raises(errors.FailedPreconditionError, match="found that it has no answer"):
                loop._loop.next()
            step.done()
            with pytest.raises(errors.InvalidArgumentError, match="expected an answer to its last step"):
                step.done()
            loop.leave()
            loop.leave()
            with pytest.raises(errors.FailedPreconditionError, match="found that it has left"):
                next(loop)

    def second():
        for _ in workers[1].pipeline(30):
            pass

    run = _start(cluster, 1, stop_at_failure=True)
    raised = _in_threads([first, second])
    assert raised[0] is None and isinstance(raised[1], errors.Error)
    with pytest.raises(errors.Error, match="has left the pipeline"):
        run.wait(30)
    gc.collect()
    held[0][...] = 7  # memory of a run that is over
    assert held[0].sum() == 7 * 12


def test_what_a_replaced_worker_has_lost_is_asked_about_before_the_first_op(cluster, workers):
    """A rank that goes on without an answer ends the run."""
    place = json.dumps(PIPELINE).replace('"q.0"', '"lost.0"')
    lost = crossmesh.Worker("lost", "lost.0", cluster.address)
    cluster.await_workers(len(workers) + 1)
    run = cluster.client.pipelines.start(
        json.loads(place), PipelineChoice(schedule="1f1b"), RunOptions(iterations=3))
    asked = []

    def compute(worker, ends):
        """Until `ends(step)`, over as many loops as that takes."""
        while True:
            with contextlib.suppress(errors.Error), worker.pipeline(30) as loop:
                for step in loop:
                    if ends(step):
                        return
                    if isinstance(step, embedded.StateLost):
                        asked.append((loop.rank, step.iteration, step.lost_ranks))
                        step.done()
                    elif isinstance(step, embedded.Op):
                        for tensor in step.outputs:
                            tensor.array[...] = 1
                return

    def second():
        compute(lost, lambda step: isinstance(step, embedded.Complete))
        lost.stop()
        with crossmesh.Worker("lost", "lost.0", cluster.address) as again:
            compute(again, lambda step: False)

    assert _in_threads([lambda: compute(workers[0], lambda step: False), second]) == [None, None]
    assert run.wait(30).state.value == "DONE"
    assert sorted(asked) == [(0, 0, (1,)), (1, 0, (1,))]


def test_a_layer_program_over_four_ranks_sums_what_they_give(cluster, workers):
    devices = ",".join(f"{worker.name}.0" for worker in workers)
    ranks = [{"inlineMesh": {"axes": "x=4", "devices": devices}}]
    program = {
        "name": "sums", "ranks": ranks,
        "ops": [{"name": name, "rank": 0, "seconds": 1e-4} for name in ("give", "use")],
        "transfers": [{
            "name": "sum", "partialAxes": ["x"], "messages": [{"producer": 0, "consumer": 1}],
            "tensors": [{"tensor": {"name": "y", "dtype": "F32", "shape": ["6", "4"]},
                         "sourceLayout": "[-, -]", "destinationLayout": "[x, -] balanced"}]}, {
            "name": "rows", "messages": [{"producer": 0, "consumer": 1}],
            "tensors": [{"tensor": {"name": "z", "dtype": "F32", "shape": ["6", "4"]},
                         "sourceLayout": "[x, -] balanced",
                         "destinationLayout": "{[0:1, 0:4] [3:4, 0:4]; [1:2, 0:4]; [2:3, 0:4]; [4:6, 0:4]}"}]}],
    }
    whole = numpy.arange(24, dtype="f4").reshape(6, 4)
    seen = [[] for _ in workers]

    def compute(place):
        for step in workers[place].pipeline(30):
            if isinstance(step, embedded.Complete):
                continue
            assert step.kind == "op"
            if step.name == "give":
                step.output("sum").array[...] = whole * (place + 1) + step.iteration
                tile = step.output("rows").tiles[0]
                tile.array[...] = whole[tile.boxes[0]]
            else:
                tile = step.input("sum").tiles[0]
                assert (tile.array == 10 * whole[tile.boxes[0]] + 4 * step.iteration).all()
                seen[place].append(tile.boxes[0][0])
                rows = step.input("rows").tiles[0]
                assert len(rows.boxes) == (2 if place == 0 else 1)
                assert (rows.data == numpy.concatenate([whole[box].reshape(-1) for box in rows.boxes])).all()

    run = cluster.client.pipelines.start(program, options=RunOptions(iterations=3))
    assert _in_threads([lambda place=place: compute(place) for place in range(4)]) == [None] * 4
    assert run.wait(30).state.value == "DONE"
    assert [len(rows) for rows in seen] == [3] * 4
    assert sum(rows[0].stop - rows[0].start for rows in seen) == 6


def test_an_interpreter_may_end_in_the_midst_of_a_run(cluster):
    """With a rank's arrays held, another rank that is waited for, and an op that has no answer."""
    assert processes.output_of("import crossmesh, json, sys, threading\n", """
        from crossmesh.client import PipelineChoice, RunOptions
        client = crossmesh.connect(sys.argv[1])
        worker = crossmesh.Worker("ends", "ends.0-1", sys.argv[1], log_level="error")
        while "ends" not in [known.name for known in client.workers.list()]:
            pass
        client.pipelines.start(json.loads(sys.argv[2]), PipelineChoice(schedule="1f1b"), RunOptions(iterations=1))
        first, second = sorted((worker.pipeline(30), worker.pipeline(30)), key=lambda loop: loop.rank)
        step = next(first)
        held = step.output(1).array
        view = memoryview(held)
        threading.excepthook = lambda told: None
        threading.Thread(target=next, args=(second,), daemon=True).start()
        held[...] = 1
        print("ends")
    """, cluster.address, json.dumps(PIPELINE).replace('"p.0"', '"ends.0"').replace('"q.0"', '"ends.1"')) == "ends\n"
