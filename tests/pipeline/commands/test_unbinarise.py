"""Folders that are written here byte by byte, after the description of fairseq's format mmap."""

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline.commands.unbinarise import unbinarise, write_text
from pipeline.errors import DataError

TYPES = {1: "<u1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
LINES = {"en": ["a small@@ er dog", "", "dog <unk> a"], "de": ["ein Hund", "Hund", "ein ein"]}


def index(
    sizes: Sequence[int], places: Sequence[int], *, magic: bytes = b"MMIDIDX\x00\x00", version: int = 1, code: int = 4
) -> bytes:
    head = magic + struct.pack("<QBQ", version, code, len(sizes))
    return head + struct.pack(f"<{len(sizes)}i", *sizes) + struct.pack(f"<{len(places)}q", *places)


def binarise(folder: Path, split: str = "train", code: int = 4) -> None:
    for language, lines in LINES.items():
        symbols = list(dict.fromkeys(token for line in lines for token in line.split() if token != "<unk>"))
        (folder / f"dict.{language}.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")
        ids = {"<unk>": 3} | {symbol: number for number, symbol in enumerate(symbols, 4)}
        rows = [[*(ids[token] for token in line.split()), 2] for line in lines]
        kind = np.dtype(TYPES[code])
        write(folder / f"{split}.en-de.{language}", rows, kind, code)


def write(prefix: Path, rows: Sequence[Sequence[int]], kind: np.dtype, code: int) -> None:
    sizes = [len(row) for row in rows]
    places = [sum(sizes[:row]) * kind.itemsize for row in range(len(rows))]
    Path(f"{prefix}.idx").write_bytes(index(sizes, places, code=code))
    Path(f"{prefix}.bin").write_bytes(np.array([number for row in rows for number in row], kind).tobytes())


@pytest.mark.parametrize("code", TYPES)
def test_the_text_is_what_was_binarised(code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data-bin"
    folder.mkdir()
    binarise(folder, code=code)
    binarise(folder, "valid", code)
    unbinarise(folder, tmp_path / "text")
    found = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "text").iterdir()}
    expected = {language: "".join(f"{line}\n" for line in lines) for language, lines in LINES.items()}
    assert found == {f"{split}.{language}": text for split in ("train", "valid") for language, text in expected.items()}
    assert "train.de: 3 sentences" in capsys.readouterr().out
    with pytest.raises(DataError, match="expected a new directory"):
        unbinarise(folder, tmp_path / "text")


ROWS = 12 * 3 + 26
"""Bytes of an index of three sentences."""


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        (
            "idx",
            b"TNTIDX\x00\x00" + bytes(40),
            "expected an index of fairseq's format mmap .* got one of the format cached or lazy",
        ),
        ("idx", b"MMIDIDX", "format mmap .* got other bytes"),
        ("idx", index([3], [0], version=2), "got version 2 and type 4"),
        ("idx", index([3], [0], code=7), "got version 1 and type 7"),
        ("idx", index([3, 1, 2], [0, 12, 16])[:-4], f"expected {ROWS} bytes for 3 sentences, got {ROWS - 4}"),
        ("idx", b"MMIDIDX\x00\x00" + struct.pack("<QBQ", 1, 4, 2**60), "bytes for 1152921504606846976 sentences, got 26"),
        ("idx", index([3, 0, 2], [0, 12, 12]), "sentence 2: expected from 1 to 524,288 numbers, got 0"),
        ("idx", index([3, -(2**31), 2], [0, 12, 12]), "sentence 2: expected from 1 to 524,288 numbers, got -2147483648"),
        ("idx", index([3, 1, 2], [0, 12, 2**62]), "sentence 3: expected the place 16, .*, got 4611686018427387904"),
        ("idx", index([3, 1, 2**31 - 1], [0, 12, 16]), "sentence 3: expected from 1 to 524,288 numbers, got 2147483647"),
        ("idx", index([3, 1, 4], [0, 12, 16]), "expected 32 bytes as its index states, got 24"),
        ("bin", np.array([4, 5, 2, 4, 4, 2], "<i4").tobytes()[:-1], "expected 24 bytes as its index states, got 23"),
        ("bin", np.array([4, 5, 2, 4, 4, 2], "<i4").tobytes(), r"sentence 2: expected 2 \(</s>\) at the end, got 4"),
        ("bin", np.array([4, 9, 2, 2, 4, 2], "<i4").tobytes(), "sentence 1: expected numbers from 3 to 5, .* got 9"),
        ("bin", np.array([4, -1, 2, 2, 4, 2], "<i4").tobytes(), "sentence 1: expected numbers from 3 to 5, .* got -1"),
        ("bin", np.array([4, 1, 2, 2, 4, 2], "<i4").tobytes(), "sentence 1: expected numbers from 3 to 5, .* got 1"),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(part: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "dict.de.txt").write_text("ein 1\nHund 1\n")
    write(tmp_path / "train.en-de.de", [[4, 5, 2], [2], [4, 2]], np.dtype("<i4"), 4)
    (tmp_path / "out").mkdir()
    (tmp_path / f"train.en-de.de.{part}").write_bytes(content)
    with pytest.raises(DataError, match=f"train.en-de.de.*{message}"):
        write_text(tmp_path, tmp_path / "out")


