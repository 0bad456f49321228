"""The score stage: scores of the best hypotheses, breakdowns on request, and COMET by a program with the arguments and
the output of comet-score, whose scores are the words that occur in the reference."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis.strategies import lists, sampled_from
from sacrebleu.metrics import BLEU

import fewstep
from fewstep.families.dag.config import DagSearch
from fewstep.families.stepwise.config import StepwiseSearch
from stages.artifacts import STOP, ExternalFile, Hypotheses, System, Text
from stages.context import Context, WorkerContext
from stages.errors import ArtifactError, StageError, TransientError
from stages.score import STAGE, ScoreConfig, ScoreInputs
from stages.score.breakdown import by_length, diversity, oracle, placeholders_kept, repeated
from stages.score.metrics import comet
from stages.shared.decoding.sentences import Sentence
from stages.shared.scoring.comet import comet_score
from stages.shared.scoring.metrics import Comparison
from stages.shared.shards import shard_path, write_shard
from stages.workers import Resources
from tests.stages.comet_program import program
from tests.stages.steps import context_in


def make_text(path: Path, rows: list[tuple[int, list[str]]], source: str = "x", sources: list[str] | None = None) -> Text:
    ids, references = [id_ for id_, _ in rows], [texts for _, texts in rows]
    given = sources or [source] * len(ids)
    table = pa.table({"id": ids, "source": given, "target": [texts[0] for texts in references], "references": references})
    write_shard(shard_path(path, 0), table, context_in(path))
    return Text(path, "text")


def make_hypotheses(path: Path, rows: list[tuple[int, int, str]]) -> Hypotheses:
    table = pa.table({"id": [row[0] for row in rows], "rank": [row[1] for row in rows], "text": [row[2] for row in rows]})
    write_shard(shard_path(path, 0), table, context_in(path))
    return Hypotheses(path, "hypotheses")


def test_scores_use_the_best_hypothesis_and_every_reference(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["unrelated", "ein Haus am See ."]), (9, ["es regnet heute hier .", "nie"])])
    hypotheses = make_hypotheses(
        tmp_path / "hypotheses", [(9, 0, "es regnet heute hier ."), (9, 1, "falsch"), (7, 0, "ein Haus am See ."), (7, 1, "falsch")]
    )
    context = context_in(tmp_path / "scores")
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
        context = context_in(tmp_path / str(decode))
        config = ScoreConfig(target_language="en", tokenizer="none", metrics=("bleu",), decode_entities=decode)
        STAGE.run(ScoreInputs(hypotheses, text), config, context)
        found = json.loads((context.directory / "scores.json").read_text())["bleu"]["score"]
        assert (found == score) if decode else (found < score)


def test_scores_repeat_bit_for_bit(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["ein Haus am See ."]), (9, ["es regnet heute ."])])
    hypotheses = make_hypotheses(tmp_path / "hypotheses", [(7, 0, "ein Haus an See ."), (9, 0, "")])
    written = []
    for name in ("a", "b"):
        context = context_in(tmp_path / name)
        STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de", lowercase=True), context)
        written.append((context.directory / "scores.json").read_bytes())
    assert written[0] == written[1]
    assert b"case:lc" in written[0]


@pytest.mark.parametrize("rows", [[(7, 0, "a")], [(7, 0, "a"), (9, 0, "b"), (10, 0, "c")], [(7, 0, "a"), (8, 0, "b")]])
def test_hypotheses_of_other_sentences_are_refused(tmp_path: Path, rows: list[tuple[int, int, str]]) -> None:
    text = make_text(tmp_path / "text", [(7, ["a"]), (9, ["b"])])
    hypotheses = make_hypotheses(tmp_path / "hypotheses", rows)
    with pytest.raises(ArtifactError, match="expected the hypotheses of 2 sentences"):
        STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de"), context_in(tmp_path / "scores"))


def test_a_repeated_hypothesis_is_refused(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["a"])])
    hypotheses = make_hypotheses(tmp_path / "hypotheses", [(7, 0, "a"), (7, 0, "b")])
    with pytest.raises(ArtifactError, match="two for id 7"):
        STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de"), context_in(tmp_path / "scores"))


def test_precision_of_head_and_tail_is_written_on_request(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["Es regnet, sagt sie."]), (9, ["Nein."])])
    hypotheses = make_hypotheses(tmp_path / "hypotheses", [(7, 0, "es regnet, sagt er."), (9, 0, "Nein.")])
    context = context_in(tmp_path / "plain")
    STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de", metrics=("bleu",)), context)
    assert not (context.directory / "head_and_tail.json").exists()
    context = context_in(tmp_path / "asked")
    config = ScoreConfig(target_language="de", metrics=("otem",), lowercase=True, head_and_tail=True, long_sentences=5)
    STAGE.run(ScoreInputs(hypotheses, text), config, context)
    found = json.loads((context.directory / "head_and_tail.json").read_text())
    assert (found["sentences"], found["longer_than"]) == (1, 5)
    assert found["precision"]["1"]["all"] == pytest.approx(100 * 5 / 6, abs=1e-3)  # es regnet , sagt er .
    assert json.loads((context.directory / "scores.json").read_text())["otem"]["score"] == 0.0


HOW = Comparison(language="de", tokenizer="13a", lowercase=False)


def bleu(pairs: list[tuple[str, str]]) -> float:
    """Return sacreBLEU's score of pairs (hypothesis, its only reference)."""
    return float(BLEU(force=True).corpus_score([one for one, _ in pairs], [[other for _, other in pairs]]).score)


