from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.run.admission import admit, allocate, minus, total, total_of
from stages.artifacts import Artifact
from stages.context import StepContext
from stages.errors import StageError
from stages.stage import Stage
from stages.workers import Resources


def nothing(inputs: Any, config: Any, context: StepContext) -> None:
    Path(context.directory / "x").touch()


LEAF = Stage("leaf", 1, nothing, Artifact)
MAP = Stage("map", 1, nothing, Artifact, distributes=True)
TRAIN = Stage("train", 1, nothing, Artifact, distributes=True, trains=True)
TIMED = Stage("timed", 1, nothing, Artifact, exclusive=True)
TWO = [{"CPU": 2.0, "GPU": 0.0}]


def test_default_resources() -> None:
    assert allocate(LEAF, Resources(), TWO, TWO[0]) == Resources(workers=1, cpus=1.0)
    assert allocate(MAP, Resources(), TWO, TWO[0]) == Resources(workers=2, cpus=1.0)
    assert allocate(TRAIN, Resources(), TWO, TWO[0]) == Resources(workers=1, cpus=2.0)
    assert allocate(TRAIN, Resources(workers=2), TWO, TWO[0]) == Resources(workers=2, cpus=1.0)


def test_a_map_takes_free_cpus_and_a_training_waits_for_its_request() -> None:
    one_left = {"CPU": 1.0, "GPU": 0.0}
    assert allocate(MAP, Resources(), TWO, one_left) == Resources(workers=1, cpus=1.0)
    assert allocate(TRAIN, Resources(), TWO, one_left) is None
    assert allocate(TRAIN, Resources(cpus=1), TWO, one_left) == Resources(workers=1, cpus=1)
    assert allocate(LEAF, Resources(), TWO, {"CPU": 0.0}) is None


def test_an_exclusive_step_waits_for_all_resources() -> None:
    assert allocate(TIMED, Resources(), TWO, {"CPU": 1.0, "GPU": 0.0}) is None
    assert allocate(TIMED, Resources(), TWO, {"CPU": 2.0, "GPU": 0.0}) is not None


TOO_MUCH = [
    Resources(cpus=4),
    Resources(workers=3, cpus=1),
    Resources(gpus=1),
    Resources(custom={"spot": 1}),
    Resources(memory_gib=1),
]


@pytest.mark.parametrize("asked", TOO_MUCH)
def test_a_request_that_can_never_fit_is_refused(asked: Resources) -> None:
    with pytest.raises(StageError, match=r"cluster\.resources\.train: asks for .* the machines have 2 CPU"):
        allocate(TRAIN, asked, TWO, TWO[0])


def test_a_worker_must_fit_on_one_node() -> None:
    nodes = [{"CPU": 2.0}, {"CPU": 2.0}]
    with pytest.raises(StageError):
        allocate(TRAIN, Resources(cpus=3), nodes, total(nodes))
    assert allocate(TRAIN, Resources(workers=2, cpus=2), nodes, total(nodes)) is not None


def test_fractions_share_a_gpu() -> None:
    nodes = [{"CPU": 8.0, "GPU": 1.0}]
    assert allocate(MAP, Resources(gpus=0.25), nodes, nodes[0]) == Resources(workers=4, cpus=1.0, gpus=0.25)


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 8))
def test_granted_resources_are_free(cpus: int, size: int, taken: int) -> None:
    nodes = [{"CPU": float(size)}]
    free = {"CPU": float(max(0, size - taken))}
    try:
        granted = allocate(MAP, Resources(cpus=cpus), nodes, free)
    except StageError:
        assert cpus > size
        return
    if granted is None:
        assert free["CPU"] < cpus
    else:
        assert minus(free, total_of(granted))["CPU"] >= 0


MIXED = {"head": {"CPU": 2.0}, "gpus": {"CPU": 4.0, "GPU": 1.0}}
ON_GPU = (TRAIN, Resources(gpus=1))


def test_steps_without_gpus_stay_off_nodes_with_gpus() -> None:
    granted = admit((MAP, Resources()), MIXED, [], [ON_GPU])
    assert granted == (Resources(workers=2, cpus=1.0), ("gpus",))
    beside = admit(ON_GPU, MIXED, [(MAP, granted[0])], [])
    assert beside == (Resources(workers=1, cpus=4.0, gpus=1), ())  # all CPUs of the machine with the GPU
    assert admit((LEAF, Resources()), MIXED, [(MAP, granted[0]), (TRAIN, beside[0])], []) is None


def test_all_nodes_are_used_if_no_step_requests_gpus() -> None:
    assert admit((MAP, Resources()), MIXED, [], [(TRAIN, Resources())]) == (Resources(workers=6, cpus=1.0), ())


def test_a_step_that_only_fits_on_a_gpu_node_runs_there() -> None:
    assert admit((LEAF, Resources(cpus=3)), MIXED, [], [ON_GPU]) == (Resources(workers=1, cpus=3), ())


def test_on_a_single_node_the_cpus_of_a_pending_gpu_step_are_left_free() -> None:
    one = {"here": {"CPU": 4.0, "GPU": 1.0}}
    stated = (TRAIN, Resources(gpus=1, cpus=3))
    assert admit((MAP, Resources()), one, [], [stated]) == (Resources(workers=1, cpus=1.0), ())
    assert admit((MAP, Resources()), one, [], [ON_GPU]) == (Resources(workers=4, cpus=1.0), ())
    assert admit((LEAF, Resources(cpus=2)), one, [], [stated]) == (Resources(workers=1, cpus=2), ())
    assert admit((LEAF, Resources(cpus=2)), one, [(LEAF, Resources(workers=1, cpus=1))], [stated]) is None


def test_an_exclusive_step_runs_alone_on_any_node() -> None:
    assert admit((TIMED, Resources()), MIXED, [], [ON_GPU]) == (Resources(workers=1, cpus=1.0), ())
    assert admit((TIMED, Resources()), MIXED, [(LEAF, Resources(workers=1, cpus=1))], []) is None


def test_nodes_with_custom_resources_are_reserved_like_gpu_nodes() -> None:
    nodes = {"a": {"CPU": 1.0}, "b": {"CPU": 1.0, "spot": 1.0}}
    assert admit((MAP, Resources()), nodes, [], [(TRAIN, Resources(custom={"spot": 1}))]) == (
        Resources(workers=1, cpus=1.0),
        ("b",),
    )
