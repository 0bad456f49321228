"""The binarised text of fairseq (`fairseq-preprocess --dataset-impl mmap`), which holds each sentence as numbers of a dictionary.

A text `train.en-de.en` has two files, little-endian, without padding:

    .idx    MMIDIDX, two zero bytes; uint64 1; uint8 code of the type; uint64 N; int32 sizes [N]; int64 places [N] in bytes
    .bin    the numbers of all sentences, one after the other

The numbers are those of a dictionary after its four special symbols, and the last one of a sentence is that of `</s>`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fewstep.streams import MAX_LINE_BYTES
from stages.errors import DataError
from stages.shared.dictionary import SPECIAL
from stages.shared.expansion import most_text

MAGIC = b"MMIDIDX\x00\x00"
OTHERS = {b"TNTIDX\x00\x00": "cached or lazy"}
"""First bytes of fairseq's other formats."""
HEADER = struct.Struct("<9sQBQ")
TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Types of whole numbers by their code."""
END, UNKNOWN = SPECIAL.index("</s>"), SPECIAL.index("<unk>")
MOST = MAX_LINE_BYTES // 2
"""Numbers in a sentence, whose symbols and spaces fit a line."""
FORMAT = "expected an index of fairseq's format mmap (fairseq-preprocess --dataset-impl mmap)"


BLOCK = 1 << 16
"""Sentences whose places are held in memory."""


class Binarised(NamedTuple):
    """A text that was checked; its numbers stay on disk until they are read."""

    path: Path
    """The file of numbers."""
    numbers: npt.NDArray[Any]
    sizes: npt.NDArray[np.int32]
    """The numbers of each sentence [N]."""


def open_binarised(prefix: Path) -> Binarised:
    """Return the text in `prefix`.idx and `prefix`.bin.

    Raises DataError for files that are missing or of another form, of which the sizes do not fit each other, or whose sentences do
    not lie one after the other; OSError.
    """
    index, content = (prefix.with_name(f"{prefix.name}.{part}") for part in ("idx", "bin"))
    for path in (index, content):
        if not path.is_file():
            raise DataError(f"{path}: expected a file, got none, or a pipe or folder; copy the whole folder again")
    found = index.stat().st_size
    with index.open("rb") as file:
        kind, count = _header(index, file.read(HEADER.size))
    expected = HEADER.size + 12 * count
    if found != expected:
        raise DataError(f"{index}: expected {expected} bytes for {count} sentences, got {found}; copy the file again")
    sizes = _mapped(index, "<i4", HEADER.size, count)
    stated = _check(index, sizes, _mapped(index, "<i8", HEADER.size + 4 * count, count), kind.itemsize)
    size = content.stat().st_size
    if size != stated:
        raise DataError(f"{content}: expected {stated} bytes as its index states, got {size}; copy the file again")
    return Binarised(content, _mapped(content, kind, 0, size // kind.itemsize), sizes)


def _mapped(path: Path, kind: npt.DTypeLike, offset: int, count: int) -> npt.NDArray[Any]:
    return np.memmap(path, kind, "r", offset, (count,)) if count else np.empty(0, kind)


def _check(index: Path, sizes: npt.NDArray[np.int32], places: npt.NDArray[np.int64], item: int) -> int:
    """Return the bytes of all sentences. Raises DataError for an empty or endless one, and one that does not lie behind the one
    before."""
    end = 0
    for first in range(0, len(sizes), BLOCK):
        counts = sizes[first : first + BLOCK].astype(np.int64)
        ends = end + counts.cumsum()
        wrong = ((counts < 1) | (counts > MOST) | (places[first : first + BLOCK] != (ends - counts) * item)).nonzero()[0]
        if len(wrong):
            row = int(wrong[0])
            where = f"{index}, sentence {first + row + 1}"
            if not 1 <= counts[row] <= MOST:
                raise DataError(f"{where}: expected from 1 to {MOST:,} numbers, got {counts[row]}; binarise the text again")
            raise DataError(
                f"{where}: expected the place {(ends[row] - counts[row]) * item}, behind the sentence before, got "
                f"{places[first + row]}; binarise the text again"
            )
        end = int(ends[-1])
    return end * item


def _header(path: Path, header: bytes) -> tuple[np.dtype[Any], int]:
    magic = header[: len(MAGIC)]
    for start, name in OTHERS.items():
        if magic.startswith(start):
            raise DataError(f"{path}: {FORMAT}, got one of the format {name}; binarise the text again")
    if len(header) < HEADER.size or magic != MAGIC:
        raise DataError(f"{path}: {FORMAT}, got other bytes: {header[:9]!r}")
    _, version, code, count = HEADER.unpack(header)
    if version != 1 or code not in TYPES:
        raise DataError(f"{path}: {FORMAT} with version 1 and whole numbers, got version {version} and type {code}")
    return np.dtype(TYPES[code]), count


def sentences(text: Binarised, symbols: Sequence[str]) -> Iterator[str]:
    """Yield the sentences with their tokens separated by spaces, `<unk>` for the unknown token. `symbols` are those of the
    dictionary, without the special ones.

    Raises DataError for a sentence that does not end with `</s>`, with a special symbol inside, with a number of no symbol, or
    longer than a line may be; and for far more text than a file of this size has.
    """
    table = [*SPECIAL, *symbols]
    lengths = [len(symbol.encode()) + 1 for symbol in table]
    left = most = most_text(text.path)
    start = 0
    for row, size in enumerate(text.sizes, 1):
        end = start + int(size)
        *numbers, last = text.numbers[start:end].tolist()
        if last != END:
            raise DataError(f"{text.path}, sentence {row}: expected {END} (</s>) at the end, got {last}; binarise the text again")
        wrong = [one for one in numbers if not UNKNOWN <= one < len(table)]
        if wrong:
            raise DataError(
                f"{text.path}, sentence {row}: expected numbers from {UNKNOWN} to {len(table) - 1}, those of the dictionary, got "
                f"{wrong[0]}; name the dictionary that the text was binarised with"
            )
        length = sum(lengths[one] for one in numbers)
        left -= length
        if length > MAX_LINE_BYTES or left < 0:
            bound = f"{MAX_LINE_BYTES:,} bytes in a line"
            if left < 0:
                bound = f"{most:,} bytes of text in a file of its size"
            raise DataError(f"{text.path}, sentence {row}: expected at most {bound}, got more; the dictionary is another one")
        yield " ".join(table[one] for one in numbers)
        start = end
