"""The train stage on a toy language: its results, stopping and continuing, keeping candidates, and bad input."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
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
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from models.bundle import weights
from models.bundle.directory import load_model
from models.family import family_named
from models.stepwise.decode import StepwiseDecoder
from models.training import checkpoint
from models.training.config import TrainingConfig
from models.training.precision import has_bf16
from models.training.worker import TrainingWorker
from stages import align, encode, lattice, system, train, vocabulary
from stages.artifacts import Links, System, Tables, Text, Tokens, Trained, Vocabulary
from stages.context import StepContext
from stages.errors import ArtifactError, DataError, StageError, TransientError
from stages.shards import read_shards, write_shards
from stages.train import TrainConfig, TrainInputs
from stages.train.loop import with_precision
from stages.workers import LocalWorkers, Resources

NETWORK = StepwiseConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, dropout=0.1, max_positions=64)
RECIPE = TrainingConfig(
    updates=20,
    batch_tokens=120,
    learning_rate=0.01,
    warmup_updates=5,
    log_every=4,
    validate_every=6,
    validation_sentences=10,
    num_averaged=2,
)


def make_work(directory, kind=StepContext, **values):
    directory.mkdir(parents=True, exist_ok=True)
    defaults = {"attempt": "a1", "workers": LocalWorkers(), "resources": Resources(workers=1, cpus=1)}
    return kind(directory=directory, shard_cache=directory / "cache", **{**defaults, **values})


def sentence(k, words, length):
    return " ".join(words[(k * 7 + j * j * (k % 5 + 1)) % len(words)] for j in range(length))


def make_text(directory, count, offset=0):
    english = ["one", "two", "three", "four", "five", "six", "seven"]
    german = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben"]
    lengths = [k % 6 + 1 for k in range(count)]
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "source": [sentence(k + offset, english, n) for k, n in enumerate(lengths)],
            "target": [sentence(k + offset, german, n) for k, n in enumerate(lengths)],
        }
    )
    write_shards([table], directory, 32, make_work(directory))
    return Text(directory, directory.name)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    root = tmp_path_factory.mktemp("inputs")
    text, held_out = make_text(root / "text", 150), make_text(root / "held-out", 20, offset=1000)
    vocabulary.STAGE.run(vocabulary.VocabularyInputs(text), vocabulary.VocabularyConfig(size=38), make_work(root / "vocabulary"))
    pieces = Vocabulary(root / "vocabulary", "vocabulary")
    for name, part in (("tokens", text), ("validation", held_out)):
        encode.STAGE.run(encode.EncodeInputs(part, pieces), encode.EncodeConfig(), make_work(root / name))
    tokens = (Tokens(root / "tokens", "tokens"),)
    return TrainInputs(tokens, Tokens(root / "validation", "validation"), held_out, pieces)


def config_of(network=NETWORK, **recipe):
    return TrainConfig(family="stepwise", network=network, training=replace(RECIPE, **recipe))


def results(directory):
    """Return every result file with its bytes."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.relative_to(directory).parts[0] not in ("records", "checkpoints")
    }


def metrics(directory):
    return [json.loads(line) for path in sorted((directory / "records").glob("metrics.*")) for line in path.open()]


@pytest.fixture(scope="module")
def straight(inputs, tmp_path_factory):
    """Run an undisturbed training."""
    directory = tmp_path_factory.mktemp("straight")
    train.STAGE.run(inputs, config_of(), make_work(directory))
    return directory


def test_results(straight):
    report = json.loads((straight / "training.json").read_text())
    assert report["updates"] == 20
    assert [validation["update"] for validation in report["validations"]] == [6, 12, 18, 20]
    assert report["validations"][-1]["loss"] < report["validations"][0]["loss"]
    assert all(0 <= validation["bleu"] <= 100 for validation in report["validations"])
    assert report["dropped"] == {"too_long": 0, "unfit": 0}
    assert set(results(straight)) == {
        "model.json", "model.safetensors", "training.json", *(f"kept/{update}.safetensors" for update in {*report["averaged"], 20})
    }  # fmt: skip


def test_the_model_is_the_mean_of_the_best_candidates(straight):
    report = json.loads((straight / "training.json").read_text())
    ranked = sorted((validation["bleu"], validation["update"]) for validation in report["validations"])
    assert report["averaged"] == sorted(update for _, update in ranked[-2:])
    states = [load_file(straight / "kept" / f"{update}.safetensors") for update in report["averaged"]]
    averaged = load_model(straight).state_dict()
    for name, tensor in averaged.items():
        torch.testing.assert_close(tensor, (states[0][name] + states[1][name]) / 2)


