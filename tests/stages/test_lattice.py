"""Candidate tables as an artifact: the counts of all shards for any division of the work, and the recall of their lattices."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from fewstep import CandidateTables
from fewstep.native import fewstep_native
from fewstep.vocabulary import vocabulary_digest
from kernels import AlignmentModel, AlignOptions
from kernels.reference.candidates import Pair, ReferenceTables
from stages import align
from stages.artifacts import STOP, Links, Tokens, Vocabulary
from stages.errors import ArtifactError, DataError, TransientError
from stages.lattice import LatticeConfig, LatticeInputs
from stages.lattice import counts as lattice_counts
from stages.lattice.recall import CANDIDATES
from stages.lattice.run import run
from stages.shared.shards import shard_path, write_shards
from tests.stages.steps import ShuffledWorkers, context_in, results

SIZE = 40
RESULTS = ("tables.bin", "lattice.json")


def pairs_of(generator: random.Random, count: int) -> list[Pair]:
    """Sentences whose pieces translate to fixed pieces with some noise, mostly in order, some to two; empty sides among them."""
    pairs: list[Pair] = []
    for _ in range(count):
        source = [generator.randrange(3, SIZE) for _ in range(generator.randrange(10))]
        order = sorted(range(len(source)), key=lambda place: place + generator.random() * 2)
        order = [place for place in order for _ in range(generator.choice([1, 1, 1, 2]))]
        target = [source[place] * 7 % 37 + 3 if generator.random() < 0.8 else generator.randrange(3, SIZE) for place in order]
        pairs.append((source, target, [place if generator.random() < 0.9 else -1 for place in order]))
    return pairs


PAIRS, HELD = pairs_of(random.Random(1), 300), pairs_of(random.Random(2), 80)


def lists(rows: Sequence[Sequence[int]], kind: pa.DataType) -> pa.Array:
    return pa.array([list(row) for row in rows], pa.list_(kind))


def tokens_of(directory: Path, pairs: Sequence[Pair], shard_rows: int) -> Tokens:
    columns = {"source": lists([pair[0] for pair in pairs], pa.uint16()), "target": lists([pair[1] for pair in pairs], pa.uint16())}
    table = pa.table({"id": pa.array(range(len(pairs)), pa.int64()), **columns})
    context = context_in(directory)
    write_shards([table], directory, shard_rows, context)
    context.write_json(directory / "tokens.json", {"source_size": SIZE, "target_size": SIZE})
    return Tokens(directory, "tokens")


def links_of(directory: Path, pairs: Sequence[Pair], shard_rows: int, **described: Any) -> Links:
    table = pa.table({"id": pa.array(range(len(pairs)), pa.int64()), "forward": lists([pair[2] for pair in pairs], pa.int16())})
    context = context_in(directory)
    write_shards([table], directory, shard_rows, context)
    context.write_json(directory / "align.json", {"unit": "pieces", "forward": {"tension": 5.5}, **described})
    save_aligner(directory / "forward.align")
    return Links(directory, "links")


def inputs_of(directory: Path, pairs: Sequence[Pair] = PAIRS, shard_rows: int = 50) -> LatticeInputs:
    vocabulary = directory / "vocabulary"
    vocabulary.mkdir(parents=True, exist_ok=True)
    for side in ("source", "target"):
        (vocabulary / f"{side}.spm").write_bytes(side.encode())
    return LatticeInputs(
        tokens=tokens_of(directory / "tokens", pairs, shard_rows),
        links=links_of(directory / "links", pairs, shard_rows),
        validation=tokens_of(directory / "validation", HELD, 30),
        vocabulary=Vocabulary(vocabulary, "vocabulary"),
    )


def translations() -> dict[int, dict[int, float]]:
    """Return an invented P(y | x) of an aligner."""
    generator = random.Random(4)
    return {x: {y: generator.choice([0.1, 0.2, 0.3]) for y in range(SIZE) if generator.random() < 0.4} for x in range(SIZE - 3)}


def save_aligner(path: Path) -> None:
    rows = translations()
    lengths = [0, *(len(rows[x]) for x in range(SIZE - 3))]  # the null word has none
    options = AlignOptions()
    model = fewstep_native.model_of_cells(
        np.cumsum([0, *lengths]).astype(np.uint64), np.array([y for row in rows.values() for y in row], np.uint32),
        np.array([p for row in rows.values() for p in row.values()]), options.native(), False, 5.5, 1.0,
        fewstep_native.Bitext(),
    )  # fmt: skip
    AlignmentModel(model).save(path)


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice_counts, "RUN_ROWS", 60)


def test_the_tables_hold_the_counts_of_all_shards(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    config = LatticeConfig(max_offset=3, top=3, max_length=8)
    run(inputs, config, context_in(tmp_path / "out"))
    reference = ReferenceTables(max_offset=3, top=3, max_length=8, tension=5.5)
    reference.add(PAIRS)
    tables = CandidateTables.load(tmp_path / "out" / "tables.bin", vocabulary=vocabulary_digest(inputs.vocabulary.path))
    tables.verify()
    for x in range(SIZE):
        for offset in range(-4, 5):
            assert tables.row(x, offset) == reference.row(x, offset)
    said = json.loads((tmp_path / "out" / "lattice.json").read_text())
    counts = reference.counts
    assert {name: said[name] for name in counts} == counts
    assert min(counts[name] for name in ("pairs", "empty", "too_long", "linked", "unlinked", "dropped")) > 0
    assert (said["slope"], said["intercept"]) == reference.line()
    assert (said["tension"], said["reserved"], said["top"], said["max_offset"], said["max_length"]) == (5.5, 7, 3, 3, 8)
    kept = sum(count for x in range(SIZE) for offset in range(-3, 4) for _, count in reference.row(x, offset)[0])
    assert said["cut_share"] == 1 - kept / counts["linked"]
    assert said["dropped_share"] == counts["dropped"] / (counts["dropped"] + counts["linked"])
    assert said["file_bytes"] == (tmp_path / "out" / "tables.bin").stat().st_size
    assert sorted(results(tmp_path / "out")) == sorted(RESULTS)


@pytest.mark.parametrize("shard_rows", [300, 100, 18])
def test_any_shards_and_workers_give_the_same_bytes(tmp_path: Path, shard_rows: int) -> None:
    run(inputs_of(tmp_path / "a"), LatticeConfig(), context_in(tmp_path / "expected"))
    workers = ShuffledWorkers()
    run(inputs_of(tmp_path / "b", shard_rows=shard_rows), LatticeConfig(), context_in(tmp_path / "out", workers=workers))
    assert results(tmp_path / "out") == results(tmp_path / "expected")
    assert len(workers.done) == {300: 1, 100: 3, 18: 5}[shard_rows] + 1


def test_a_rerun_keeps_whole_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of(tmp_path, shard_rows=25)
    run(inputs, LatticeConfig(), context_in(tmp_path / "whole"))
    counted: list[str] = []
    original = lattice_counts.count_candidates

    def dying(source: Any, target: Any, links: Any, path: Path, *, options: Any) -> Any:
        if len(counted) == 3:
            path.write_bytes(b"half of a")
            raise KeyboardInterrupt
        counted.append(path.name)
        return original(source, target, links, path, options=options)

    monkeypatch.setattr(lattice_counts, "count_candidates", dying)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(inputs, LatticeConfig(), context_in(out))
    first = counted.copy()
    assert len(first) == 3
    monkeypatch.setattr(lattice_counts, "count_candidates", original)
    damaged = next((out / "checkpoints").rglob("00000-*.run"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    kept = {path: path.stat().st_mtime_ns for path in (out / "checkpoints").rglob("*.run") if path != damaged}
    assert len(kept) == 2
    again: list[Path] = []
    monkeypatch.setattr(
        lattice_counts, "count_candidates", lambda *args, options: again.append(args[3]) or original(*args, options=options)
    )
    run(inputs, LatticeConfig(), context_in(out, attempt="a2"))
    assert len(again) == len(lattice_counts.groups_of(inputs)) - 2
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert results(out) == results(tmp_path / "whole")


def test_counts_of_another_grouping_are_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of(tmp_path)
    run(inputs, LatticeConfig(), context_in(tmp_path / "out"))
    expected = results(tmp_path / "out")
    monkeypatch.setattr(lattice_counts, "RUN_ROWS", 1000)
    run(inputs, LatticeConfig(), context_in(tmp_path / "out"))
    assert results(tmp_path / "out") == expected


def test_a_request_to_stop_keeps_counts(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    context = context_in(tmp_path / "out")
    (tmp_path / "out" / STOP).touch()
    with pytest.raises(TransientError, match="links of 100 of 300 pairs are counted and kept"):
        run(inputs, LatticeConfig(), context)
    (tmp_path / "out" / STOP).unlink()
    run(inputs, LatticeConfig(), context)
    assert json.loads((tmp_path / "out" / "records" / "progress.json").read_text())["done"] == 300


def recall_by_hand(reference: ReferenceTables, window: int) -> dict[int, list[float]]:
    """By K: recall with true and with predicted length, of vocabularies of K words and of K a source piece, words of these."""
    rows = translations()
    ranked = {x: sorted((y for y in row if y >= 7), key=lambda y: (-row[y], y)) for x, row in rows.items()}
    result = {}
    for count in CANDIDATES:
        hits, words, tokens = [0, 0, 0, 0], 0, 0
        for source, target, _ in HELD:
            shared = {y for x in source for y in ranked.get(x, [])[:count]}
            best = {y: max(rows[x].get(y, 0.0) for x in source if x in rows) for x in source for y in ranked.get(x, [])}
            narrow = sorted(best, key=lambda y: (-best[y], y))[:count]
            words += len(shared)
            for slot, y in enumerate(target):
                found = y in dict(reference.candidates(source, slot, count))
                within = slot < reference.length_range(len(source), window)[1]
                hits = [total + hit for total, hit in zip(hits, (found, found and within, y in narrow, y in shared), strict=True)]
                tokens += 1
        result[count] = [*(total / tokens for total in hits), words / len(HELD)]
    return result


def test_recall_agrees_with_a_count_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.lattice.recall.SLOTS", 50)
    run(inputs_of(tmp_path), LatticeConfig(length_window=0), context_in(tmp_path / "out"))
    reference = ReferenceTables(tension=5.5)
    reference.add(PAIRS)
    expected = recall_by_hand(reference, 0)
    records = tmp_path / "out" / "records"
    lines = [json.loads(line) for line in (records / "metrics.a1.jsonl").read_text().splitlines()]
    names = ("recall", "recall_predicted_length", "recall_shared_tokens", "recall_shared_vocabulary")
    assert {line["step"]: [line[name] for name in names] for line in lines} == {k: v[:4] for k, v in expected.items()}
    by_count = [expected[count] for count in CANDIDATES]
    for column in range(5):
        values = [values[column] for values in by_count]
        assert values == sorted(values)
        assert values[0] < values[-1]
    assert any(values[1] < values[0] for values in by_count)
    table = json.loads((records / "tables" / "lattice_recall.json").read_text())
    assert [row[0] for row in table["rows"]] == [str(count) for count in CANDIDATES]
    assert table["rows"][3][1:] == [*(f"{100 * value:.1f}" for value in expected[8][:4]), f"{expected[8][4]:.0f}"]
    assert all(len(row) == len(table["columns"]) for row in table["rows"])
    figure = (records / "figures" / "lattice_recall.svg").read_text()
    ElementTree.fromstring(figure)
    assert "shared vocabulary of K tokens" in figure
    assert json.loads((records / "figures" / "lattice_recall.json").read_text())["caption"] == table["caption"]


def test_links_of_the_align_stage_are_counted(tmp_path: Path) -> None:
    made = []
    for shard_rows in (300, 50):
        directory = tmp_path / str(shard_rows)
        inputs = inputs_of(directory, shard_rows=shard_rows)
        align.STAGE.run(align.AlignInputs(inputs.tokens), align.AlignConfig(), context_in(directory / "align"))
        run(replace(inputs, links=Links(directory / "align", "align")), LatticeConfig(), context_in(directory / "out"))
        made.append(results(directory / "out"))
        said, aligned = (json.loads((directory / path).read_text()) for path in ("out/lattice.json", "align/align.json"))
        assert said["tension"] == aligned["forward"]["tension"]
        assert said["linked"] > 0.8 * sum(len(pair[1]) for pair in PAIRS)
        lines = [json.loads(line) for line in (directory / "out/records/metrics.a1.jsonl").read_text().splitlines()]
        assert lines[6]["recall"] > 0.5
        assert lines[6]["recall_shared_vocabulary"] > 0.5
    assert made[0] == made[1]


def test_without_the_aligners_probabilities_there_is_no_shared_vocabulary(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    (inputs.links.path / "forward.align").unlink()
    run(inputs, LatticeConfig(), context_in(tmp_path / "out"))
    records = tmp_path / "out" / "records"
    line = json.loads((records / "metrics.a1.jsonl").read_text().splitlines()[0])
    assert line.keys() == {"step", "time", "recall", "recall_predicted_length"}
    table = json.loads((records / "tables" / "lattice_recall.json").read_text())
    assert [len(table["columns"]), *map(len, table["rows"])] == [3] * (1 + len(CANDIDATES))
    assert "shared" not in table["caption"]


@pytest.mark.parametrize("content", ["", "[]", '{"unit": "pieces"}', '{"unit": "pieces", "forward": {"tension": null}}'])
def test_an_unreadable_alignment_is_refused(tmp_path: Path, content: str) -> None:
    inputs = inputs_of(tmp_path)
    (inputs.links.path / "align.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"align\.json: expected JSON with unit and forward.tension, got"):
        run(inputs, LatticeConfig(), context_in(tmp_path / "out"))


def test_a_damaged_aligner_is_refused(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    path = inputs.links.path / "forward.align"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ArtifactError, match=r"forward\.align: expected a fitted aligner, got"):
        run(inputs, LatticeConfig(), context_in(tmp_path / "out"))


def test_links_between_words_are_refused(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    links = links_of(tmp_path / "words", PAIRS, 50, unit="words")
    with pytest.raises(DataError, match="expected links between pieces, got links between words"):
        run(replace(inputs, links=links), LatticeConfig(), context_in(tmp_path / "out"))


def test_a_wider_window_finds_no_less(tmp_path: Path) -> None:
    found = []
    for window in (0, 1, 9):
        run(inputs_of(tmp_path), LatticeConfig(length_window=window), context_in(tmp_path / str(window)))
        lines = (tmp_path / str(window) / "records" / "metrics.a1.jsonl").read_text().splitlines()
        found.append([json.loads(line) for line in lines])
    for narrow, wide in zip(found[0], found[1], strict=True):
        assert narrow["recall_predicted_length"] < wide["recall_predicted_length"] <= wide["recall"]
    assert all(line["recall_predicted_length"] == line["recall"] for line in found[2])


def test_links_of_other_tokens_are_refused(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    fewer = links_of(tmp_path / "fewer", PAIRS[:250], 50)
    other = links_of(tmp_path / "other", PAIRS[::-1], 50)
    beyond = links_of(tmp_path / "beyond", [*PAIRS[:7], (*PAIRS[7][:2], [99] * len(PAIRS[7][1])), *PAIRS[8:]], 50)
    assert PAIRS[7][1]
    for links, message in (
        (fewer, "fewer: expected links of 300 pairs in 6 shards, as in .*tokens, got 250 in 5; align these tokens"),
        (other, r"00000\.arrow: row \d+: expected an entry for each of the \d+ target pieces, got \d+; align these tokens"),
        (beyond, "beyond: pair 7: a link leads to position 99 of"),
    ):
        with pytest.raises(ArtifactError, match=message):
            run(replace(inputs, links=links), LatticeConfig(), context_in(tmp_path / "out"))
    assert not (tmp_path / "out" / "tables.bin").exists()


def test_pieces_outside_the_vocabulary_are_refused(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [([SIZE], [9], [0])])
    with pytest.raises(ArtifactError, match=f"pair 0: source piece {SIZE} is outside the vocabulary of {SIZE}"):
        run(inputs, LatticeConfig(), context_in(tmp_path / "out"))


@pytest.mark.parametrize("side", ["source", "target"])
def test_validation_pieces_outside_the_vocabulary_are_refused(tmp_path: Path, side: str) -> None:
    pairs: list[Pair] = [([SIZE], [9], []) if side == "source" else ([9], [SIZE], [])]
    inputs = replace(inputs_of(tmp_path), validation=tokens_of(tmp_path / "other", pairs, 5))
    with pytest.raises(ArtifactError, match=f"other: .*{side} piece {SIZE} is outside the tables' vocabulary of {SIZE}"):
        run(inputs, LatticeConfig(), context_in(tmp_path / "out"))


def test_a_damaged_shard_ends_the_step(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    path = shard_path(inputs.links.path, 2)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArtifactError, match=r"00002\.arrow"):
        run(inputs, LatticeConfig(), context_in(tmp_path / "out"))


@pytest.mark.parametrize("pairs", [[], [([], [], [])], [([9], [9], [-1])], [([9] * 300, [9], [0])], [([9] * 200, [9], [199])]])
def test_a_text_without_links_is_refused(tmp_path: Path, pairs: list[Pair]) -> None:
    inputs = inputs_of(tmp_path, pairs)
    with pytest.raises(DataError, match="lattice: expected links within 127 positions in pairs of at most 256 pieces, got none"):
        run(inputs, LatticeConfig(), context_in(tmp_path / "out"))
    assert not (tmp_path / "out" / "lattice.json").exists()


def test_a_validation_text_without_tokens_has_no_recall(tmp_path: Path) -> None:
    empty: list[Pair] = [([], [], []), ([9], [], [])]
    inputs = replace(inputs_of(tmp_path), validation=tokens_of(tmp_path / "empty", empty, 5))
    run(inputs, LatticeConfig(), context_in(tmp_path / "out"))
    lines = (tmp_path / "out" / "records" / "metrics.a1.jsonl").read_text().splitlines()
    assert all(json.loads(line)["recall"] == 0 for line in lines)


def test_digests_distinguish_vocabularies(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    run(inputs, LatticeConfig(), context_in(tmp_path / "out"))
    (inputs.vocabulary.path / "target.spm").write_bytes(b"other")
    with pytest.raises(ValueError, match="build the tables with the vocabulary"):
        CandidateTables.load(tmp_path / "out" / "tables.bin", vocabulary=vocabulary_digest(inputs.vocabulary.path))


def test_an_unwritable_directory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stages.errors import StageError

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device", "tables.bin")

    monkeypatch.setattr(lattice_counts, "merge_candidates", full)
    with pytest.raises(StageError, match="could not be written: No space left on device"):
        run(inputs_of(tmp_path), LatticeConfig(), context_in(tmp_path / "out"))
