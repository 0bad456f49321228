"""The corpus step: its output, the inputs that it refuses, and equal bytes from repeated runs."""

import json
import os
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stages.artifacts import ExternalFile, Text
from stages.corpus import CorpusConfig, CorpusInputs, Filters, TextFiles
from stages.corpus.filters import comparison_keys
from stages.corpus.run import run
from stages.errors import ArtifactError, DataError, StageError
from stages.shared.embedded import documents
from stages.shared.shards import read_shards, row_counts, shard_path, shard_paths
from tests.public_data import public_data
from tests.stages.corpus.texts import context_in

PAIRS = [(f"Sentence number {i} is here.", f"Der Satz mit der Nummer {i} steht da.") for i in range(50)]


def sides(folder: Path, pairs: list[tuple[str, str]], *references: list[str]) -> TextFiles:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, lines in enumerate([[s for s, _ in pairs], [t for _, t in pairs], *references]):
        (folder / str(name)).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        files.append((ExternalFile(folder / str(name), f"digest {name}"),))
    return TextFiles(source=files[0], target=files[1], references=tuple(files[2:]))


def write(directory: Path, files: TextFiles | None = None, exclude: tuple[Text, ...] = (), **config: Any) -> Text:
    settings = {"source_language": "en", "target_language": "de", "shard_rows": 16, **config}
    run(CorpusInputs(files or TextFiles(), exclude), CorpusConfig(**settings), context_in(directory))
    return Text(directory, directory.name)


def rows(text: Text) -> list[dict[str, Any]]:
    return [row for table in read_shards(text.path) for row in table.to_pylist()]


def results(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and not {"records", "checkpoints"} & {*path.parts})
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_training_text(tmp_path: Path) -> None:
    test = write(tmp_path / "test", sides(tmp_path / "x", [("Sentence: NUMBER 3 is here!", "unlike anything")]))
    dirty = [("", "x"), *PAIRS, PAIRS[0], ("  Two\u00a0 spaces ", "Zwei  Leerzeichen")]
    text = write(tmp_path / "train", sides(tmp_path / "y", dirty), (test,), filters=Filters())
    expected = [pair for i, pair in enumerate(PAIRS) if i != 3] + [("Two spaces", "Zwei Leerzeichen")]
    assert [(row["id"], row["source"], row["target"]) for row in rows(text)] == [(i, *pair) for i, pair in enumerate(expected)]
    assert next(read_shards(text.path)).schema == pa.schema([("id", pa.int64()), ("source", pa.string()), ("target", pa.string())])
    assert row_counts(text.path) == [16, 16, 16, 2]
    assert json.loads((text.path / "text.json").read_text()) == {"rows": 50, "shards": 4, "shard_rows": 16}
    ledger = json.loads((text.path / "ledger.json").read_text())
    assert (ledger["pairs_in"], ledger["pairs_out"]) == (53, 50)
    assert {reason: n for reason, n in ledger["dropped"].items() if n} == {"empty": 1, "overlap": 1, "duplicate": 1}
    assert ledger["samples"]["duplicate"] == [{"pair": 52, "source": PAIRS[0][0], "target": PAIRS[0][1]}]
    assert [(file["side"], file["digest"], file["lines"]) for file in ledger["files"]] == [
        ("source", "digest 0", 53),
        ("target", "digest 1", 53),
    ]


def test_a_test_text_keeps_every_line(tmp_path: Path) -> None:
    lines = [("same", "same"), ("", ""), ("same", "same"), (" a\tb ", "…")]
    text = write(tmp_path / "test", sides(tmp_path / "x", lines, ["r", " s", "t", "u"], ["1", "2", "3", "4"]))
    assert rows(text) == [
        {"id": 0, "source": "same", "target": "same", "references": ["same", "r", "1"]},
        {"id": 1, "source": "", "target": "", "references": ["", "s", "2"]},
        {"id": 2, "source": "same", "target": "same", "references": ["same", "t", "3"]},
        {"id": 3, "source": "a b", "target": "…", "references": ["…", "u", "4"]},
    ]
    assert not (text.path / "ledger.json").exists()


def test_further_references_are_kept_out_of_training_too(tmp_path: Path) -> None:
    test = write(tmp_path / "test", sides(tmp_path / "x", [("s", "t")], [PAIRS[7][1].upper()]))
    text = write(tmp_path / "train", sides(tmp_path / "y", PAIRS), (test,), filters=Filters())
    assert PAIRS[7][0] not in {row["source"] for row in rows(text)}
    assert len(rows(text)) == 49


@pytest.mark.parametrize("break_it", ["no shards", "cut shard", "blank lines"])
def test_an_excluded_text_that_cannot_be_compared_stops_the_step(tmp_path: Path, break_it: str) -> None:
    lines = [(" ", "")] * 3 if break_it == "blank lines" else PAIRS[:3]
    good = write(tmp_path / "good", sides(tmp_path / "g", PAIRS[4:5]))
    test = write(tmp_path / "test", sides(tmp_path / "x", lines))
    if break_it == "no shards":
        shard_path(test.path, 0).unlink()
    if break_it == "cut shard":
        os.truncate(shard_path(test.path, 0), 40)
    with pytest.raises((DataError, ArtifactError), match=str(test.path)):
        write(tmp_path / "train", sides(tmp_path / "y", PAIRS), (good, test), filters=Filters())
    assert not (tmp_path / "train" / "text.json").exists()