def test_summaries_are_validated_by_rouge(inputs, tmp_path, monkeypatch):
    searches = []
    original = StepwiseDecoder.decode

    def decode(self, prepared, search, threads=None):
        searches.append(search)
        return original(self, prepared, search)

    monkeypatch.setattr(StepwiseDecoder, "decode", decode)
    config = replace(config_of(validation_metric="rougeL"), task="summarization", target_language="de")
    train.STAGE.run(inputs, config, make_work(tmp_path))
    report = json.loads((tmp_path / "training.json").read_text())
    qualities = [(validation["rougeL"], validation["update"]) for validation in report["validations"]]
    assert all(0 <= quality <= 100 for quality, _ in qualities)
    assert report["averaged"] == sorted(update for _, update in sorted(qualities)[-2:])
    validated = [line for line in metrics(tmp_path) if "valid_loss" in line]
    assert [line["valid_rougeL"] for line in validated] == [quality for quality, _ in qualities]
    lengths = [len(row["target"]) for table in read_shards(inputs.validation.path) for row in table.to_pylist()]
    assert {search.output_limits.max_tokens for search in searches} == {max(lengths) + 1}


def test_metrics_are_recorded(straight):
    lines = metrics(straight)
    logged = {line["step"]: line for line in lines if "loss" in line}
    validated = {line["step"]: line for line in lines if "valid_loss" in line}
    assert list(logged) == [4, 8, 12, 16, 20]
    assert list(validated) == [6, 12, 18, 20]
    assert {"valid_loss", "valid_bleu", "valid_perplexity"} <= set(validated[6])
    expected = {"loss", "nll", "perplexity", "learning_rate", "gradient_norm", "target_tokens_per_second", "padding_efficiency"}
    assert expected <= set(logged[4])
    assert logged[4]["learning_rate"] == pytest.approx(0.008)
    assert 0.3 < logged[4]["padding_efficiency"] <= 1
    assert {"step": 0, "cpus": 1.0}.items() <= lines[0].items()
    progress = json.loads((straight / "records" / "progress.json").read_text())
    assert (progress["done"], progress["total"], progress["unit"]) == (20, 20, "updates")


@dataclass(frozen=True)
class Stopping(StepContext):
    """A context that requests a stop at the n-th question."""

    after: int = 0

    def for_workers(self):
        return self

    def stop_requested(self):
        counter = self.records("asked")
        asked = int(counter.read_text()) + 1 if counter.exists() else 1
        counter.write_text(str(asked))
        return asked == self.after


@pytest.mark.parametrize("after", [1, 6, 11, 19])
def test_a_stopped_and_continued_training_equals_an_uninterrupted_one_bit_for_bit(inputs, straight, tmp_path, after):
    with pytest.raises(TransientError, match=f"after update {after} is saved"):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, Stopping, after=after))
    assert results(tmp_path) == {}
    train.STAGE.run(inputs, config_of(), make_work(tmp_path, attempt="a2"))
    assert results(tmp_path) == results(straight)
    assert min(line["step"] for line in metrics(tmp_path) if line["step"] > after) <= after + 4


@dataclass(frozen=True)
class Dying(StepContext):
    """A context whose process dies when it logs an update."""

    at: int = 0

    def for_workers(self):
        return self

    def metrics(self, step, values):
        if step == self.at:
            raise SystemError("killed")


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


def test_the_first_candidate_is_kept_on_request(inputs, tmp_path):
    recipe = {"updates": 30, "validate_every": 5, "average": "last", "num_averaged": 2}
    first = make_work(tmp_path / "a", Dying, at=20, checkpoint_seconds=0.0)
    with pytest.raises(SystemError):
        train.STAGE.run(inputs, config_of(**recipe, keep_first=True), first)
    train.STAGE.run(inputs, config_of(**recipe, keep_first=True), make_work(tmp_path / "a", attempt="a2"))
    train.STAGE.run(inputs, config_of(**recipe), make_work(tmp_path / "b"))
    with_first, without = results(tmp_path / "a"), results(tmp_path / "b")
    assert with_first.keys() - without.keys() == {"kept/5.safetensors"}
    described = [json.loads(found.pop("model.json")) for found in (with_first, without)]
    assert described[0]["parts"].keys() - described[1]["parts"].keys() == {"kept/5.safetensors"}
    assert {name: with_first[name] for name in without} == without
    early = load_model(tmp_path / "a", weights="kept/5.safetensors").state_dict()
    late = load_model(tmp_path / "a").state_dict()
    assert any(not torch.equal(early[name], late[name]) for name in late)


