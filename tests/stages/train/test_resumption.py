"""Trainings that are stopped, killed or out of disk, and continued: with the bits of an undisturbed one."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist
from safetensors import SafetensorError

from models.bundle import weights
from models.training import checkpoint
from models.training.worker import TrainingWorker
from stages import train
from stages.artifacts import Text, Tokens, Vocabulary
from stages.errors import ArtifactError, StageError, TransientError
from stages.train import TrainInputs
from tests.stages.train.toy_training import NETWORK, Dying, Stopping, config_of, make_work, metrics, results, spoil


@pytest.mark.parametrize("after", [1, 6, 11, 19])
def test_a_stopped_and_continued_training_equals_an_uninterrupted_one_bit_for_bit(inputs, straight, tmp_path, after):
    with pytest.raises(TransientError, match=f"after update {after} is saved"):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, Stopping, after=after))
    assert results(tmp_path) == {}
    train.STAGE.run(inputs, config_of(), make_work(tmp_path, attempt="a2"))
    assert results(tmp_path) == results(straight)
    assert min(line["step"] for line in metrics(tmp_path) if line["step"] > after) <= after + 4


@pytest.mark.parametrize(("at", "seconds"), [(8, 0.0), (12, 0.0), (18, 0.0), (12, 1e9)])
def test_a_killed_and_repeated_training_equals_an_uninterrupted_one_bit_for_bit(inputs, straight, tmp_path, at, seconds):
    with pytest.raises(SystemError):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, Dying, at=at, checkpoint_seconds=seconds))
    train.STAGE.run(inputs, config_of(), make_work(tmp_path, attempt="a2"))
    assert results(tmp_path) == results(straight)


def test_a_training_that_is_killed_after_its_end_only_writes_the_results_again(inputs, straight, tmp_path):
    train.STAGE.run(inputs, config_of(), make_work(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    (tmp_path / "kept" / "3.safetensors").write_bytes(b"left over")
    train.STAGE.run(inputs, config_of(), make_work(tmp_path, attempt="a2"))
    assert results(tmp_path) == results(straight)
    assert not (tmp_path / "records" / "metrics.a2.jsonl").exists()


def test_a_checkpoint_of_another_training_is_refused(inputs, tmp_path):
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path / "one", Stopping, after=3))
    (tmp_path / "one").rename(tmp_path / "other")
    with pytest.raises(ArtifactError, match=r"checkpoints/3: this checkpoint .*expected that of other, got that of one"):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path / "other"))


def test_two_checkpoints_and_their_candidates_are_kept(inputs, tmp_path):
    recipe = {"updates": 30, "validate_every": 5, "average": "last", "num_averaged": 2}
    train.STAGE.run(inputs, config_of(**recipe), make_work(tmp_path, checkpoint_seconds=0.0))
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"29", "30", "candidates"}
    kept = {path.stem for path in (tmp_path / "checkpoints" / "candidates").iterdir()}
    assert kept == {"20", "25", "30"}
    assert {path.stem for path in (tmp_path / "kept").iterdir()} == {"25", "30"}


def test_a_checkpoint_that_is_not_finite_is_refused(inputs, tmp_path):
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, Stopping, after=3))
    spoil(tmp_path / "checkpoints" / "3" / "model.safetensors")
    with pytest.raises(ArtifactError, match=r"checkpoints/3: expected finite weights, got inf or NaN in target_embedding.*remove"):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, attempt="a2"))


def test_a_full_disk_leaves_the_checkpoint_before_it(inputs, straight, tmp_path, monkeypatch):
    saved, save_file = [], weights.save_file

    def filling(tensors, path, metadata):
        saved.append(path)
        if len(saved) > 5:
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        save_file(tensors, path, metadata)

    monkeypatch.setattr(weights, "save_file", filling)
    with pytest.raises(StageError, match=r"checkpoints/3: could not be written: No space left on device \(.* MiB free\)"):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, checkpoint_seconds=0.0))
    assert checkpoint.newest(tmp_path / "checkpoints").state["update"] == 2
    monkeypatch.undo()
    train.STAGE.run(inputs, config_of(), make_work(tmp_path, attempt="a2"))
    assert results(tmp_path) == results(straight)


class Pair:
    """Two workers, each a process of its own."""

    def __init__(self, rank, store):
        self.rank, self.store = rank, store

    def train(self, loop, argument):
        dist.init_process_group("gloo", init_method=f"file://{self.store}", rank=self.rank, world_size=2)
        try:
            loop(argument, TrainingWorker(rank=self.rank, world_size=2))
        finally:
            dist.destroy_process_group()


def work_as_one_of_two(root, rank):
    """This file is also the program of each."""
    place = root / "inputs"
    given = TrainInputs(
        (Tokens(place / "tokens", "tokens"),),
        Tokens(place / "validation", "validation"),
        Text(place / "held-out", "held-out"),
        Vocabulary(place / "vocabulary", "vocabulary"),
    )
    for attempt, after in (("a1", 8), ("a2", 0)):
        context = make_work(root / "run", Stopping, attempt=attempt, after=after, workers=Pair(rank, root / f"store-{attempt}"))
        try:
            train.STAGE.run(given, config_of(network=replace(NETWORK, dropout=0.0)), context)
        except TransientError:
            assert after == 8


@pytest.mark.slow
def test_two_workers_stop_together_continue_and_equal_one_worker_up_to_rounding(inputs, tmp_path):
    (tmp_path / "inputs").symlink_to(inputs.vocabulary.path.parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(tmp_path)]
    workers = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    train.STAGE.run(inputs, config_of(network=replace(NETWORK, dropout=0.0)), make_work(tmp_path / "one"))
    one, two = (json.loads((tmp_path / name / "training.json").read_text()) for name in ("one", "run"))
    assert [v["loss"] for v in two["validations"]] == pytest.approx([v["loss"] for v in one["validations"]], rel=1e-4)
    assert not list((tmp_path / "run").rglob("*.tmp"))
    alone = make_work(tmp_path / "alone", num_shares=2)
    train.STAGE.run(inputs, config_of(network=replace(NETWORK, dropout=0.0)), alone)
    assert results(tmp_path / "alone") == results(tmp_path / "run")


def test_a_training_keeps_the_shares_of_its_first_attempt(inputs, tmp_path):
    train.STAGE.run(inputs, config_of(), make_work(tmp_path / "straight", num_shares=2))
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path / "run", Stopping, after=8, num_shares=2))
    train.STAGE.run(inputs, config_of(), make_work(tmp_path / "run", attempt="a2", num_shares=3))
    assert results(tmp_path / "run") == results(tmp_path / "straight")
    train.STAGE.run(inputs, config_of(), make_work(tmp_path / "three", num_shares=3))
    assert results(tmp_path / "three") != results(tmp_path / "straight")


if __name__ == "__main__":
    work_as_one_of_two(Path(sys.argv[1]), int(sys.argv[2]))
