"""Trainings of all families that are stopped, killed or out of disk and continue with the bits of an undisturbed one."""

import json
import os
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file

import fewstep
from fewstep.config.network import NetworkConfig
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.dag.config import DagConfig
from fewstep.families.lattice.config import LatticeModelConfig
from fewstep.families.stepwise.config import StepwiseSearch
from models.bundle import weights
from models.training import checkpoint
from models.training.worker import TrainingWorker
from stages import align, lattice, system, train
from stages.artifacts import Links, System, Tables, Text, Tokens, Trained, Vocabulary
from stages.errors import ArtifactError, DataError, StageError, TransientError
from stages.train import TrainConfig, TrainInputs
from tests.stages.steps import context_in, metrics_of, results
from tests.stages.train.toy_training import NETWORK, RECIPE, Dying, Stopping, config_of, spoil


@pytest.mark.parametrize("after", [1, 6, 11, 19])
def test_a_stopped_and_continued_training_equals_an_uninterrupted_one_bit_for_bit(inputs, straight, tmp_path, after):
    with pytest.raises(TransientError, match=f"after update {after} is saved"):
        train.STAGE.run(inputs, config_of(), context_in(tmp_path, Stopping, after=after))
    assert results(tmp_path) == {}
    train.STAGE.run(inputs, config_of(), context_in(tmp_path, attempt="a2"))
    assert results(tmp_path) == results(straight)
    assert min(line["step"] for line in metrics_of(tmp_path) if line["step"] > after) <= after + 4


@pytest.mark.parametrize(("at", "seconds"), [(8, 0.0), (12, 0.0), (18, 0.0), (12, 1e9)])
def test_a_killed_and_repeated_training_equals_an_uninterrupted_one_bit_for_bit(inputs, straight, tmp_path, at, seconds):
    with pytest.raises(SystemError):
        train.STAGE.run(inputs, config_of(), context_in(tmp_path, Dying, at=at, checkpoint_seconds=seconds))
    train.STAGE.run(inputs, config_of(), context_in(tmp_path, attempt="a2"))
    assert results(tmp_path) == results(straight)


def test_a_training_that_is_killed_after_its_end_only_writes_the_results_again(inputs, straight, tmp_path):
    train.STAGE.run(inputs, config_of(), context_in(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    (tmp_path / "kept" / "3.safetensors").write_bytes(b"left over")
    train.STAGE.run(inputs, config_of(), context_in(tmp_path, attempt="a2"))
    assert results(tmp_path) == results(straight)
    assert not (tmp_path / "records" / "metrics.a2.jsonl").exists()


def test_a_checkpoint_of_another_training_is_refused(inputs, tmp_path):
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config_of(), context_in(tmp_path / "one", Stopping, after=3))
    (tmp_path / "one").rename(tmp_path / "other")
    with pytest.raises(ArtifactError, match=r"checkpoints/3: this checkpoint .*expected that of other, got that of one"):
        train.STAGE.run(inputs, config_of(), context_in(tmp_path / "other"))


def test_two_checkpoints_and_their_candidates_are_kept(inputs, tmp_path):
    recipe = {"updates": 30, "validate_every": 5, "average": "last", "num_averaged": 2}
    train.STAGE.run(inputs, config_of(**recipe), context_in(tmp_path, checkpoint_seconds=0.0))
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"29", "30", "candidates"}
    kept = {path.stem for path in (tmp_path / "checkpoints" / "candidates").iterdir()}
    assert kept == {"20", "25", "30"}
    assert {path.stem for path in (tmp_path / "kept").iterdir()} == {"25", "30"}


def test_a_checkpoint_that_is_not_finite_is_refused(inputs, tmp_path):
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config_of(), context_in(tmp_path, Stopping, after=3))
    spoil(tmp_path / "checkpoints" / "3" / "model.safetensors")
    with pytest.raises(ArtifactError, match=r"checkpoints/3: expected finite weights, got inf or NaN in target_embedding.*remove"):
        train.STAGE.run(inputs, config_of(), context_in(tmp_path, attempt="a2"))


def test_a_full_disk_leaves_the_checkpoint_before_it(inputs, straight, tmp_path, monkeypatch):
    saved, save_file = [], weights.save_file

    def filling(tensors, path, metadata):
        saved.append(path)
        if len(saved) > 5:
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        save_file(tensors, path, metadata)

    monkeypatch.setattr(weights, "save_file", filling)
    with pytest.raises(StageError, match=r"checkpoints/3: could not be written: No space left on device \(.* MiB free\)"):
        train.STAGE.run(inputs, config_of(), context_in(tmp_path, checkpoint_seconds=0.0))
    assert checkpoint.newest(tmp_path / "checkpoints").state["update"] == 2
    monkeypatch.undo()
    train.STAGE.run(inputs, config_of(), context_in(tmp_path, attempt="a2"))
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
    save = checkpoint.save
    checkpoint.save = lambda *args: (time.sleep(0.5), save(*args))  # a slow disk: nobody may end before the files are whole
    for attempt, after in (("a1", 8), ("a2", 0)):
        context = context_in(root / "run", Stopping, attempt=attempt, after=after, workers=Pair(rank, root / f"store-{attempt}"))
        try:
            train.STAGE.run(given, config_of(network=replace(NETWORK, dropout=0.0)), context)
        except TransientError:
            assert after == 8
            assert (root / "run" / "checkpoints" / "8").is_dir()