def test_early_stopping(inputs, tmp_path):
    train.STAGE.run(inputs, config_of(learning_rate=1e-12, validate_every=3, patience=2), make_work(tmp_path))
    report = json.loads((tmp_path / "training.json").read_text())
    assert (report["updates"], report["stopped_early"]) == (9, True)
    before = results(tmp_path)
    train.STAGE.run(inputs, config_of(learning_rate=1e-12, validate_every=3, patience=2), make_work(tmp_path, attempt="a2"))
    assert results(tmp_path) == before


def test_several_token_artifacts_and_passes(inputs, tmp_path):
    twice = replace(inputs, tokens=inputs.tokens * 2)
    recipe = {"batch_tokens": 10**6, "updates": 1, "validation_sentences": 0, "validation_metric": "loss"}
    train.STAGE.run(twice, config_of(**recipe), make_work(tmp_path, microbatch_tokens=200))
    assert json.loads((tmp_path / "training.json").read_text())["validations"][0]["bleu"] is None
    assert json.loads((tmp_path / "checkpoints" / "1" / "state.json").read_text())["position"] == [0, 0, 1]


def test_pairs_that_are_left_out_are_counted(inputs, tmp_path):
    lengths = [k % 6 + 1 for k in range(150)]
    table = [json.loads((inputs.tokens[0].path / "tokens.json").read_text())]
    train.STAGE.run(inputs, config_of(network=replace(NETWORK, max_positions=10), max_tokens=9, updates=1), make_work(tmp_path))
    dropped = json.loads((tmp_path / "training.json").read_text())["dropped"]
    assert table[0]["rows"] == len(lengths)
    assert 0 < dropped["too_long"] < 150
    assert dropped["unfit"] == 0


def test_pairs_that_the_network_cannot_take_are_counted(inputs, tmp_path):
    train.STAGE.run(inputs, config_of(network=replace(NETWORK, max_positions=8), updates=1), make_work(tmp_path))
    dropped = json.loads((tmp_path / "training.json").read_text())["dropped"]
    assert dropped["too_long"] == 0
    assert 0 < dropped["unfit"] < 150


def test_no_pair_left_is_an_error(inputs, tmp_path):
    with pytest.raises(DataError, match=r"expected pairs to train on, got none of 150.*max_tokens"):
        train.STAGE.run(inputs, config_of(max_tokens=0), make_work(tmp_path))


def test_an_id_outside_the_vocabulary_is_an_error_before_training(inputs, tmp_path):
    pieces = json.loads((inputs.vocabulary.path / "vocabulary.json").read_text())
    other = tmp_path / "vocabulary"
    other.mkdir()
    for name in ("source.spm", "target.spm"):
        (other / name).write_bytes((inputs.vocabulary.path / name).read_bytes())
    (other / "vocabulary.json").write_text(json.dumps({**pieces, "source_size": 20, "target_size": 20}))
    with pytest.raises(DataError, match=r"00000\.arrow: row \d+ .* token \d+ is outside the vocabulary of 20"):
        train.STAGE.run(replace(inputs, vocabulary=Vocabulary(other, "v")), config_of(), make_work(tmp_path / "run"))


def test_float16_on_a_cpu_is_the_users_error(inputs, tmp_path):
    with pytest.raises(DataError, match=r"training\.precision"):
        train.STAGE.run(inputs, config_of(precision="float16"), make_work(tmp_path))


def test_divergence_is_explained(inputs, tmp_path):
    network = replace(NETWORK, norm="post")
    recipe = {"learning_rate": 1e30, "clip_norm": 0.0, "warmup_updates": 0, "updates": 60, "validate_every": 100}
    with pytest.raises(StageError, match=r"training: update [1-6]: (weights|loss): .*training\.learning_rate"):
        train.STAGE.run(inputs, config_of(network=network, **recipe), make_work(tmp_path))


@pytest.mark.parametrize("rate", [1e300, 1e30])
@pytest.mark.parametrize("updates", [1, 2, 4])
def test_a_short_training_with_an_absurd_learning_rate_writes_no_results(inputs, tmp_path, rate, updates):
    recipe = {"learning_rate": rate, "warmup_updates": 0, "updates": updates}
    with pytest.raises(StageError, match=r"training: update \d: (weights|validation loss): expected"):
        train.STAGE.run(inputs, config_of(**recipe), make_work(tmp_path))
    assert results(tmp_path) == {}


