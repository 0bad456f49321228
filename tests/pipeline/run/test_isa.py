"""Manifests, MLflow and `run` name the instruction-set levels with which steps were computed."""

import sys
from pathlib import Path

import pytest

from fewstep.native import fewstep_native
from pipeline.commands.run import isa_levels
from pipeline.plan.step import Plan
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from stages.shared.environment import environment
from stages.workers import isa
from tests.pipeline.run.toys import diamond, go


def levels(plan: Plan, store: Store) -> dict[str, list[str]]:
    manifests = {step.name: store.manifest(step.directory) for step in plan.steps}
    return {name: manifest.environment["isa"] for name, manifest in manifests.items() if manifest}


def test_a_manifest_names_the_level(store: Store) -> None:
    plan = diamond(store)
    go(plan, store)
    assert levels(plan, store) == {f"toy:{name}": [fewstep_native.LEVEL] for name in "abcd"}
    assert isa_levels(plan, store) == {fewstep_native.LEVEL: 4}
    assert environment("cpu", 1)["isa"] == fewstep_native.LEVEL


def test_processors_of_several_levels_are_all_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process on another node has worked for the first step; another node continues the run."""
    plan = diamond(store)
    first = partial_directory(plan.steps[0].directory, "earlier") / isa.ISA
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v2")
    isa.record_isa_level(first)
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v3")
    report = go(plan.until("toy:b"), store)
    log = report.run.log("toy:a", report.run.state().steps["toy:a"].attempts[0]).read_text()
    assert "computed on processors of different levels, x86-64-v2, x86-64-v3" in log
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v4")
    go(plan, store)
    expected = {"toy:a": ["x86-64-v2", "x86-64-v3"], "toy:b": ["x86-64-v3"], "toy:c": ["x86-64-v4"], "toy:d": ["x86-64-v4"]}
    assert levels(plan, store) == expected
    assert isa_levels(plan, store) == {"x86-64-v2": 1, "x86-64-v3": 2, "x86-64-v4": 2}


def test_the_level_is_no_part_of_a_fingerprint(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v2")
    go(diamond(store), store)
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v3")
    assert go(diamond(store), store).executed == ()


def test_a_process_without_the_extension_leaves_no_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fewstep.native", None)
    assert isa.isa_level() == "none"
    isa.record_isa_level(tmp_path / "isa")
    assert isa.recorded_isa_levels(tmp_path / "isa") == []