def test_sides_of_other_lengths_folders_without_text_and_symbols_with_spaces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected indexes such as train\.en-de\.en\.idx, got none"):
        unbinarise(tmp_path, tmp_path / "text")
    assert list(tmp_path.iterdir()) == []
    binarise(tmp_path)
    write(tmp_path / "train.en-de.de", [[4, 2]], np.dtype("<i4"), 4)
    with pytest.raises(DataError, match="train: expected as many sentences in de as in en, 3, got 1"):
        unbinarise(tmp_path, tmp_path / "text")
    (tmp_path / "dict.de.txt").write_text("ein Hund 1\n")
    with pytest.raises(DataError, match="expected symbols without white space"):
        unbinarise(tmp_path, tmp_path / "text")
    (tmp_path / "dict.de.txt").unlink()
    with pytest.raises(DataError, match=r"dict\.de\.txt"):
        unbinarise(tmp_path, tmp_path / "text")
    assert not (tmp_path / "text").exists()


def test_texts_that_expand_are_refused(tmp_path: Path) -> None:
    """A symbol of half a megabyte for each byte."""
    (tmp_path / "dict.de.txt").write_text("x" * 500_000 + " 1\n")
    (tmp_path / "out").mkdir()
    write(tmp_path / "train.en-de.de", [[4, 4, 4, 2]], np.dtype("u1"), 1)
    with pytest.raises(DataError, match="sentence 1: expected at most 1,048,576 bytes in a line"):
        write_text(tmp_path, tmp_path / "out")
    (tmp_path / "out" / "train.de").unlink()
    write(tmp_path / "train.en-de.de", [[4, 2]] * 200, np.dtype("u1"), 1)
    with pytest.raises(DataError, match="sentence 135: expected at most 67,108,864 bytes of text in a file of its size"):
        write_text(tmp_path, tmp_path / "out")


def test_a_pipe_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "dict.de.txt").write_text("ein 1\n")
    os.mkfifo(tmp_path / "train.en-de.de.idx")
    with pytest.raises(DataError, match=r"train\.en-de\.de\.idx: expected a file, got none, or a pipe"):
        write_text(tmp_path, tmp_path / "out")


def test_names_of_files_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data-bin"
    folder.mkdir()
    binarise(folder, "train\x1b]0;x\x07")
    unbinarise(folder, tmp_path / "text")
    assert "\x1b" not in (shown := capsys.readouterr().out)
    assert r"train\x1b]0;x\x07.de: 3 sentences" in shown


def test_two_texts_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dict.de.txt").write_text("ein 1\n")
    (tmp_path / "out").mkdir()
    for pair in ("en-de", "de-fr"):
        write(tmp_path / f"train.{pair}.de", [[4, 2]], np.dtype("u1"), 1)
    with pytest.raises(DataError, match=r"expected one text train\.de, got several"):
        write_text(tmp_path, tmp_path / "out")