def test_a_candidate_that_is_not_finite_is_not_averaged(inputs, tmp_path):
    train.STAGE.run(inputs, config_of(), make_work(tmp_path))
    report = json.loads((tmp_path / "training.json").read_text())
    path = tmp_path / "checkpoints" / "candidates" / f"{report['averaged'][0]}.safetensors"
    spoil(path)
    with pytest.raises(StageError, match=r"mean of 2 candidates: expected finite weights, got others in target_embedding"):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, attempt="a2"))


def test_a_checkpoint_that_is_not_finite_is_refused(inputs, tmp_path):
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, Stopping, after=3))
    spoil(tmp_path / "checkpoints" / "3" / "model.safetensors")
    with pytest.raises(ArtifactError, match=r"checkpoints/3: expected finite weights, got others in target_embedding.*remove"):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, attempt="a2"))


def spoil(path):
    """Put a value that is not finite into the weights of a file."""
    state = load_file(path)
    state["target_embedding.weight"][3, 1] = float("nan")
    weights.save_weights(path, state)


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


def test_two_workers_stop_together_continue_and_equal_one_worker_up_to_rounding(inputs, tmp_path):
    (tmp_path / "inputs").symlink_to(inputs.vocabulary.path.parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(tmp_path)]
    workers = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
    assert [worker.wait(timeout=200) for worker in workers] == [0, 0]
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


GRAPH = DagConfig(
    encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, dropout=0.1, max_positions=64, graph_factor=3.0
)


def test_a_stopped_and_continued_training_of_a_dag_is_reproducible(inputs, straight, tmp_path):
    """Train on summaries, whose length searches of this family do not limit."""
    config = TrainConfig(family="dag", network=GRAPH, training=replace(RECIPE, label_smoothing=0.0), task="summarization")
    train.STAGE.run(inputs, config, make_work(tmp_path / "straight"))
    stopping = make_work(tmp_path / "stopped", Stopping, after=9)
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config, stopping)
    train.STAGE.run(inputs, config, make_work(tmp_path / "stopped", attempt="a2"))
    assert results(tmp_path / "stopped") == results(tmp_path / "straight")
    report = json.loads((tmp_path / "straight" / "training.json").read_text())
    assert report["validations"][-1]["loss"] < report["validations"][0]["loss"]
    assert any("accuracy" in line for line in metrics(tmp_path / "straight"))


LATTICE = LatticeModelConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, dropout=0.1, max_positions=64)


@pytest.fixture(scope="module")
def tables(inputs, tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    (tokens,) = inputs.tokens
    align.STAGE.run(align.AlignInputs(tokens), align.AlignConfig(), make_work(root / "links"))
    counted = lattice.LatticeInputs(tokens, Links(root / "links", "links"), inputs.validation, inputs.vocabulary)
    lattice.STAGE.run(counted, lattice.LatticeConfig(), make_work(root / "tables"))
    return Tables(root / "tables", "tables")


def test_a_stopped_and_continued_training_of_a_lattice_scorer_is_reproducible(inputs, tables, tmp_path):
    """Segments are drawn from a generator that is seeded for each update: a stopped training draws the same."""
    given = replace(inputs, tables=tables)
    config = TrainConfig(family="lattice", network=replace(LATTICE, normalizer_penalty=0.01), training=RECIPE)
    train.STAGE.run(given, config, make_work(tmp_path / "straight"))
    with pytest.raises(TransientError):
        train.STAGE.run(given, config, make_work(tmp_path / "stopped", Stopping, after=9))
    train.STAGE.run(given, config, make_work(tmp_path / "stopped", attempt="a2"))
    assert results(tmp_path / "stopped") == results(tmp_path / "straight")
    report = json.loads((tmp_path / "straight" / "training.json").read_text())
    assert report["validations"][-1]["loss"] < report["validations"][0]["loss"]
    assert all(0 <= validation["bleu"] <= 100 for validation in report["validations"])
    assert report["links"] == json.loads((tables.path / "lattice.json").read_text())["links"]
    assert any("log_z_squared" in line for line in metrics(tmp_path / "straight"))


def test_tables_of_another_vocabulary_are_refused(inputs, tables, tmp_path):
    (tmp_path / "words").mkdir()
    for side in ("source", "target"):
        (tmp_path / "words" / f"{side}.spm").write_bytes(
            (inputs.vocabulary.path / f"{side}.spm").read_bytes() + b"\xc0\x3e\x01"
        )  # an unknown field
    (tmp_path / "words" / "vocabulary.json").write_bytes((inputs.vocabulary.path / "vocabulary.json").read_bytes())
    given = replace(inputs, tables=tables, vocabulary=Vocabulary(tmp_path / "words", "words"))
    with pytest.raises(ArtifactError, match="expected candidate tables of the vocabulary"):
        train.STAGE.run(given, TrainConfig(family="lattice", network=LATTICE, training=RECIPE), make_work(tmp_path / "run"))


def test_a_training_starts_from_the_weights_that_fit(inputs, straight, tmp_path):
    given = load_file(straight / "model.safetensors")
    recipe = replace(RECIPE, updates=1, learning_rate=1e-12)
    for family, network in (("dag", GRAPH), ("stepwise", replace(NETWORK, feed_forward=48))):
        config = TrainConfig(family=family, network=network, training=recipe)
        train.STAGE.run(replace(inputs, initial=Trained(straight, "straight")), config, make_work(tmp_path / family))
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
            make_work(tmp_path / "wide"),
        )
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(DataError, match="expected weights in safetensors format"):
        train.STAGE.run(replace(inputs, initial=Trained(tmp_path / "damaged", "damaged")), config_of(), make_work(tmp_path / "no"))


