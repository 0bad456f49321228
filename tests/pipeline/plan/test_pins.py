"""Tests of pinned artifacts in plans."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from pipeline.store.manifest import Manifest
from stages.errors import DataError
from tests.pipeline.plan.toy_plans import CONFIG, fingerprint, needs, planned


def made(tmp_path: Path, stage: str, **inputs: str) -> Path:
    """Write a finished artifact into another store and return its directory."""
    store = Store(tmp_path / "earlier")
    directory = store.directory(stage, "e" * 32)
    partial_directory(directory, "1").mkdir(parents=True)
    facts: dict[str, Any] = {
        "environment": {},
        "code_digest": "",
        "git_revision": "",
        "run_id": "",
        "attempt": "1",
        "seconds": 0.0,
        "finished": 0.0,
    }
    step: dict[str, Any] = {"stage": stage, "version": 1, "step": f"{stage}:x", "fingerprint": "e" * 32, "config": {}}
    store.commit(directory, Manifest(**step, inputs=inputs, **facts))
    return directory


def test_a_pinned_language_model_is_not_estimated(tmp_path: Path) -> None:
    plan = planned(tmp_path, ngram={"from": str(made(tmp_path, "ngram"))})
    assert not [step for step in plan.steps if step.stage.name == "ngram"]
    with pytest.raises(DataError, match=r"ngram.from: expected a model over this run's vocabulary .*got one over ffffffff"):
        planned(tmp_path, ngram={"from": str(made(tmp_path / "other", "ngram", vocabulary="f" * 32))})


def test_a_pinned_training_must_have_the_runs_vocabulary(tmp_path: Path) -> None:
    vocabulary = fingerprint(planned(tmp_path), "vocabulary:joint")
    plan = planned(tmp_path, teacher={"from": str(made(tmp_path, "train", vocabulary=vocabulary))})
    assert "train:teacher" not in [step.name for step in plan.steps]
    assert needs(plan, "system:teacher") == {"vocabulary:joint"}
    with pytest.raises(DataError, match=r"teacher\.from: expected a network trained on this run's vocabulary"):
        planned(tmp_path, teacher={"from": str(tmp_path / "earlier/train" / ("e" * 32))}, vocabulary={"size": 120})


def test_a_pinned_teacher_must_be_a_training_a_system_or_an_import(tmp_path: Path) -> None:
    plan = planned(tmp_path, teacher={"from": str(made(tmp_path, "system"))})
    assert needs(plan, "distill:train") == {"corpus:train"}
    expected = r"teacher\.from: expected an artifact of stage system, train or import_network, got one of stage encode"
    with pytest.raises(DataError, match=expected):
        planned(tmp_path, teacher={"from": str(made(tmp_path, "encode"))})


def test_pinned_distilled_text_must_belong_to_the_runs_training_text(tmp_path: Path) -> None:
    """Otherwise it could contain sentences of a test set that was added later."""
    text = fingerprint(planned(tmp_path), "corpus:train")
    pin = {"from": str(made(tmp_path, "distill", text=text))}
    plan = planned(tmp_path, distillation=pin)
    assert "distill:train" not in [step.name for step in plan.steps]
    more = {**CONFIG["corpus"], "test": {"toy": {"embedded": 5}, "more": {"embedded": 9}}}  # type: ignore[dict-item]
    with pytest.raises(DataError, match=r"distillation\.from: expected outputs for this run's training text"):
        planned(tmp_path, distillation=pin, corpus=more, benchmark={"test": "toy"})
