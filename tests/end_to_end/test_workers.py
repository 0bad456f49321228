"""Data-parallel training on Ray Train: two workers reach the losses of one, and one of them may die."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.end_to_end.runs import ALONE, Watched, end

pytestmark = [pytest.mark.slow, pytest.mark.ray]

UNTIL = ("--until", "train:teacher", "--set", "defaults.dropout=0", "--set", "cluster.resources.train.cpus=1")
TWO = (*UNTIL, "--set", "cluster.resources.train.workers=2")


def losses(run: Watched) -> dict[int, float]:
    """Return the validation loss by update."""
    report = json.loads(next((run.store / "train").glob("*/training.json")).read_text())
    return {validation["update"]: validation["loss"] for validation in report["validations"]}


def model(run: Watched) -> bytes:
    return next((run.store / "train").glob("*/model.safetensors")).read_bytes()


@pytest.mark.exhaustive
def test_two_workers_learn_what_one_learns_and_survive_the_death_of_one(tmp_path: Path) -> None:
    alone, together, disturbed = (
        Watched(tmp_path / "1", *ALONE, *UNTIL),
        Watched(tmp_path / "2", *TWO),
        Watched(tmp_path / "3", *TWO),
    )
    alone.finish()
    together.finish()
    assert len(losses(together)) > 1
    assert losses(together) == pytest.approx(losses(alone), rel=0.03)

    process = disturbed.start()
    try:
        disturbed.wait(lambda: disturbed.progress("train:teacher") >= 60, process)
        _, *workers = dict.fromkeys(int(pid) for pid in re.findall(r" \[(\d+)\] ", disturbed.log("train:teacher")))
        assert len(workers) == 2
        os.kill(workers[1], signal.SIGKILL)
        disturbed.ends(process)
    finally:
        end(process)
    assert [e["step"] for e in disturbed.events("step_retried")] == ["train:teacher"]
    assert model(disturbed) == model(together)