def test_bins_hold_the_sentences_of_their_lengths() -> None:
    references = [["a b c d"], ["a b c d e", "a"], ["a b c d e f"], ["a b c d e f g h i"], [""]]
    hypotheses = ["a b c d", "a b c x e", "x", "a b c d e f g h", "y"]
    found = by_length(hypotheses, references, [4, 5, 6, 9, 0], (4, 6, 7), HOW)["bins"]
    assert [(part["longer_than"], part["up_to"], part["sentences"]) for part in found] == [
        (0, 4, 2), (4, 6, 2), (6, 7, 0), (7, None, 1),
    ]  # fmt: skip
    assert found[2]["bleu"] is None
    assert found[3]["bleu"] == pytest.approx(bleu([("a b c d e f g h", "a b c d e f g h i")]), abs=1e-4)
    several = BLEU(force=True).corpus_score(["a b c x e", "x"], [["a b c d e", "a b c d e f"], ["a", None]]).score
    assert found[1]["bleu"] == pytest.approx(several, abs=1e-4)


def test_samples_are_compared_with_references_and_with_each_other() -> None:
    one, two, three = "der Hund läuft heute schnell", "der Hund läuft heute langsam", "ein Hund rennt heute im Garten"
    samples = [[one, two, three], [two, one, one], ["blank"]]
    references = [[one], [three], ["nichts"]]
    found = diversity(samples, references, HOW)
    assert (found["samples"], found["sentences"], found["left_out"]) == (3, 2, 1)
    ranks = [bleu([(one, one), (two, three)]), bleu([(two, one), (one, three)]), bleu([(three, one), (one, three)])]
    assert found["bleu_by_rank"] == pytest.approx(ranks, abs=1e-3)
    assert found["bleu"] == pytest.approx(sum(ranks) / 3, abs=1e-3)
    pairs = [(a, b) for texts in samples[:2] for i, a in enumerate(texts) for j, b in enumerate(texts) if i != j]
    assert len(pairs) == 12
    assert found["pairwise_bleu"] == pytest.approx(bleu(pairs), abs=1e-3)