@pytest.mark.slow
def test_two_workers_stop_together_continue_and_equal_one_worker_up_to_rounding(inputs, tmp_path):
    (tmp_path / "inputs").symlink_to(inputs.vocabulary.path.parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(tmp_path)]
    workers = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    train.STAGE.run(inputs, config_of(network=replace(NETWORK, dropout=0.0)), context_in(tmp_path / "one"))
    one, two = (json.loads((tmp_path / name / "training.json").read_text()) for name in ("one", "run"))
    assert [v["loss"] for v in two["validations"]] == pytest.approx([v["loss"] for v in one["validations"]], rel=1e-4)
    assert not list((tmp_path / "run").rglob("*.tmp"))
    alone = context_in(tmp_path / "alone", num_shares=2)
    train.STAGE.run(inputs, config_of(network=replace(NETWORK, dropout=0.0)), alone)
    assert results(tmp_path / "alone") == results(tmp_path / "run")


def test_a_training_keeps_the_shares_of_its_first_attempt(inputs, tmp_path):
    train.STAGE.run(inputs, config_of(), context_in(tmp_path / "straight", num_shares=2))
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config_of(), context_in(tmp_path / "run", Stopping, after=8, num_shares=2))
    train.STAGE.run(inputs, config_of(), context_in(tmp_path / "run", attempt="a2", num_shares=3))
    assert results(tmp_path / "run") == results(tmp_path / "straight")
    train.STAGE.run(inputs, config_of(), context_in(tmp_path / "three", num_shares=3))
    assert results(tmp_path / "three") != results(tmp_path / "straight")


GRAPH = DagConfig(
    encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, dropout=0.1, max_positions=64, graph_factor=3.0
)


def test_a_stopped_and_continued_training_of_a_dag_is_reproducible(inputs, straight, tmp_path):
    """Train on summaries, whose length searches of this family do not limit."""
    config = TrainConfig(family="dag", network=GRAPH, training=replace(RECIPE, label_smoothing=0.0), task="summarization")
    train.STAGE.run(inputs, config, context_in(tmp_path / "straight"))
    stopping = context_in(tmp_path / "stopped", Stopping, after=9)
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config, stopping)
    train.STAGE.run(inputs, config, context_in(tmp_path / "stopped", attempt="a2"))
    assert results(tmp_path / "stopped") == results(tmp_path / "straight")
    report = json.loads((tmp_path / "straight" / "training.json").read_text())
    assert report["validations"][-1]["loss"] < report["validations"][0]["loss"]
    assert any("accuracy" in line for line in metrics_of(tmp_path / "straight"))


LATTICE = LatticeModelConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, dropout=0.1, max_positions=64)


