"""Filters that are off by default: other languages, and near-duplicates, which are found whatever the pieces."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import durable
from stages.artifacts import ExternalFile
from stages.corpus import CorpusConfig, CorpusInputs, Filters, TextFiles, duplicates
from stages.corpus.run import run
from stages.corpus.similarity import band_hashes
from stages.errors import DataError
from stages.shared.shards import read_shards
from tests.stages.corpus.texts import context_in

LONG = [
    "the",
    "quick",
    "brown",
    "fox",
    "that",
    "jumped",
    "over",
    "the",
    "lazy",
    "dog",
    "went",
    "on",
    "to",
    "the",
    "old",
    "farm",
    "behind",
    "the",
    "hill",
    "and",
    "slept",
    "there",
    "until",
    "noon",
]


@pytest.fixture(autouse=True, scope="module")
def _quick_disk() -> Iterator[None]:
    """Leave out the syncs, which many small files would wait for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable.RealDisk, "sync", lambda self, path: None)
        yield


def write(folder: Path, pairs: list[tuple[str, str]], piece_rows: int = 1000, **filters: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the sources that are kept, and the ledger."""
    folder.mkdir(parents=True)
    (folder / "in").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    config = CorpusConfig(source_language="en", target_language="de", filters=Filters(**filters), shard_rows=5)
    inputs = CorpusInputs(TextFiles(tsv=(ExternalFile(folder / "in", "in"),)))
    run(inputs, config, context_in(folder / "out"), piece_rows)
    kept = [source for table in read_shards(folder / "out") for source in table["source"].to_pylist()]
    return kept, json.loads((folder / "out" / "ledger.json").read_text())


def test_pairs_in_another_language_are_dropped(tmp_path: Path) -> None:
    pytest.importorskip("py3langid", reason="languages are identified by py3langid (pip install py3langid)")
    good = [
        ("The weather will be fine tomorrow in the whole country.", "Das Wetter wird morgen im ganzen Land schön sein."),
        ("Hello", "Hallo"),
    ]
    wrong = [
        ("Le temps sera beau demain dans tout le pays.", "Das Wetter wird morgen im ganzen Land sehr schön sein."),
        ("The weather will be very fine tomorrow in the country.", "The weather will be fine tomorrow in the whole land."),
    ]
    kept, ledger = write(tmp_path / "on", [*good, *wrong], max_other_language=0.8)
    assert kept == [source for source, _ in good]
    assert ledger["dropped"]["language"] == 2
    assert [sample["pair"] for sample in ledger["samples"]["language"]] == [3, 4]
    kept, ledger = write(tmp_path / "off", [*good, *wrong])
    assert len(kept) == 4
    assert "language" not in ledger["dropped"]


def test_a_language_that_the_package_does_not_know_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("py3langid", reason="languages are identified by py3langid (pip install py3langid)")
    config = CorpusConfig(source_language="en", target_language="tlh", filters=Filters(max_other_language=0.8))
    (tmp_path / "in").write_text("a\tb\n")
    with pytest.raises(DataError, match=r"max_other_language .* does not know the language tlh"):
        run(CorpusInputs(TextFiles(tsv=(ExternalFile(tmp_path / "in", "in"),))), config, context_in(tmp_path / "out"))


def test_near_duplicates_are_dropped_after_the_first(tmp_path: Path) -> None:
    pytest.importorskip("datasketch", reason="near-duplicates are found by datasketch (pip install datasketch)")
    first = (" ".join(LONG), " ".join(reversed(LONG)))
    almost = (f"{first[0]}.", first[1])
    other = (" ".join(LONG[::2]), " ".join(LONG[1::2]))
    kept, ledger = write(tmp_path / "on", [first, other, almost, first], max_similarity=0.7)
    assert kept == [first[0], other[0]]
    assert {reason: ledger["dropped"][reason] for reason in ("duplicate", "similar")} == {"duplicate": 1, "similar": 1}
    assert ledger["samples"]["similar"] == [{"pair": 3, "source": almost[0], "target": almost[1]}]
    kept, ledger = write(tmp_path / "alone", [first, other, almost, first], max_similarity=0.7, drop_duplicates=False)
    assert kept == [first[0], other[0]]
    assert ledger["dropped"]["similar"] == 2


@given(
    edits=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 22)), min_size=1, max_size=25),
    piece_rows=st.integers(1, 30),
    partition=st.integers(1, 50),
)
def test_any_pieces_find_the_pairs_that_share_a_band(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]], piece_rows: int, partition: int
) -> None:
    pytest.importorskip("datasketch", reason="near-duplicates are found by datasketch (pip install datasketch)")
    folder = tmp_path_factory.mktemp("similar")
    pairs = []
    for start, edit in edits:
        words = [*LONG[start * 7 :], *LONG[: start * 7]]
        words[edit] = "other" if edit % 3 else words[edit]
        pairs.append((" ".join(words), " ".join(words[::-1])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "PARTITION_KEYS", partition)
        kept, ledger = write(folder / "some", pairs, piece_rows, max_similarity=0.7, drop_duplicates=False)
    sides = [pa.array(side, pa.string()) for side in zip(*pairs, strict=True)]
    keys = band_hashes(pa.table(sides, ["source", "target"]), ("en", "de"), 0.7)
    similar = [any(np.isin(keys[row], keys[:row])) for row in range(len(pairs))]
    assert kept == [source for (source, _), dropped in zip(pairs, similar, strict=True) if not dropped]
    assert ledger["dropped"]["similar"] == sum(similar)