def test_the_oracle_is_the_best_sample_against_all_references() -> None:
    """Scores of whole and of unrelated sentences are known; a sample matches one of its references, and two the same one."""
    first, second, other = "der Hund läuft heute schnell weg", "ein Tier rennt am Abend fort", "niemand weiß davon etwas Neues"
    samples = [[other, first, first], [other, second, first]]
    references = [[first, second], [first, second, "ja"]]
    found = diversity(samples, references, HOW)
    assert found["oracle_bleu"] == 100.0
    assert oracle(samples, references, HOW) == [first, second]
    unrelated = [BLEU(effective_order=True).sentence_score(other, [text]).score for text in (first, second)]
    assert found["matched"]["references"] == 2.5
    assert found["matched"]["bleu"] == pytest.approx((2 * max(unrelated) + 4 * 100) / 6, abs=1e-3)
    closest = [{int(unrelated[1] > unrelated[0]), 0}, {int(unrelated[1] > unrelated[0]), 1, 0}]
    assert found["matched"]["covered"] == pytest.approx(sum(map(len, closest)) / 2)


@given(lists(lists(sampled_from(["a b c d e", "a b x d e", "v w x y z", "a b c"]), min_size=2, max_size=2), min_size=1, max_size=4))
def test_no_choice_of_samples_is_better_than_the_oracle_by_sentence(samples: list[list[str]]) -> None:
    references = [["a b c d e", "v w x y"]] * len(samples)
    metric = BLEU(effective_order=True)

    def total(chosen: list[str]) -> float:
        return sum(float(metric.sentence_score(text, known).score) for text, known in zip(chosen, references, strict=True))

    assert total(oracle(samples, references, HOW)) == max(total(list(chosen)) for chosen in product(*samples))


def test_a_single_reference_is_not_matched() -> None:
    assert "matched" not in diversity([["a b", "c d"]], [["a b"]], HOW)


def test_equal_samples_have_a_pairwise_bleu_of_100_and_a_single_sample_has_none() -> None:
    text = "der Hund läuft heute schnell"
    assert diversity([[text, text]], [[text]], HOW)["pairwise_bleu"] == 100.0
    assert diversity([[text]], [[text]], HOW)["pairwise_bleu"] is None


def test_repetition_is_the_share_of_tokens_and_words_like_the_one_before(tmp_path: Path, systems: dict[str, Path]) -> None:
    assert repeated([[1, 1, 2, 2, 2]]) == {"repeated": 3, "total": 5}
    assert repeated([]) == repeated([[]]) == {"repeated": 0, "total": 0}
    assert repeated([[1], [1], [1, 2, 1]]) == {"repeated": 0, "total": 5}, "rows are apart"

    text = make_text(tmp_path / "text", [(7, ["ja ja, nein"]), (9, ["es regnet", "ja ja ja"])])
    rows = [(9, 1, "nie nie nie", [8, 8, 8]), (9, 0, "es es regnet", [11, 12, 12, 12]), (7, 0, "", [])]
    columns = {name: [row[index] for row in rows] for index, name in enumerate(("id", "rank", "text", "ids"))}
    table = pa.table({**columns, "ids": pa.array(columns["ids"], pa.list_(pa.uint32()))})
    write_shard(shard_path(tmp_path / "hypotheses", 0), table, context_in(tmp_path / "hypotheses"))
    hypotheses = Hypotheses(tmp_path / "hypotheses", "hypotheses")
    for asked in (True, False):
        context = context_in(tmp_path / f"scores.{asked}")
        scored = ScoreInputs(hypotheses, text, system=System(systems["autoregressive"], "system"))
        STAGE.run(scored, ScoreConfig(target_language="de", repetition=asked), context)
        assert (context.directory / "repetition.json").is_file() == asked
    pieces = fewstep.load(systems["autoregressive"]).target_pieces
    tokens = [pieces.encode(reference) for reference in ("ja ja, nein", "es regnet")]
    assert json.loads((tmp_path / "scores.True" / "repetition.json").read_text()) == {
        "tokens": {"repeated": 2, "total": 4},
        "words": {"repeated": 1, "total": 3},
        "reference_words": {"repeated": 1, "total": 6},
        "reference_tokens": repeated(tokens),
    }


