from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.admission import held, minus, settle, total
from stages.errors import StageError
from stages.stage import Artifact, Resources, Stage, Work


def nothing(inputs: Any, config: Any, work: Work) -> None:
    Path(work.directory / "x").touch()


LEAF = Stage("leaf", 1, nothing, Artifact)
MAP = Stage("map", 1, nothing, Artifact, distributes=True)
TRAIN = Stage("train", 1, nothing, Artifact, distributes=True, trains=True)
TIMED = Stage("timed", 1, nothing, Artifact, exclusive=True)
TWO = [{"CPU": 2.0, "GPU": 0.0}]


def test_defaults() -> None:
    assert settle(LEAF, Resources(), TWO, TWO[0]) == Resources(workers=1, cpus=1.0)
    assert settle(MAP, Resources(), TWO, TWO[0]) == Resources(workers=2, cpus=1.0)
    assert settle(TRAIN, Resources(), TWO, TWO[0]) == Resources(workers=1, cpus=2.0)
    assert settle(TRAIN, Resources(workers=2), TWO, TWO[0]) == Resources(workers=2, cpus=1.0)


def test_a_map_takes_what_is_free_and_a_training_waits_for_all_it_asks() -> None:
    one_left = {"CPU": 1.0, "GPU": 0.0}
    assert settle(MAP, Resources(), TWO, one_left) == Resources(workers=1, cpus=1.0)
    assert settle(TRAIN, Resources(), TWO, one_left) is None
    assert settle(TRAIN, Resources(cpus=1), TWO, one_left) == Resources(workers=1, cpus=1)
    assert settle(LEAF, Resources(), TWO, {"CPU": 0.0}) is None


def test_a_timing_runs_alone() -> None:
    assert settle(TIMED, Resources(), TWO, {"CPU": 1.0, "GPU": 0.0}) is None
    assert settle(TIMED, Resources(), TWO, {"CPU": 2.0, "GPU": 0.0}) is not None


TOO_MUCH = [
    Resources(cpus=4),
    Resources(workers=3, cpus=1),
    Resources(gpus=1),
    Resources(custom={"spot": 1}),
    Resources(memory_gib=1),
]


@pytest.mark.parametrize("asked", TOO_MUCH)
def test_what_can_never_fit_fails_at_once(asked: Resources) -> None:
    with pytest.raises(StageError, match=r"cluster\.resources\.train: asks for .* the machines have 2 CPU"):
        settle(TRAIN, asked, TWO, TWO[0])


def test_a_worker_does_not_spread_over_nodes() -> None:
    nodes = [{"CPU": 2.0}, {"CPU": 2.0}]
    with pytest.raises(StageError):
        settle(TRAIN, Resources(cpus=3), nodes, total(nodes))
    assert settle(TRAIN, Resources(workers=2, cpus=2), nodes, total(nodes)) is not None


def test_fractions_share_a_gpu() -> None:
    nodes = [{"CPU": 8.0, "GPU": 1.0}]
    assert settle(MAP, Resources(gpus=0.25), nodes, nodes[0]) == Resources(workers=4, cpus=1.0, gpus=0.25)


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 8))
def test_what_is_granted_fits_what_is_free(cpus: int, size: int, taken: int) -> None:
    nodes = [{"CPU": float(size)}]
    free = {"CPU": float(max(0, size - taken))}
    try:
        granted = settle(MAP, Resources(cpus=cpus), nodes, free)
    except StageError:
        assert cpus > size
        return
    if granted is None:
        assert free["CPU"] < cpus
    else:
        assert minus(free, held(granted))["CPU"] >= 0
