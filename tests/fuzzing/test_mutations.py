"""Mutated files of systems and stores, changed numbers of systems, and changed arguments of the extension end in an answer or a
refusal: no traceback, no signal, no hang, and no gibibyte of memory for a small system."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.fewstep.systems import write_systems
from tests.fuzzing.__main__ import CALLS, FINDINGS, trials
from tests.fuzzing.calls import calls
from tests.fuzzing.configs import ConfigTarget
from tests.fuzzing.mutations import mutate
from tests.fuzzing.numbers import at, places, replaced
from tests.fuzzing.store import write_store
from tests.fuzzing.trials import LITTLE_MEMORY, Outcome, run_trials

FEW = 60
MANY = 500
SPREAD = range(0, 15_000, 150)
"""Some of the places and numbers, which are numbered one after the other."""
MORE = range(7, 20_000, 15)
"""More of them, and several at a time. `python -m tests.fuzzing numbers --trials 200000` passes through all."""


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_systems(tmp_path_factory.mktemp("systems"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("store"))


def check(directory: Path, seeds: range, *, numbers: bool = False) -> None:
    check_outcomes(list(trials(directory, seeds, numbers=numbers)))


def check_outcomes(outcomes: list[Outcome]) -> None:
    findings = [f"seed {one.seed}: {one.kind}: {one.text}" for one in outcomes if one.kind in FINDINGS]
    assert not findings, "\n".join(findings[:3])
    counts = Counter(one.kind for one in outcomes)
    assert set(counts) == {"answered", "refused"}, counts


@pytest.mark.parametrize("name", ["autoregressive", "dag", "lattice", "aggressive", "ctc", "cmlm"])
def test_a_mutated_system_translates_or_is_refused(systems: dict[str, Path], name: str) -> None:
    check(systems[name], range(FEW))


def test_a_mutated_store_is_read_or_refused(store: Path) -> None:
    check(store, range(200))


@pytest.mark.parametrize("name", ["autoregressive", "dag", "lattice", "aggressive", "ctc", "cmlm"])
def test_a_number_at_a_border_is_used_or_refused(systems: dict[str, Path], name: str) -> None:
    check(systems[name], SPREAD, numbers=True)


def test_a_changed_call_is_answered_or_refused() -> None:
    check(CALLS, range(0, 120_000, 80))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    ["autoregressive", "interleaved-sa", "dag", "dag-predicted", "lattice", "aggressive", "head", "medusa", "glat", "ctc", "cmlm"],
)
def test_more_numbers_at_borders_are_used_or_refused(systems: dict[str, Path], name: str) -> None:
    check(systems[name], MORE, numbers=True)


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_number_of_a_config_at_a_border_is_planned_or_refused(tmp_path: Path, step: int) -> None:
    target = partial(ConfigTarget, tmp_path)
    check_outcomes(list(run_trials(target, range(0, len(target().changes), step), LITTLE_MEMORY)))


@pytest.mark.exhaustive
def test_more_changed_calls_are_answered_or_refused() -> None:
    check(CALLS, range(7, 120_000, 8))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["autoregressive", "interleaved-sa", "ensemble", "dag", "lattice", "aggressive", "head", "glat", "ctc", "cmlm"]
)
def test_many_mutated_systems_translate_or_are_refused(systems: dict[str, Path], name: str) -> None:
    check(systems[name], range(FEW, FEW + MANY))


@pytest.mark.exhaustive
def test_many_mutated_stores_are_read_or_refused(store: Path) -> None:
    check(store, range(200, 200 + 2 * MANY))


def test_mutations_are_determined_by_their_seed_and_change_something() -> None:
    content, other = b'{"a": [1, {"b": 2.5}], "c": "text"}', bytes(range(256)) * 40
    for origin in (content, other):
        first = [mutate(origin, other, seed) for seed in range(300)]
        assert first == [mutate(origin, other, seed) for seed in range(300)]
        assert sum(changed != origin for _, changed in first) > 250
        assert {kind for kind, _ in first} >= {"flip", "numbers", "cut", "splice", "repeat", "insert"}
    assert "edit" in {kind for kind, _ in (mutate(content, other, seed) for seed in range(50))}


def test_arrays_whose_values_repeat_are_not_copied(tmp_path: Path) -> None:
    """Gigabytes may be claimed by an array of one value. Arrays of four dimensions are read where they lie."""
    for call in calls(tmp_path):
        for path in places(call.arguments):
            array = at(call.arguments, path)
            if isinstance(array, np.ndarray) and array.ndim in (1, 2, 3):
                repeated = as_strided(np.zeros(1, array.dtype), (1 << 23, *[1] * (array.ndim - 1)), (0,) * array.ndim)
                with pytest.raises(TypeError, match="incompatible function arguments"):
                    call.function(**replaced(call.arguments, path, repeated))
