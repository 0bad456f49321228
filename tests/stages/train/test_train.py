"""The train stage on a toy language: its results, keeping candidates, precision, memory, and bad input."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from models.bundle.directory import load_model
from models.family import family_named
from models.stepwise.decode import StepwiseDecoder
from models.training.precision import has_bf16
from stages import train
from stages.artifacts import Vocabulary
from stages.context import WorkerContext
from stages.errors import DataError, StageError
from stages.shared.shards import read_shards
from stages.train import loop
from stages.train.loop import with_precision
from tests.stages.train.toy_training import NETWORK, RECIPE, Dying, config_of, make_work, metrics, results, spoil


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
    assert {"valid_loss", "valid_bleu", "valid_perplexity", "valid_nll"} <= set(validated[6])
    assert validated[6]["valid_nll"] == pytest.approx(validated[6]["valid_loss"])  # a validation smooths no labels
    expected = {"loss", "nll", "perplexity", "learning_rate", "gradient_norm", "target_tokens_per_second", "padding_efficiency"}
    assert expected <= set(logged[4])
    assert logged[4]["learning_rate"] == pytest.approx(0.008)
    assert 0.3 < logged[4]["padding_efficiency"] <= 1
    assert {"step": 0, "cpus": 1.0}.items() <= lines[0].items()
    progress = json.loads((straight / "records" / "progress.json").read_text())
    assert (progress["done"], progress["total"], progress["unit"]) == (20, 20, "updates")


def test_progress_is_reported_by_time_where_no_log_is_due(inputs, tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr(WorkerContext, "progress", lambda self, done, total, unit: reported.append((done, total, unit)))
    monkeypatch.setattr(loop, "PROGRESS_SECONDS", 0.0)
    train.STAGE.run(inputs, config_of(updates=5, log_every=100, validate_every=5), make_work(tmp_path))
    assert [done for done, total, unit in reported if (total, unit) == (5, "updates")] == list(range(6))


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
    with pytest.raises(StageError, match=r"mean of 2 candidates: expected finite weights, got inf or NaN in target_embedding"):
        train.STAGE.run(inputs, config_of(), make_work(tmp_path, attempt="a2"))


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