def test_placeholders_are_compared_with_those_of_the_source(tmp_path: Path) -> None:
    sources = ["a %s of `x` and `y`", "plain 100 %", "see https://a.b/c", "<b>bold</b> {0}"]
    hypotheses = ["%s `y` `x`", "`new`", "siehe", "<b>fett</b> {0} {0}"]
    found = placeholders_kept(sources, hypotheses, ["%s `x` `y`", "", "https://a.b/c", "{0}"], [0, 0, 0, 0])
    assert found == {
        "sentences": 3,
        "kept": 1,
        "searched": 1,
        "reference_kept": 2,
        "kinds": {
            "code": {"total": 2, "kept": 2},
            "directive": {"total": 2, "kept": 2},
            "tag": {"total": 2, "kept": 2},
            "url": {"total": 1, "kept": 0},
        },
    }
    put_back = placeholders_kept(["a %s", "b %s"], ["%s", "%s"], ["", ""], [1, 0])
    assert (put_back["kept"], put_back["searched"]) == (2, 1)
    assert placeholders_kept(["a 5 %"], ["b"], ["c"], [0]) == {}
    text = make_text(tmp_path / "text", [(7, ["%s"])], source="%s here")
    for asked in (True, False):
        context = context_in(tmp_path / f"scores.{asked}")
        inputs = ScoreInputs(make_hypotheses(tmp_path / "hypotheses", [(7, 0, "nichts")]), text)
        STAGE.run(inputs, ScoreConfig(target_language="de", placeholders=asked), context)
        assert (context.directory / "placeholders.json").is_file() == asked