def test_overlap_that_passes_the_filter_is_found_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = write(tmp_path / "test", sides(tmp_path / "x", PAIRS[:1]))
    monkeypatch.setattr("stages.corpus.filters._among", lambda keys, excluded: np.zeros(len(keys), bool))
    monkeypatch.setattr(
        "stages.corpus.write.overlap", lambda texts, excluded: np.isin(comparison_keys(texts).to_pylist(), excluded.to_pylist())
    )
    with pytest.raises(StageError, match="expected no sentence of a validation or test text in the source side"):
        write(tmp_path / "train", sides(tmp_path / "y", PAIRS), (test,), filters=Filters())
    assert not (tmp_path / "train" / "text.json").exists()


def test_an_empty_text_is_an_error(tmp_path: Path) -> None:
    for filters in (None, Filters()):
        with pytest.raises(DataError, match=r"got an empty text: .*x/0, .*x/1"):
            write(tmp_path / "text", sides(tmp_path / "x", []), filters=filters)


def test_a_text_whose_pairs_are_all_dropped_is_an_error_with_the_ledger(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'got none of 2; the ledger: .*"length": 2'):
        write(tmp_path / "text", sides(tmp_path / "x", [("a b", "c d"), ("e f", "g h")]), filters=Filters(min_length=3))


def test_an_error_late_in_a_file_leaves_no_finished_text(tmp_path: Path) -> None:
    files = sides(tmp_path / "x", PAIRS)
    for side, line in ((files.source, b"good"), (files.target, b"\xff")):
        with side[0].path.open("ab") as file:
            file.write(line + b"\n")
    with pytest.raises(DataError, match=r"x/1, line 51"):
        write(tmp_path / "text", files, filters=Filters())
    assert not (tmp_path / "text" / "text.json").exists()


def test_repeated_runs_write_equal_bytes_whatever_an_earlier_attempt_left(tmp_path: Path) -> None:
    test = write(tmp_path / "test", embedded=40, part="test")
    for name in ("one", "two"):
        if name == "two":
            write(tmp_path / name, embedded=900, part="other", filters=Filters())
        write(tmp_path / name, exclude=(test,), embedded=500, filters=Filters())
    assert results(tmp_path / "one") == results(tmp_path / "two")


def test_the_result_does_not_depend_on_paths(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, sides(tmp_path / f"files of {name}", PAIRS), filters=Filters())
    assert results(tmp_path / "one") == results(tmp_path / "two")


@pytest.mark.parametrize("filters", [None, Filters()])
def test_appended_text_does_not_change_earlier_shards(tmp_path: Path, filters: Filters | None) -> None:
    first = write(tmp_path / "one", sides(tmp_path / "x", PAIRS[:36]), filters=filters)
    second = write(tmp_path / "two", sides(tmp_path / "y", PAIRS), filters=filters)
    whole = [path.read_bytes() for path in shard_paths(first.path)[:2]]
    assert whole == [path.read_bytes() for path in shard_paths(second.path)[:2]]


def test_the_embedded_corpus_in_both_directions(tmp_path: Path) -> None:
    forth = rows(write(tmp_path / "forth", embedded=20, part="demo"))
    back = rows(write(tmp_path / "back", embedded=20, part="demo", source_language="de", target_language="en"))
    assert [(row["source"], row["target"]) for row in forth] == [(row["target"], row["source"]) for row in back]
    assert forth[0]["source"] != forth[0]["target"]
    with pytest.raises(DataError, match="expected languages en and de, got en and fr"):
        write(tmp_path / "french", embedded=20, target_language="fr")


def test_embedded_documents(tmp_path: Path) -> None:
    languages = {"task": "summarization", "target_language": "en"}
    text = rows(write(tmp_path / "text", embedded=20, part="demo", **languages))
    assert [(row["source"], row["target"]) for row in text] == list(documents("demo", 0, 20))
    with pytest.raises(DataError, match="expected languages en and en, got en and de"):
        write(tmp_path / "german", embedded=20, task="summarization")


def test_training_text_shares_nothing_with_the_embedded_test_text(tmp_path: Path) -> None:
    test = write(tmp_path / "test", embedded=300, part="train")
    train = write(tmp_path / "train", exclude=(test,), embedded=1000, part="train", filters=Filters())
    known = {row[side] for row in rows(test) for side in ("source", "target")}
    assert not known & {row[side] for row in rows(train) for side in ("source", "target")}
    assert 0 < len(rows(train)) <= 700


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    def peak(copies: int) -> int:
        lines = [(f"The man with number {i} sleeps here.", f"Der Mann mit der Nummer {i} schläft da.") for i in range(copies)]
        files = sides(tmp_path / f"in {copies}", lines)
        del lines
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        write(tmp_path / f"out {copies}", files, filters=Filters(), shard_rows=4096)
        python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert pa.total_allocated_bytes() - arrow < 1 << 20
        return python

    peak(100)  # imports and caches
    assert peak(100_000) < 60 << 20


def test_real_text(tmp_path: Path) -> None:
    folder = public_data("multi30k")

    def of(name: str) -> TextFiles:
        return TextFiles(source=(ExternalFile(folder / f"{name}.en", "s"),), target=(ExternalFile(folder / f"{name}.de", "t"),))

    test = write(tmp_path / "test", of("test_2016"))
    text = write(tmp_path / "validation", of("val"), (test,), filters=Filters())
    lines = (folder / "val.de").read_text(encoding="utf-8").splitlines()
    kept = [row["target"] for row in rows(text)]
    assert len(rows(test)) == 1000
    assert len(kept) > 1000
    assert set(kept) <= {re.sub("[ \t]+", " ", line).strip() for line in lines}, "no-break spaces are kept"
