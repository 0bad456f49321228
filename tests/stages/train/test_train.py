"""The train stage on a toy language: its results, the token shards that it reads, precision, memory, and bad input."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS, MASK
from models.bundle.directory import load_model
from models.family import family_named
from models.stepwise.decode import StepwiseDecoder
from models.training.batch import Position, shares
from models.training.config import Infilling, TrainingConfig
from models.training.precision import has_bf16
from stages import encode, train, vocabulary
from stages.artifacts import Tokens, Vocabulary
from stages.context import WorkerContext
from stages.errors import ArtifactError, DataError, StageError
from stages.shared.shards import read_shards
from stages.train import TrainConfig, TrainInputs, loop, validation
from stages.train.loop import with_precision
from stages.train.stream import pool_stream
from stages.train.token_files import TokenFiles, vocabulary_sizes
from tests.stages.steps import context_in, metrics_of, results, write_text
from tests.stages.train.toy_training import NETWORK, RECIPE, Dying, config_of, spoil


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


def test_outputs_of_validation_have_placeholders_in_place_of_masks(tmp_path, monkeypatch):
    text = write_text(tmp_path / "text", [("open %s and `x` now", "jetzt `x` und %s auf")] * 40)
    config = vocabulary.VocabularyConfig(size=60, exact=False, placeholders=("code", "directive"))
    vocabulary.STAGE.run(vocabulary.VocabularyInputs(text), config, context_in(tmp_path / "vocabulary"))
    pieces = Vocabulary(tmp_path / "vocabulary", "vocabulary")
    encode.STAGE.run(encode.EncodeInputs(text, pieces), encode.EncodeConfig(), context_in(tmp_path / "tokens"))
    tokens, scored = Tokens(tmp_path / "tokens", "tokens"), []

    def copies(decoder, sources, search, **_):
        return [[Hypothesis(list(source), 0.0, 1)] for source in sources]

    def score(metric, outputs, references, how):
        scored.extend(zip(outputs, references, strict=True))
        return {"score": 0.0}

    monkeypatch.setattr(validation, "decode_sentences", copies)
    monkeypatch.setattr(validation, "score", score)
    train.STAGE.run(
        TrainInputs((tokens,), tokens, text, pieces), config_of(updates=2, validate_every=2), context_in(tmp_path / "out")
    )
    assert set(scored[1:]) == {("open %s and `x` now", ("jetzt `x` und %s auf",))}  # the first is a trial of the metric


def test_summaries_are_validated_by_rouge(inputs, tmp_path, monkeypatch):
    searches = []
    original = StepwiseDecoder.decode

    def decode(self, prepared, search, threads=None):
        searches.append(search)
        return original(self, prepared, search)

    monkeypatch.setattr(StepwiseDecoder, "decode", decode)
    config = replace(config_of(validation_metric="rougeL"), task="summarization", target_language="de")
    train.STAGE.run(inputs, config, context_in(tmp_path))
    report = json.loads((tmp_path / "training.json").read_text())
    qualities = [(validation["rougeL"], validation["update"]) for validation in report["validations"]]
    assert all(0 <= quality <= 100 for quality, _ in qualities)
    assert report["averaged"] == sorted(update for _, update in sorted(qualities)[-2:])
    validated = [line for line in metrics_of(tmp_path) if "valid_loss" in line]
    assert [line["valid_rougeL"] for line in validated] == [quality for quality, _ in qualities]
    lengths = [len(row["target"]) for table in read_shards(inputs.validation.path) for row in table.to_pylist()]
    assert {search.output_limits.max_tokens for search in searches} == {max(lengths) + 1}


def test_metrics_are_recorded(straight):
    lines = metrics_of(straight)
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
    train.STAGE.run(inputs, config_of(updates=5, log_every=100, validate_every=5), context_in(tmp_path))
    assert [done for done, total, unit in reported if (total, unit) == (5, "updates")] == list(range(6))


def test_the_first_candidate_is_kept_on_request(inputs, tmp_path):
    recipe = {"updates": 30, "validate_every": 5, "average": "last", "num_averaged": 2}
    first = context_in(tmp_path / "a", Dying, at=20, checkpoint_seconds=0.0)
    with pytest.raises(SystemError):
        train.STAGE.run(inputs, config_of(**recipe, keep_first=True), first)
    train.STAGE.run(inputs, config_of(**recipe, keep_first=True), context_in(tmp_path / "a", attempt="a2"))
    train.STAGE.run(inputs, config_of(**recipe), context_in(tmp_path / "b"))
    with_first, without = results(tmp_path / "a"), results(tmp_path / "b")
    assert with_first.keys() - without.keys() == {"kept/5.safetensors"}
    described = [json.loads(found.pop("model.json")) for found in (with_first, without)]
    assert described[0]["parts"].keys() - described[1]["parts"].keys() == {"kept/5.safetensors"}
    assert {name: with_first[name] for name in without} == without
    early = load_model(tmp_path / "a", weights="kept/5.safetensors").state_dict()
    late = load_model(tmp_path / "a").state_dict()
    assert any(not torch.equal(early[name], late[name]) for name in late)


def test_early_stopping(inputs, tmp_path):
    train.STAGE.run(inputs, config_of(learning_rate=1e-12, validate_every=3, patience=2), context_in(tmp_path))
    report = json.loads((tmp_path / "training.json").read_text())
    assert (report["updates"], report["stopped_early"]) == (9, True)
    before = results(tmp_path)
    train.STAGE.run(inputs, config_of(learning_rate=1e-12, validate_every=3, patience=2), context_in(tmp_path, attempt="a2"))
    assert results(tmp_path) == before


def test_several_token_artifacts_and_passes(inputs, tmp_path):
    twice = replace(inputs, tokens=inputs.tokens * 2)
    recipe = {"batch_tokens": 10**6, "updates": 1, "validation_sentences": 0, "validation_metric": "loss"}
    train.STAGE.run(twice, config_of(**recipe), context_in(tmp_path, microbatch_tokens=200))
    assert json.loads((tmp_path / "training.json").read_text())["validations"][0]["bleu"] is None
    assert json.loads((tmp_path / "checkpoints" / "1" / "state.json").read_text())["position"] == [0, 0, 1, 0]


def test_pairs_that_are_left_out_are_counted(inputs, tmp_path):
    lengths = [k % 6 + 1 for k in range(150)]
    table = [json.loads((inputs.tokens[0].path / "tokens.json").read_text())]
    train.STAGE.run(inputs, config_of(network=replace(NETWORK, max_positions=10), max_tokens=9, updates=1), context_in(tmp_path))
    dropped = json.loads((tmp_path / "training.json").read_text())["dropped"]
    assert table[0]["rows"] == len(lengths)
    assert 0 < dropped["too_long"] < 150
    assert dropped["unfit"] == 0


def test_pairs_that_the_network_cannot_take_are_counted(inputs, tmp_path):
    train.STAGE.run(inputs, config_of(network=replace(NETWORK, max_positions=8), updates=1), context_in(tmp_path))
    dropped = json.loads((tmp_path / "training.json").read_text())["dropped"]
    assert dropped["too_long"] == 0
    assert 0 < dropped["unfit"] < 150


def test_no_pair_left_is_an_error(inputs, tmp_path):
    with pytest.raises(DataError, match=r"expected pairs to train on, got none of 150.*max_tokens"):
        train.STAGE.run(inputs, config_of(max_tokens=0), context_in(tmp_path))


def test_an_id_outside_the_vocabulary_is_an_error_before_training(inputs, tmp_path):
    pieces = json.loads((inputs.vocabulary.path / "vocabulary.json").read_text())
    other = tmp_path / "vocabulary"
    other.mkdir()
    for name in ("source.spm", "target.spm"):
        (other / name).write_bytes((inputs.vocabulary.path / name).read_bytes())
    (other / "vocabulary.json").write_text(json.dumps({**pieces, "source_size": 20, "target_size": 20}))
    with pytest.raises(DataError, match=r"00000\.arrow: row \d+ .* token \d+ is outside the vocabulary of 20"):
        train.STAGE.run(replace(inputs, vocabulary=Vocabulary(other, "v")), config_of(), context_in(tmp_path / "run"))


def test_float16_on_a_cpu_is_the_users_error(inputs, tmp_path):
    with pytest.raises(DataError, match=r"training\.precision"):
        train.STAGE.run(inputs, config_of(precision="float16"), context_in(tmp_path))


def test_divergence_is_explained(inputs, tmp_path):
    network = replace(NETWORK, norm="post")
    recipe = {"learning_rate": 1e30, "clip_norm": 0.0, "warmup_updates": 0, "updates": 60, "validate_every": 100}
    with pytest.raises(StageError, match=r"training: update [1-6]: (weights|loss): .*training\.learning_rate"):
        train.STAGE.run(inputs, config_of(network=network, **recipe), context_in(tmp_path))


@pytest.mark.parametrize("rate", [1e300, 1e30])
@pytest.mark.parametrize("updates", [1, 2, 4])
def test_a_short_training_with_an_absurd_learning_rate_writes_no_results(inputs, tmp_path, rate, updates):
    recipe = {"learning_rate": rate, "warmup_updates": 0, "updates": updates}
    with pytest.raises(StageError, match=r"training: update \d: (weights|validation loss): expected"):
        train.STAGE.run(inputs, config_of(**recipe), context_in(tmp_path))
    assert results(tmp_path) == {}


def test_a_candidate_that_is_not_finite_is_not_averaged(inputs, tmp_path):
    train.STAGE.run(inputs, config_of(), context_in(tmp_path))
    report = json.loads((tmp_path / "training.json").read_text())
    path = tmp_path / "checkpoints" / "candidates" / f"{report['averaged'][0]}.safetensors"
    spoil(path)
    with pytest.raises(StageError, match=r"mean of 2 candidates: expected finite weights, got inf or NaN in target_embedding"):
        train.STAGE.run(inputs, config_of(), context_in(tmp_path, attempt="a2"))


def test_training_goes_on_in_smaller_passes_when_memory_runs_out(inputs, tmp_path, monkeypatch, caplog):
    config = config_of(network=replace(NETWORK, dropout=0.0), updates=4, validate_every=4)
    train.STAGE.run(inputs, config, context_in(tmp_path / "free"))
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
    train.STAGE.run(inputs, config, context_in(tmp_path / "limited"))
    assert failed
    reports = [json.loads((tmp_path / name / "training.json").read_text()) for name in ("free", "limited")]
    losses = [[one["loss"] for one in report["validations"]] for report in reports]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert reports[0]["dropped"] == reports[1]["dropped"]
    assert any(0 < line.get("microbatch_tokens", 0) < 10**4 for line in metrics_of(tmp_path / "limited"))
    assert "memory ran out" in caplog.text


def test_the_precision_follows_the_device():
    assert with_precision(RECIPE, "cpu") == RECIPE
    automatic = replace(RECIPE, precision="auto")
    assert with_precision(automatic, "cpu").precision == ("bfloat16" if has_bf16() else "float32")


@pytest.mark.parametrize(("supported", "precision"), [(True, "bfloat16"), (False, "float16")])
def test_the_precision_follows_the_gpu(monkeypatch, supported, precision):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    assert with_precision(replace(RECIPE, precision="auto"), "cuda:0").precision == precision


def write(directory, index, rows, kind=None):
    path = directory / "shards" / f"{index:05d}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    lists = pa.list_(kind or pa.uint16())
    columns = {
        "id": pa.array([row[0] for row in rows], pa.int64()),
        "source": pa.array([row[1] for row in rows], lists),
        "target": pa.array([row[2] for row in rows], lists),
    }
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    return path


def rows_of(ragged):
    return [ragged.values[a:b].tolist() for a, b in zip(ragged.offsets[:-1], ragged.offsets[1:], strict=True)]


@pytest.fixture
def files(tmp_path):
    write(tmp_path / "a", 0, [(0, [7, 8], [9]), (1, [], [10, 11, 12])])
    write(tmp_path / "a", 1, [(2, [13], [14])])
    write(tmp_path / "b", 0, [(0, [15, 16], [17, 18])], pa.uint32())
    return TokenFiles([tmp_path / "a", tmp_path / "b"], Sizes(30, 30, True))


def test_several_artifacts_form_one_list_of_shards(files):
    assert [[lengths.tolist() for lengths in files.lengths(shard)] for shard in range(3)] == [
        [[2, 0], [1, 3]],
        [[1], [1]],
        [[2], [2]],
    ]


def test_a_pool_joins_shards_in_the_order_asked_for(files):
    pool = files.pool([2, 0, 1])
    assert pool.ids.tolist() == [0, 0, 1, 2]
    assert rows_of(pool.source) == [[15, 16], [7, 8], [], [13]]
    assert rows_of(pool.target) == [[17, 18], [9], [10, 11, 12], [14]]
    assert pool.source.offsets.dtype == np.int64


def test_an_id_outside_the_vocabulary_is_named(tmp_path):
    write(tmp_path, 0, [(0, [7], [8])])
    path = write(tmp_path, 1, [(40, [7], []), (41, [29], [9]), (42, [8, 7], [7, 30, 8])])
    files = TokenFiles([tmp_path], Sizes(30, 30, True))
    files.pool([0])
    with pytest.raises(DataError) as caught:
        files.pool([0, 1])
    for part in (str(path), "row 2", "id 42", "target token 30", "vocabulary of 30"):
        assert part in str(caught.value)


def test_each_side_has_its_own_vocabulary(tmp_path):
    write(tmp_path, 0, [(0, [25], [8])])
    TokenFiles([tmp_path], Sizes(30, 20, False)).pool([0])
    with pytest.raises(DataError, match="source token 25"):
        TokenFiles([tmp_path], Sizes(20, 30, False)).pool([0])


def test_a_shard_without_rows(tmp_path):
    write(tmp_path, 0, [])
    files = TokenFiles([tmp_path], Sizes(30, 30, True))
    assert [len(lengths) for lengths in files.lengths(0)] == [0, 0]
    assert rows_of(files.pool([0]).source) == []


JOINT = Sizes(400, 400, True)


def masked_stream(directory, sizes=JOINT, max_tokens=256, **options):
    training = TrainingConfig(seed=5, batch_tokens=80, max_tokens=max_tokens)
    config = TrainConfig(family="stepwise", network=StepwiseConfig(), training=training, infilling=Infilling(**options))
    return pool_stream([Tokens(directory, "tokens")], config, sizes)


def pairs_of(stream, epochs, **worker):
    """Return the pairs (epoch, id, source, target) of some epochs as one worker receives them."""
    found = set()
    for part in shares(stream.pools(Position()), 80, 5, num_shares=2, **worker):
        for share in part:
            for batch in share.slices:
                rows = zip(batch.ids.tolist(), batch.source.tolist(), batch.target.tolist(), strict=True)
                found |= {(share.position.epoch, id, *(tuple(filter(None, side)) for side in sides)) for id, *sides in rows}
        if part[0].position.epoch == epochs:
            return {pair for pair in found if pair[0] < epochs}
    raise AssertionError("the stream has no end")


def test_each_epoch_masks_other_spans_and_all_workers_the_same(tmp_path):
    rows = [(row, list(range(10 + row, 40 + row)), [9]) for row in range(24)]
    write(tmp_path, 0, rows[:13])
    write(tmp_path, 1, rows[13:])
    stream, dropped = masked_stream(tmp_path)
    assert dropped == {"too_long": 0, "unfit": 0}
    alone = pairs_of(stream, 2)
    assert len(alone) == 48
    assert {(epoch, id) for epoch, id, *_ in alone} == {(epoch, id) for epoch in range(2) for id in range(24)}
    assert len({pair[1:] for pair in alone}) > 40, "spans differ between epochs"
    workers = [pairs_of(stream, 2, rank=rank, size=2) for rank in range(2)]
    assert workers[0] | workers[1] == alone
    for _, id, source, target in alone:
        assert set(source) | set(target) == {*range(10 + id, 40 + id), EOS, MASK}


def test_lengths_count_after_masking(tmp_path):
    write(tmp_path, 0, [(0, list(range(10, 40)), []), (1, list(range(10, 20)), [])])
    assert masked_stream(tmp_path, max_tokens=28)[1] == {"too_long": 0, "unfit": 0}  # 30 tokens, 5 of them masked in 2 spans
    assert masked_stream(tmp_path, max_tokens=26)[1] == {"too_long": 1, "unfit": 0}
    assert masked_stream(tmp_path, max_tokens=28, target="text")[1] == {"too_long": 1, "unfit": 0}


def test_text_with_masked_spans_needs_one_vocabulary(tmp_path):
    write(tmp_path, 0, [(0, [10, 11], [12])])
    with pytest.raises(DataError, match="pretraining: expected one vocabulary for both sides, got separate ones"):
        masked_stream(tmp_path, Sizes(400, 400, False))


def test_sizes_of_a_vocabulary(tmp_path):
    (tmp_path / "vocabulary.json").write_text('{"joint": false, "source_size": 5, "target_size": 6}')
    assert vocabulary_sizes(Vocabulary(tmp_path, "v")) == Sizes(5, 6, False)
    (tmp_path / "vocabulary.json").write_text('{"joint": false}')
    with pytest.raises(ArtifactError, match=r"vocabulary\.json"):
        vocabulary_sizes(Vocabulary(tmp_path, "v"))