def test_breakdowns_are_written_on_request(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", [(7, ["Es regnet hier, heute."]), (9, ["Ja, ja, das ist so."])])
    rows = [(9, 1, "Ja ja ja ja ja"), (9, 0, "Ja, ja, das ist so."), (7, 0, "Es regnet hier, heute."), (7, 1, "Nein")]
    hypotheses = make_hypotheses(tmp_path / "hypotheses", rows)
    context = context_in(tmp_path / "scores")
    config = ScoreConfig(target_language="de", length_bins=(6,), diversity=True)
    STAGE.run(ScoreInputs(hypotheses, text), config, context)
    bins = json.loads((context.directory / "by_length.json").read_text())["bins"]
    assert [(part["sentences"], part["bleu"]) for part in bins] == [(1, 100.0), (1, 100.0)], "punctuation counts as words"
    reported = json.loads((context.directory / "diversity.json").read_text())
    assert reported["bleu_by_rank"][0] == 100.0
    assert reported["bleu_by_rank"][1] < 20
    plain = context_in(tmp_path / "plain")
    STAGE.run(ScoreInputs(hypotheses, text), ScoreConfig(target_language="de"), plain)
    assert {path.name for path in plain.directory.glob("*.json")} == {"scores.json"}
    assert (plain.directory / "scores.json").read_bytes() == (context.directory / "scores.json").read_bytes()


def test_bins_of_source_lengths_have_equal_numbers_of_sentences(tmp_path: Path) -> None:
    """Sorted by length, and in the order of the text among equal lengths; a wrong bin would mix right and wrong hypotheses."""
    lengths = [3, 1, 2, 3, 1, 9, 3]
    sources = ["x " * length for length in lengths]
    text = make_text(tmp_path / "text", [(row, ["das ist ein guter Satz"]) for row in range(7)], sources=sources)
    right = {1, 4, 2}  # the three shortest
    rows = [(row, 0, "das ist ein guter Satz" if row in right else "nein") for row in range(7)]
    context = context_in(tmp_path / "scores")
    inputs = ScoreInputs(make_hypotheses(tmp_path / "hypotheses", rows), text)
    STAGE.run(inputs, ScoreConfig(target_language="de", source_length_bins=3), context)
    bins = json.loads((context.directory / "by_source_length.json").read_text())["bins"]
    assert [(part["shortest"], part["longest"], part["sentences"]) for part in bins] == [(1, 2, 3), (3, 3, 2), (3, 9, 2)]
    assert [part["bleu"] for part in bins] == [100.0, 0.0, 0.0]


@pytest.mark.parametrize("search", [DagSearch, StepwiseSearch])
def test_samples_of_different_temperatures_have_different_labels(search: type[DagSearch] | type[StepwiseSearch]) -> None:
    assert search(strategy="sample").label == "sample"
    options = search().sampling
    assert search(strategy="sample", sampling=replace(options, temperature=0.4)).label == "sample-temperature0.4"


SENTENCES = [Sentence(0, "a b", ("x y", "other")), Sentence(1, "c", ("z",)), Sentence(2, "d\u2028e", ("é",))]
HYPOTHESES = ["x\r\nw", "z", ""]


@pytest.fixture
def checkpoint(tmp_path: Path) -> ExternalFile:
    path = tmp_path / "model.ckpt"
    path.write_text("{}")
    return ExternalFile(path, "0123456789abcdef0123")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("HF_HOME", "/encoders")
    directory = tmp_path / "score.partial"
    directory.mkdir()
    return WorkerContext(directory=directory, attempt="a-1", resources=Resources(workers=1, cpus=2), shard_cache=tmp_path)


def test_the_score_is_the_mean_over_sentences_with_the_first_reference(
    checkpoint: ExternalFile, context: Context, tmp_path: Path
) -> None:
    found = comet(comet_score(program(tmp_path), "evaluation"), checkpoint, SENTENCES, HYPOTHESES, context)
    assert found["score"] == pytest.approx(100 * (0.5 + 1 + 0) / 3, abs=1e-4)
    assert found["signature"] == "model:model|digest:0123456789abcdef|ref:first|version:unknown"


def test_the_version_is_that_of_the_environment_of_the_program(
    checkpoint: ExternalFile, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 2.2.7\n")
    python.chmod(0o755)
    program(python.parent)
    (tmp_path / "link").symlink_to(python.with_name("comet-score"))
    found = comet(comet_score(str(tmp_path / "link"), "evaluation"), checkpoint, SENTENCES, HYPOTHESES, context)
    assert found["signature"].endswith("|version:2.2.7")
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    assert comet(comet_score("comet-score", "evaluation"), checkpoint, SENTENCES, HYPOTHESES, context) == found


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            "sys.exit('one\\nRuntimeError: no encoder')",
            r"comet-score: ended with code 1; .*RuntimeError: no encoder .*comet-[0-9a-f]+\.txt",
        ),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "was ended by signal 9"),
        ("sys.exit(0)", "expected 3 scores in the JSON of comet-score, got FileNotFoundError"),
        ("open(given.to_json, 'w').write('{'); sys.exit(0)", "expected 3 scores .*, got JSONDecodeError"),
        ("rows = [{'mt': 'x'}] * 3", "expected 3 scores .*, got KeyError: 'COMET'"),
        ("rows.pop()", "expected 3 scores .*, got 2, of which 2 are numbers"),
        ("rows[0]['COMET'] = float('nan')", "expected 3 scores .*, got 3, of which 2 are numbers"),
    ],
)
def test_a_failure_of_the_program_is_reported(
    checkpoint: ExternalFile, context: Context, tmp_path: Path, edit: str, message: str
) -> None:
    with pytest.raises(StageError, match=message):
        comet(comet_score(program(tmp_path, edit), "evaluation"), checkpoint, SENTENCES, HYPOTHESES, context)


def test_a_missing_program_is_named(checkpoint: ExternalFile, context: Context) -> None:
    with pytest.raises(StageError, match=r"evaluation\.comet_program: expected .* as /nowhere/comet-score, found no such"):
        comet(comet_score("/nowhere/comet-score", "evaluation"), checkpoint, SENTENCES, HYPOTHESES, context)


def test_a_stop_ends_the_program(checkpoint: ExternalFile, context: Context, tmp_path: Path) -> None:
    (context.directory / STOP).touch()
    with pytest.raises(TransientError, match="asked to stop while comet-score was running"):
        comet(
            comet_score(program(tmp_path, "import time; time.sleep(60)"), "evaluation"), checkpoint, SENTENCES, HYPOTHESES, context
        )
