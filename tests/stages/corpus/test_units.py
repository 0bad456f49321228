"""Files of units (PO, TMX, XLIFF) as a text: rows, reasons in the ledger, places, and pieces."""

from __future__ import annotations

import gzip
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.artifacts import ExternalFile
from stages.corpus import CorpusConfig, CorpusInputs, Filters, TextFiles
from stages.corpus.indexed_text import count_rows
from stages.corpus.readers import lines
from stages.corpus.run import run
from stages.errors import DataError
from stages.shared import expansion
from stages.shared.shards import read_shards
from tests.shared import public_data
from tests.stages.steps import context_in, opened, tables

HEADER = 'msgid ""\nmsgstr "Language: de\\nContent-Type: text/plain; charset=UTF-8\\n"\n'
MESSAGES = f"""{HEADER}
msgid "A man\\n\\tsleeps %s."
msgstr "Ein Mann schläft %s."

#, fuzzy
msgid "second"
msgstr "zweite"

msgid "third"
msgstr ""

msgid "fourth words"
msgstr "vierte Wörter"
"""
TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en"><seg>fifth &amp; words</seg></tuv><tuv xml:lang="de-AT"><seg>fünfte &amp; Wörter</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>sixth</seg></tuv><tuv xml:lang="fr"><seg>sixième</seg></tuv></tu>
</body></tmx>
"""


def file(path: Path, text: str, member: str = "") -> ExternalFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, data)
    elif path.suffix == ".tgz":
        (path.parent / "inside").write_bytes(data)
        with tarfile.open(path, "w:gz") as archive:
            archive.add(path.parent / "inside", member)
    else:
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return ExternalFile(path, text, member)


def made(
    inputs: TextFiles, folder: Path, filters: Filters | None, piece_rows: int = 1 << 17
) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Return the pairs and the ledger of a text."""
    context = context_in(folder)
    config = CorpusConfig(source_language="en", target_language="de", filters=filters)
    run(CorpusInputs(inputs), config, context, piece_rows)
    rows = [tuple(row.values())[1:] for table in read_shards(folder) for row in table.to_pylist()]
    ledger = folder / "ledger.json"
    return rows, json.loads(ledger.read_text()) if ledger.exists() else {}


@pytest.mark.parametrize(("name", "member"), [("a.po", ""), ("a.po.gz", ""), ("a.zip", "b/a.po"), ("a.tgz", "b/a.po.gz")])
def test_messages_are_rows_and_what_is_no_pair_is_counted(tmp_path: Path, name: str, member: str) -> None:
    if member.endswith(".gz"):
        member = member[:-3]
    files = TextFiles(po=(file(tmp_path / "in" / name, MESSAGES, member), file(tmp_path / "in/c.po", HEADER)))
    assert count_rows(files, ("en", "de")) == 2
    found = [row for table in tables(files, tmp_path) for row in table.to_pylist()]
    assert [row["skipped"] for row in found] == ["", "fuzzy", "untranslated", ""]
    rows, ledger = made(files, tmp_path / "test", None)
    assert rows == [("A man sleeps %s.", "Ein Mann schläft %s."), ("fourth words", "vierte Wörter")]
    assert (ledger["pairs_in"], ledger["pairs_out"]) == (4, 2)
    assert {reason: pairs for reason, pairs in ledger["dropped"].items() if pairs} == {"untranslated": 1, "fuzzy": 1}
    assert ledger["samples"]["fuzzy"] == [{"pair": 2, "source": "second", "target": "zweite", "file": 1, "line": 8}]


def test_formats_are_joined_and_samples_have_their_places(tmp_path: Path) -> None:
    source, target = file(tmp_path / "a.en", "one\nsame\n"), file(tmp_path / "a.de", "eins\nsame\n")
    files = TextFiles((source,), (target,), po=(file(tmp_path / "a.po", MESSAGES),), tmx=(file(tmp_path / "a.tmx", TMX),))
    for rows in (2, 3, 100):
        found, ledger = made(files, tmp_path / f"rows{rows}", Filters(), rows)
        assert found == [
            ("one", "eins"),
            ("A man sleeps %s.", "Ein Mann schläft %s."),
            ("fourth words", "vierte Wörter"),
            ("fifth & words", "fünfte & Wörter"),
        ]
        places = {reason: [(one["file"], one["line"]) for one in samples] for reason, samples in ledger["samples"].items()}
        numbers = [name["side"] for name in ledger["files"]]
        assert numbers == ["source", "target", "po", "tmx"]
        assert places == {"identical": [(1, 2)], "fuzzy": [(3, 8)], "untranslated": [(3, 11)], "no_language": [(4, 4)]}


def test_a_long_unit_is_refused_with_its_line(tmp_path: Path) -> None:
    long = "x" * (1 << 20)
    files = TextFiles(po=(file(tmp_path / "a.po", f'{HEADER}\nmsgid "{long}"\nmsgstr "y"\n'),))
    with pytest.raises(DataError, match=r"a\.po, line 4: expected at most 1,048,576 bytes"):
        opened(files, tmp_path)


def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path) -> None:
    files = TextFiles(tmx=(file(tmp_path / "a.tmx", TMX[:-20]),))
    with pytest.raises(
        DataError, match=r"a\.tmx, line 4: expected well-formed XML, got: no element found; the file may be cut off"
    ):
        opened(files, tmp_path)
    with pytest.raises(DataError, match=r"b\.po: expected a file, got none"):
        opened(TextFiles(po=(ExternalFile(tmp_path / "b.po", ""),)), tmp_path)


@given(st.lists(st.sampled_from(["", "fuzzy", "text"]), max_size=20), st.integers(1, 60), st.integers(1, 7))
def test_rows_do_not_depend_on_blocks_and_ranges(kinds: list[str], block: int, step: int) -> None:
    text = "".join(
        f'\n{"#, fuzzy" if kind == "fuzzy" else "#"}\nmsgid "é {number}"\nmsgstr "{kind and "ü" * number}"\n'
        for number, kind in enumerate(kinds)
    )
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        patch.setattr(expansion, "BLOCK_BYTES", block)
        found = opened(TextFiles(po=(file(Path(name) / "a.po", text),)), Path(name))
        assert found.rows == len(kinds)
        rows = [
            row
            for start in range(0, len(kinds), step)
            for table in found.read(start, min(start + step, len(kinds)))
            for row in table.to_pylist()
        ]
        assert [row["source"] for row in rows] == [f"é {number}" for number in range(len(kinds))]
        assert [found.place(row) for row in range(len(kinds))] == [(1, 4 * row + 3) for row in range(len(kinds))]


def test_a_folder_of_real_files(tmp_path: Path) -> None:
    paths = sorted(public_data("po-fr").rglob("*.po"))
    files = TextFiles(po=tuple(ExternalFile(path, str(path)) for path in paths))
    context = context_in(tmp_path)
    config = CorpusConfig(source_language="en", target_language="fr", filters=Filters())
    run(CorpusInputs(files), config, context)
    ledger = json.loads((tmp_path / "ledger.json").read_text())
    assert ledger["pairs_in"] == 6639
    assert {reason: ledger["dropped"][reason] for reason in ("untranslated", "fuzzy", "obsolete")} == {
        "untranslated": 1301,
        "fuzzy": 382,
        "obsolete": 600,
    }
    assert ledger["pairs_out"] + sum(ledger["dropped"].values()) == ledger["pairs_in"]
    for samples in ledger["samples"].values():
        for sample in samples:
            lines = paths[sample["file"] - 1].read_text(encoding="utf-8").split("\n")
            assert "msgid" in lines[sample["line"] - 1]
