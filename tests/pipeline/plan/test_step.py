"""Tests of plans and their builder."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.plan.step import Builder, Plan
from pipeline.store.artifacts import Store
from stages.errors import DataError
from tests.pipeline.run.toys import STAGE, ToyConfig, ToyInputs, diamond


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return diamond(Store(tmp_path))


def names(plan: Plan) -> list[str]:
    return [step.name for step in plan.steps]


def test_until_selects_a_step_or_stage_and_its_inputs(plan: Plan) -> None:
    assert names(plan.until("toy:c")) == ["toy:a", "toy:c"]
    assert plan.until("toy") == plan
    assert plan.until(None) == plan
    with pytest.raises(DataError, match="expected a step or a stage of the plan"):
        plan.until("toy:x")


def test_needed_steps_are_the_last_ones_and_the_inputs_of_missing_ones(plan: Plan) -> None:
    def needed(*present: str) -> list[str]:
        return [step.name for step in plan.needed(lambda step: step.name in present)]

    assert needed() == ["toy:a", "toy:b", "toy:c", "toy:d"]
    assert needed("toy:d") == ["toy:d"]
    assert needed("toy:b", "toy:c") == ["toy:b", "toy:c", "toy:d"]
    assert needed("toy:b") == ["toy:a", "toy:b", "toy:c", "toy:d"]


def test_products_are_needed_although_later_steps_are_present(plan: Plan) -> None:
    first, *others = plan.steps
    plan = Plan((replace(first, stage=replace(STAGE, product=True)), *others))
    assert [step.name for step in plan.needed(lambda step: step.name == "toy:d")] == ["toy:a", "toy:d"]


def test_equal_steps_are_planned_once(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    first = builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    assert builder.add(STAGE, "b", ToyInputs(), ToyConfig("a")) == first
    assert names(builder.plan()) == ["toy:a"]


def test_two_different_steps_with_one_name_are_refused(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    with pytest.raises(AssertionError, match="expected different names for different steps, got toy:a twice"):
        builder.add(STAGE, "a", ToyInputs(), ToyConfig("b"))