def test_training_goes_on_in_smaller_passes_when_memory_runs_out(inputs, tmp_path, monkeypatch, caplog):
    config = config_of(network=replace(NETWORK, dropout=0.0), updates=4, validate_every=4)
    train.STAGE.run(inputs, config, make_work(tmp_path / "free"))
    family = family_named("stepwise")
    loss, failed = family.functions.loss, []

    def limited(model, batch, update, label_smoothing):
        if model.training and batch.source.numel() > 40:
            failed.append(update)
            raise torch.OutOfMemoryError("no memory")
        return loss(model, batch, update, label_smoothing)

    monkeypatch.setattr(
        "stages.train.loop.family_named", lambda name: SimpleNamespace(functions=family.functions._replace(loss=limited))
    )
    train.STAGE.run(inputs, config, make_work(tmp_path / "limited"))
    assert failed
    reports = [json.loads((tmp_path / name / "training.json").read_text()) for name in ("free", "limited")]
    losses = [[one["loss"] for one in report["validations"]] for report in reports]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert reports[0]["dropped"] == reports[1]["dropped"]
    assert any(0 < line.get("microbatch_tokens", 0) < 10**4 for line in metrics(tmp_path / "limited"))
    assert "memory ran out" in caplog.text


def test_the_precision_follows_the_device():
    assert with_precision(RECIPE, "cpu") == RECIPE
    automatic = replace(RECIPE, precision="auto")
    assert with_precision(automatic, "cpu").precision == ("bfloat16" if has_bf16() else "float32")


@pytest.mark.parametrize(("supported", "precision"), [(True, "bfloat16"), (False, "float16")])
def test_the_precision_follows_the_gpu(monkeypatch, supported, precision):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    assert with_precision(replace(RECIPE, precision="auto"), "cuda:0").precision == precision


@pytest.mark.parametrize("train_verifier", [False, True])
def test_heads_are_chosen_by_the_tokens_that_a_pass_of_their_verifier_writes(inputs, straight, tmp_path, train_verifier):
    """The candidates that are averaged are those with the most tokens a pass, and the system verifies with the right network."""
    trained = Trained(straight, "trained")
    greedy = {"greedy": StepwiseSearch()}
    described = {"source_language": "en", "target_language": "de"}
    system.STAGE.run(
        system.SystemInputs(trained, inputs.vocabulary),
        system.SystemConfig(name="verifier", family="stepwise", searches=greedy, **described),
        make_work(tmp_path / "verifier"),
    )
    verifier = System(tmp_path / "verifier", "verifier")
    sizes = {field.name: getattr(NETWORK, field.name) for field in fields(NetworkConfig)}
    network = AggressiveConfig(**sizes, drafting="medusa", encoder="shared", draft_width=2, train_verifier=train_verifier)
    recipe = replace(RECIPE, validation_metric="tokens_per_pass")
    given = replace(inputs, initial=trained, verifier=verifier)
    train.STAGE.run(given, TrainConfig(family="aggressive", network=network, training=recipe), make_work(tmp_path / "heads"))
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
        make_work(tmp_path / "system"),
    )
    texts = ["one two three", "five six seven one", "four"]
    loaded = fewstep.load(tmp_path / "system")
    outputs = {label: loaded.translate(texts, search=label) for label in searches}
    assert outputs["gad"] == outputs["gad-tree_nodes4"] == outputs["greedy"]
    assert (outputs["gad"] == fewstep.load(verifier.path).translate(texts)) != train_verifier
