from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from stages.artifacts import Hypotheses, Text
from stages.context import StepContext
from stages.errors import ArtifactError
from stages.score import STAGE, ScoreConfig, ScoreInputs
from stages.shared.shards import shard_path, write_shard
from stages.workers import LocalWorkers, Resources


def make_work(directory: Path) -> StepContext:
    directory.mkdir(parents=True, exist_ok=True)
    return StepContext(
        directory=directory,
        attempt="a1",
        workers=LocalWorkers(),
        resources=Resources(workers=1, cpus=1),
        shard_cache=directory.parent / "cache",
    )


def make_text(path: Path, rows: list[tuple[int, list[str]]]) -> Text:
    ids, references = [id_ for id_, _ in rows], [texts for _, texts in rows]
    table = pa.table(
        {"id": ids, "source": ["x"] * len(ids), "target": [texts[0] for texts in references], "references": references}
    )
    write_shard(shard_path(path, 0), table, make_work(path))
    return Text(path, "text")


def make_hypotheses(path: Path, rows: list[tuple[int, int, str]]) -> Hypotheses:
    table = pa.table({"id": [row[0] for row in rows], "rank": [row[1] for row in rows], "text": [row[2] for row in rows]})
    write_shard(shard_path(path, 0), table, make_work(path))
    return Hypotheses(path, "hypotheses")


def test_scores_use_the_best_hypothesis_and_every_reference(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["unrelated", "ein Haus am See ."]), (9, ["es regnet heute hier .", "nie"])])
    hypotheses = make_hypotheses(
        tmp_path / "hypotheses", [(9, 0, "es regnet heute hier ."), (9, 1, "falsch"), (7, 0, "ein Haus am See ."), (7, 1, "falsch")]
    )
    context = make_work(tmp_path / "scores")
    STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de"), context)
    scores = json.loads((context.directory / "scores.json").read_text())
    assert set(scores) == {"bleu", "chrf", "ter", "tokenized_bleu"}
    assert scores["bleu"]["score"] == 100.0
    assert scores["bleu"]["signature"].startswith("nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp")
    assert scores["ter"]["score"] == 0.0


def test_entities_are_decoded_on_request(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["it &apos;s late ."])])
    hypotheses = make_hypotheses(tmp_path / "hypotheses", [(7, 0, "it 's late .")])
    for decode, score in ((False, 50.0), (True, 100.0)):
        context = make_work(tmp_path / str(decode))
        config = ScoreConfig(target_language="en", tokenizer="none", metrics=("bleu",), decode_entities=decode)
        STAGE.run(ScoreInputs(hypotheses, text), config, context)
        found = json.loads((context.directory / "scores.json").read_text())["bleu"]["score"]
        assert (found == score) if decode else (found < score)


def test_scores_repeat_bit_for_bit(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["ein Haus am See ."]), (9, ["es regnet heute ."])])
    hypotheses = make_hypotheses(tmp_path / "hypotheses", [(7, 0, "ein Haus an See ."), (9, 0, "")])
    written = []
    for name in ("a", "b"):
        context = make_work(tmp_path / name)
        STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de", lowercase=True), context)
        written.append((context.directory / "scores.json").read_bytes())
    assert written[0] == written[1]
    assert b"case:lc" in written[0]


@pytest.mark.parametrize("rows", [[(7, 0, "a")], [(7, 0, "a"), (9, 0, "b"), (10, 0, "c")], [(7, 0, "a"), (8, 0, "b")]])
def test_hypotheses_of_other_sentences_are_refused(tmp_path: Path, rows: list[tuple[int, int, str]]) -> None:
    text = make_text(tmp_path / "text", [(7, ["a"]), (9, ["b"])])
    hypotheses = make_hypotheses(tmp_path / "hypotheses", rows)
    with pytest.raises(ArtifactError, match="expected the hypotheses of 2 sentences"):
        STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de"), make_work(tmp_path / "scores"))


def test_a_repeated_hypothesis_is_refused(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["a"])])
    hypotheses = make_hypotheses(tmp_path / "hypotheses", [(7, 0, "a"), (7, 0, "b")])
    with pytest.raises(ArtifactError, match="two for id 7"):
        STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de"), make_work(tmp_path / "scores"))


def test_precision_of_head_and_tail_is_written_on_request(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["Es regnet, sagt sie."]), (9, ["Nein."])])
    hypotheses = make_hypotheses(tmp_path / "hypotheses", [(7, 0, "es regnet, sagt er."), (9, 0, "Nein.")])
    context = make_work(tmp_path / "plain")
    STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de", metrics=("bleu",)), context)
    assert not (context.directory / "head_and_tail.json").exists()
    context = make_work(tmp_path / "asked")
    config = ScoreConfig(target_language="de", metrics=("otem",), lowercase=True, head_and_tail=True, long_sentences=5)
    STAGE.run(ScoreInputs(hypotheses, text), config, context)
    found = json.loads((context.directory / "head_and_tail.json").read_text())
    assert (found["sentences"], found["longer_than"]) == (1, 5)
    assert found["precision"]["1"]["all"] == pytest.approx(100 * 5 / 6, abs=1e-3)  # es regnet , sagt er .
    assert json.loads((context.directory / "scores.json").read_text())["otem"]["score"] == 0.0
