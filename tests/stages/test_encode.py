"""Token shards hold the ids of each row, whatever the workers and attempts; modifiers of training pairs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stages.encode.run
from fewstep.text.placeholders import placeholders
from stages.artifacts import Vocabulary
from stages.encode import EncodeConfig, EncodeInputs
from stages.encode.modifiers import INSERTED, Modifiers, modified
from stages.encode.run import encode_lines, run
from stages.errors import ArtifactError, StageError
from stages.shared.embedded import pairs
from stages.shared.shards import read_shard, row_counts, shard_path, shard_paths, write_shard
from stages.shared.vocabulary import processor
from stages.vocabulary import VocabularyConfig, VocabularyInputs
from stages.vocabulary.run import run as train_vocabulary
from stages.workers import LocalWorkers
from tests.stages.steps import ShuffledWorkers, context_in, read_json, results, rows_of, write_text

PAIRS = [*pairs("train", 0, 449), ("", "")]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> EncodeInputs:
    text = write_text(tmp_path_factory.mktemp("text"), PAIRS)
    directory = tmp_path_factory.mktemp("vocabulary")
    train_vocabulary(VocabularyInputs(text), VocabularyConfig(size=300, joint=False), context_in(directory))
    return EncodeInputs(text, Vocabulary(directory, "vocabulary"))


def test_every_row_has_its_ids(tmp_path: Path, inputs: EncodeInputs) -> None:
    run(inputs, EncodeConfig(), context_in(tmp_path))
    assert row_counts(tmp_path) == [100, 100, 100, 100, 50]
    rows = rows_of(tmp_path)
    assert [row["id"] for row in rows] == list(range(450))
    counts = {}
    for side, column in (("source", 0), ("target", 1)):
        pieces = processor(inputs.vocabulary.path, side)
        assert [row[side] for row in rows] == [pieces.encode(pair[column]) for pair in PAIRS]
        assert [pieces.decode(row[side]) for row in rows] == [pair[column] for pair in PAIRS]
        counts[f"{side}_tokens"] = sum(len(row[side]) for row in rows)
    assert rows[-1] == {"id": 449, "source": [], "target": []}
    said = read_json(tmp_path / "tokens.json")
    assert said == {"rows": 450, "shards": 5, "source_size": 300, "target_size": 300, **counts}
    assert read_json(tmp_path / "records" / "progress.json")["done"] == 450


def test_pairs_are_encoded_with_the_masks_of_their_vocabulary(tmp_path: Path) -> None:
    lines = [("one `x` and %s word", "mot %s et `x`"), ("only `y` here", "ici"), ("no such", "pas de")]
    text = write_text(tmp_path / "text", lines * 40)
    config = VocabularyConfig(size=70, joint=True, exact=False, placeholders=("code", "directive"))
    train_vocabulary(VocabularyInputs(text), config, context_in(tmp_path / "vocabulary"))
    run(EncodeInputs(text, Vocabulary(tmp_path / "vocabulary", "v")), EncodeConfig(), context_in(tmp_path / "tokens"))
    pieces = processor(tmp_path / "vocabulary", "source")
    found = [(pieces.decode(row["source"]), pieces.decode(row["target"])) for row in rows_of(tmp_path / "tokens")[:3]]
    assert found[0] == ("one ⟦code1⟧ and ⟦directive1⟧ word", "mot ⟦directive1⟧ et ⟦code1⟧")
    assert "⟦" not in "".join(found[1] + found[2]), "the target lacks it"


def test_sides_are_exchanged_and_modified_before_they_are_encoded(tmp_path: Path, inputs: EncodeInputs) -> None:
    run(inputs, EncodeConfig(swap=True, modifiers=Modifiers(upper_case=1.0)), context_in(tmp_path))
    source, target = (processor(inputs.vocabulary.path, side) for side in ("source", "target"))
    found = [(row["source"], row["target"]) for row in rows_of(tmp_path)]
    assert found == [(source.encode(german.upper()), target.encode(english.upper())) for english, german in PAIRS]


def test_long_sources_are_truncated_and_counted(tmp_path: Path, inputs: EncodeInputs) -> None:
    pieces = processor(inputs.vocabulary.path, "source")
    lengths = sorted(len(pieces.encode(source)) for source, _ in PAIRS)
    limit = lengths[len(lengths) // 2]
    run(inputs, EncodeConfig(max_source_tokens=limit), context_in(tmp_path / "cut"))
    rows = rows_of(tmp_path / "cut")
    assert [row["source"] for row in rows] == [pieces.encode(source)[:limit] for source, _ in PAIRS]
    assert [row["target"] for row in rows] == [processor(inputs.vocabulary.path, "target").encode(target) for _, target in PAIRS]
    said = read_json(tmp_path / "cut" / "tokens.json")
    cut = sum(length > limit for length in lengths)
    assert 100 < cut < 350
    assert (said["max_source_tokens"], said["sources_cut"], said["rows"]) == (limit, cut, 450)
    assert said["source_tokens"] == sum(min(length, limit) for length in lengths)


def test_sources_truncated_before_a_kill_are_counted(tmp_path: Path, inputs: EncodeInputs) -> None:
    config = EncodeConfig(max_source_tokens=9)
    run(inputs, config, context_in(tmp_path))
    whole = results(tmp_path)
    (tmp_path / "tokens.json").unlink()
    shard_path(tmp_path, 1).unlink()
    run(inputs, config, context_in(tmp_path))
    assert results(tmp_path) == whole


def test_ids_take_16_bits_where_they_fit(inputs: EncodeInputs) -> None:
    pieces = processor(inputs.vocabulary.path, "source")

    class Larger:
        def __init__(self, size: int) -> None:
            self.size = size

        def get_piece_size(self) -> int:
            return self.size

        def encode(self, lines: list[str], num_threads: int) -> list[list[int]]:
            return [[self.size - 1]] * len(lines)

    assert encode_lines(["a", ""], pieces).type == pa.list_(pa.uint16())
    for size, width in ((65535, pa.uint16()), (65536, pa.uint32()), (250_000, pa.uint32())):
        assert encode_lines(["a"], Larger(size)) == pa.array([[size - 1]], pa.list_(width))  # type: ignore[arg-type]


def test_the_result_does_not_depend_on_workers_and_their_order(tmp_path: Path, inputs: EncodeInputs) -> None:
    workers = ShuffledWorkers()
    run(inputs, EncodeConfig(), context_in(tmp_path / "one"))
    run(inputs, EncodeConfig(), context_in(tmp_path / "two", workers=workers))
    assert len(workers.done) == 5
    assert results(tmp_path / "one") == results(tmp_path / "two")


def test_a_rerun_keeps_whole_shards(tmp_path: Path, inputs: EncodeInputs, monkeypatch: pytest.MonkeyPatch) -> None:
    run(inputs, EncodeConfig(), context_in(tmp_path / "whole"))
    directory = tmp_path / "again"
    run(inputs, EncodeConfig(), context_in(directory))
    (directory / "tokens.json").unlink()
    shard_path(directory, 1).unlink()
    write_shard(shard_path(directory, 3), read_shard(shard_path(directory, 3)).slice(0, 7), context_in(directory))
    write_shard(shard_path(directory, 5), read_shard(shard_path(directory, 4)), context_in(directory))
    kept = shard_path(directory, 2).stat()
    encoded: list[int] = []
    original = encode_lines

    def counted(lines: list[str], pieces: Any) -> Any:
        encoded.append(len(lines))
        return original(lines, pieces)

    monkeypatch.setattr(stages.encode.run, "encode_lines", counted)
    run(inputs, EncodeConfig(), context_in(directory))
    assert encoded == [100] * 4
    assert shard_path(directory, 2).stat().st_mtime_ns == kept.st_mtime_ns
    assert results(directory) == results(tmp_path / "whole")


def test_appended_text_leaves_earlier_shards_as_they_are(tmp_path: Path, inputs: EncodeInputs) -> None:
    longer = write_text(tmp_path / "longer", [*PAIRS, *pairs("more", 0, 100)])
    run(inputs, EncodeConfig(), context_in(tmp_path / "one"))
    run(EncodeInputs(longer, inputs.vocabulary), EncodeConfig(), context_in(tmp_path / "two"))
    first, second = ([path.read_bytes() for path in shard_paths(tmp_path / name)[:4]] for name in ("one", "two"))
    assert first == second


def test_a_lost_shard_is_an_error(tmp_path: Path, inputs: EncodeInputs) -> None:
    class Forgetful(LocalWorkers):
        def map(self, make: Any, argument: Any, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
            yield from super().map(make, argument, shards[:-1])

    with pytest.raises(StageError, match="expected token shards of"):
        run(inputs, EncodeConfig(), context_in(tmp_path, workers=Forgetful()))
    assert not (tmp_path / "tokens.json").exists()


def test_a_damaged_text_shard_ends_the_step(tmp_path: Path, inputs: EncodeInputs) -> None:
    text = write_text(tmp_path / "text", PAIRS)
    shard_path(text.path, 2).write_bytes(b"ARROW1")
    with pytest.raises(ArtifactError, match=r"00002\.arrow"):
        run(EncodeInputs(text, inputs.vocabulary), EncodeConfig(), context_in(tmp_path / "tokens"))


PAIR = ("A man reads a good book.", "Ein Mann liest ein gutes Buch.")


def all_of(name: str, pair: tuple[str, str] = PAIR, pairs: int = 200) -> list[tuple[str, str]]:
    return [modified(Modifiers(**{name: 1.0}), number, *pair) for number in range(pairs)]


def test_case_and_punctuation_change_both_sides() -> None:
    assert set(all_of("upper_case")) == {("A MAN READS A GOOD BOOK.", "EIN MANN LIEST EIN GUTES BUCH.")}
    assert set(all_of("title_case", ("it's o'clock", "es ist ärgerlich"))) == {("It's O'clock", "Es Ist Ärgerlich")}
    assert set(all_of("remove_end_punctuation")) == {("A man reads a good book", "Ein Mann liest ein gutes Buch")}
    for kept in (("Hi!", "Hallo"), ("...", "..."), ("Hi", "Hallo")):
        assert set(all_of("remove_end_punctuation", kept)) == {kept}


def test_typos_change_one_word_in_ten_of_the_source_alone() -> None:
    words = " ".join("lettersabc" if number % 2 else "letters" for number in range(20))
    found = all_of("typos", (words, "ziel"))
    assert {target for _, target in found} == {"ziel"}
    for source, _ in found:
        differing = [new for new, old in zip(source.split(), words.split(), strict=True) if new != old]
        assert len(differing) <= 2, "a letter may be exchanged with an equal one"
    assert sum(source != words for source, _ in found) > 150
    assert {len(source) - len(words) for source, _ in found} == {-2, -1, 0, 1, 2}
    assert set(all_of("typos", ("a 12345 b", "x"))) == {("a 12345 b", "x")}, "no word with letters to mistype"


def test_a_placeholder_is_on_both_sides() -> None:
    found = all_of("placeholders")
    assert {text for text in INSERTED for pair in found if all(text in side for side in pair)} == set(INSERTED)
    for source, target in found:
        (one,) = placeholders(source)
        assert target in (f"{one[0]} {PAIR[1]}", f"{PAIR[1]} {one[0]}")
        assert source.replace(one[0], "").strip() == PAIR[0]


def test_shares_are_those_of_the_config_and_repeat() -> None:
    modifiers = Modifiers(upper_case=0.2, remove_end_punctuation=0.1)
    found = [modified(modifiers, number, *PAIR) for number in range(3000)]
    assert found == [modified(modifiers, number, *PAIR) for number in range(3000)]
    shares = [sum(pair[0] == text for pair in found) / 3000 for text in (PAIR[0].upper(), PAIR[0][:-1], PAIR[0])]
    assert shares == pytest.approx([0.2, 0.1, 0.7], abs=0.03)
