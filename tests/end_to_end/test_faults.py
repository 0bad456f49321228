"""Faults from outside (a full disk, an altered artifact, a network that sees the future) lose no work and are reported."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from models.common.layers.attention import Memory
from models.stepwise.model import StepwiseModel
from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from tests.end_to_end.runs import ALONE, ROOT, Watched
from tests.shared import rest_exhaustive

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    run = Watched(tmp_path_factory.mktemp("undisturbed") / "store", *ALONE)
    run.finish()
    return run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"this user may not mount a small disk: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def run_again(run: Watched) -> subprocess.CompletedProcess[str]:
    return subprocess.run(run.command(), cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("rate", rest_exhaustive(["1e300", "1e30"], ["1e30"]))
def test_a_learning_rate_that_overflows_fails_and_leaves_no_network(tmp_path: Path, rate: str) -> None:
    options = ("--set", f"defaults.training.learning_rate={rate}", "--until", "train:teacher")
    run = Watched(tmp_path / "store", *ALONE, *options)
    failed = run_again(run)
    assert failed.returncode == 1
    assert re.search(
        r"train:teacher failed: training: update [1-6]: (weights|loss): expected .*training.learning_rate", failed.stderr
    )
    assert "Traceback" not in failed.stderr
    assert "train:teacher" not in {event["step"] for event in run.events("step_done")}
    assert not list((tmp_path / "store" / "train").glob("*/model.safetensors"))


def test_full_disk_loses_nothing(undisturbed: Watched, small_disk: Path) -> None:
    run = Watched(small_disk / "store", *ALONE, "--until", "encode:distilled")
    failed = run_again(run)
    assert failed.returncode == 1
    assert "could not be written" in failed.stderr
    assert "free some space" in failed.stderr
    assert "Traceback" not in failed.stderr
    subprocess.run(["mount", "-o", "remount,size=300m", str(small_disk)], check=True)
    made = {e["step"] for e in run.events("step_done")}
    assert run_again(run).returncode == 0
    assert run.agrees_with(undisturbed)
    assert {step: run.started(step) for step in made} == dict.fromkeys(made, 1)


@pytest.mark.exhaustive
def test_truncated_artifact_is_named_and_made_again(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *ALONE)
    shutil.copytree(undisturbed.store, run.store, symlinks=True)
    model = next((run.store / "system").glob("*/model.safetensors"))
    os.truncate(model, 100)
    failed = run_again(run)
    assert failed.returncode == 1
    assert f"{model}: expected" in failed.stderr
    assert f"remove {model.parent} and repeat the run command" in failed.stderr
    shutil.rmtree(model.parent)
    assert run_again(run).returncode == 0
    assert run.files() == undisturbed.files()


@pytest.mark.exhaustive
def test_a_network_that_sees_the_future_fails_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo checks its own BLEU: training without the causal mask learns to copy the next token, and cannot translate."""

    def unmasked(self: StepwiseModel, flat: torch.Tensor, memories: list[Memory]) -> torch.Tensor:
        inputs = self.dropout(self.embed_slots(flat[:, :-1], self.slot_codes(flat.size(1))))
        states: torch.Tensor = self.decoder(inputs, memories, None, causal=False)
        return states

    monkeypatch.setattr(StepwiseModel, "hidden", unmasked)
    settings = [f"store.path={tmp_path}", "tracking.enabled=false", "benchmark.enabled=false", "evaluation.baseline=autoregressive"]
    config = load_config(ROOT / "configs/demo.yaml", settings)
    store = Store(config.store.path)
    plan = build_plan(config, store).until("score:autoregressive/greedy:demo")
    assert execute.run(config, plan, store, config_file="demo.yaml", in_process=True).failed == {}
    scores = next((store.root / "score").glob("*/scores.json")).read_text()
    assert json.loads(scores)["bleu"]["score"] < config.evaluation.min_bleu / 2