@pytest.fixture(scope="module")
def tables(inputs, tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    (tokens,) = inputs.tokens
    align.STAGE.run(align.AlignInputs(tokens), align.AlignConfig(), context_in(root / "links"))
    counted = lattice.LatticeInputs(tokens, Links(root / "links", "links"), inputs.validation, inputs.vocabulary)
    lattice.STAGE.run(counted, lattice.LatticeConfig(), context_in(root / "tables"))
    return Tables(root / "tables", "tables")


def test_a_stopped_and_continued_training_of_a_lattice_scorer_is_reproducible(inputs, tables, tmp_path):
    """Segments are drawn from a generator that is seeded for each update: a stopped training draws the same."""
    given = replace(inputs, tables=tables)
    config = TrainConfig(family="lattice", network=replace(LATTICE, normalizer_penalty=0.01), training=RECIPE)
    train.STAGE.run(given, config, context_in(tmp_path / "straight"))
    with pytest.raises(TransientError):
        train.STAGE.run(given, config, context_in(tmp_path / "stopped", Stopping, after=9))
    train.STAGE.run(given, config, context_in(tmp_path / "stopped", attempt="a2"))
    assert results(tmp_path / "stopped") == results(tmp_path / "straight")
    report = json.loads((tmp_path / "straight" / "training.json").read_text())
    assert report["validations"][-1]["loss"] < report["validations"][0]["loss"]
    assert all(0 <= validation["bleu"] <= 100 for validation in report["validations"])
    assert report["links"] == json.loads((tables.path / "lattice.json").read_text())["links"]
    assert any("log_z_squared" in line for line in metrics_of(tmp_path / "straight"))


def test_tables_of_another_vocabulary_are_refused(inputs, tables, tmp_path):
    (tmp_path / "words").mkdir()
    for side in ("source", "target"):
        (tmp_path / "words" / f"{side}.spm").write_bytes(
            (inputs.vocabulary.path / f"{side}.spm").read_bytes() + b"\xc0\x3e\x01"
        )  # an unknown field
    (tmp_path / "words" / "vocabulary.json").write_bytes((inputs.vocabulary.path / "vocabulary.json").read_bytes())
    given = replace(inputs, tables=tables, vocabulary=Vocabulary(tmp_path / "words", "words"))
    with pytest.raises(ArtifactError, match="expected candidate tables of the vocabulary"):
        train.STAGE.run(given, TrainConfig(family="lattice", network=LATTICE, training=RECIPE), context_in(tmp_path / "run"))


def test_a_training_starts_from_the_weights_that_fit(inputs, straight, tmp_path):
    given = load_file(straight / "model.safetensors")
    recipe = replace(RECIPE, updates=1, learning_rate=1e-12)
    for family, network in (("dag", GRAPH), ("stepwise", replace(NETWORK, feed_forward=48))):
        config = TrainConfig(family=family, network=network, training=recipe)
        train.STAGE.run(replace(inputs, initial=Trained(straight, "straight")), config, context_in(tmp_path / family))
        found = load_file(tmp_path / family / "model.safetensors")
        same = {name for name in found if name in given and found[name].shape == given[name].shape}
        assert any(name.startswith("encoder") for name in same)
        for name in same:
            torch.testing.assert_close(found[name], given[name], atol=1e-6, rtol=0)
        taken = sum(given[name].numel() for name in same)
        assert json.loads((tmp_path / family / "training.json").read_text())["weights_taken"] == taken
    wide = replace(NETWORK, width=18, feed_forward=20, heads=3)
    with pytest.raises(DataError, match="expected weights of the names and shapes of this network's, got none"):
        train.STAGE.run(
            replace(inputs, initial=Trained(straight, "straight")),
            TrainConfig(family="stepwise", network=wide, training=recipe),
            context_in(tmp_path / "wide"),
        )
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(DataError, match="expected weights in safetensors format"):
        train.STAGE.run(replace(inputs, initial=Trained(tmp_path / "damaged", "damaged")), config_of(), context_in(tmp_path / "no"))


@pytest.mark.parametrize("train_verifier", [False, True])
def test_heads_are_chosen_by_the_tokens_that_a_pass_of_their_verifier_writes(inputs, straight, tmp_path, train_verifier):
    """The candidates that are averaged are those with the most tokens a pass, and the system verifies with the right network."""
    trained = Trained(straight, "trained")
    greedy = {"greedy": StepwiseSearch()}
    described = {"source_language": "en", "target_language": "de"}
    system.STAGE.run(
        system.SystemInputs(trained, inputs.vocabulary),
        system.SystemConfig(name="verifier", family="stepwise", searches=greedy, **described),
        context_in(tmp_path / "verifier"),
    )
    verifier = System(tmp_path / "verifier", "verifier")
    sizes = {field.name: getattr(NETWORK, field.name) for field in fields(NetworkConfig)}
    network = AggressiveConfig(**sizes, drafting="medusa", encoder="shared", draft_width=2, train_verifier=train_verifier)
    recipe = replace(RECIPE, validation_metric="tokens_per_pass")
    given = replace(inputs, initial=trained, verifier=verifier)
    train.STAGE.run(given, TrainConfig(family="aggressive", network=network, training=recipe), context_in(tmp_path / "heads"))
    report = json.loads((tmp_path / "heads" / "training.json").read_text())
    passes = {found["update"]: found["tokens_per_pass"] for found in report["validations"]}
    assert report["averaged"] == sorted(sorted(passes, key=lambda update: (passes[update], update))[-2:])
    assert all(0.5 < value <= 3 for value in passes.values()), "a pass writes up to two drafts and a token of the verifier"
    searches = {
        "gad": AggressiveSearch(),
        "gad-tree_nodes4": AggressiveSearch(tree_nodes=4),
        "greedy": AggressiveSearch(strategy="greedy"),
    }
    system.STAGE.run(
        system.SystemInputs(Trained(tmp_path / "heads", "heads"), inputs.vocabulary, companions={"verifier": verifier}),
        system.SystemConfig(
            name="heads", family="aggressive", searches=searches, averaging=replace(recipe, num_averaged=1), **described
        ),
        context_in(tmp_path / "system"),
    )
    texts = ["one two three", "five six seven one", "four"]
    loaded = fewstep.load(tmp_path / "system")
    outputs = {label: loaded.translate(texts, search=label) for label in searches}
    assert outputs["gad"] == outputs["gad-tree_nodes4"] == outputs["greedy"]
    assert (outputs["gad"] == fewstep.load(verifier.path).translate(texts)) != train_verifier


if __name__ == "__main__":
    work_as_one_of_two(Path(sys.argv[1]), int(sys.argv[2]))
