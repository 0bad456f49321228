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

from stages.errors import DataError
from stages.shared.dictionary import SPECIAL

MAGIC = b"MMIDIDX\x00\x00"
OTHERS = {b"TNTIDX\x00\x00": "cached or lazy"}
"""First bytes of fairseq's other formats."""
HEADER = struct.Struct("<9sQBQ")
TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Types of whole numbers by their code."""
END, UNKNOWN = SPECIAL.index("</s>"), SPECIAL.index("<unk>")
FORMAT = "expected an index of fairseq's format mmap (fairseq-preprocess --dataset-impl mmap)"


class Binarised(NamedTuple):
    """A text that was checked; its numbers stay on disk until they are read."""

    path: Path
    """The file of numbers."""
    numbers: npt.NDArray[Any]
    ends: npt.NDArray[np.int64]
    """The places [N] after each sentence, in numbers."""


def open_binarised(prefix: Path) -> Binarised:
    """Return the text in `prefix`.idx and `prefix`.bin.

    Raises DataError for files of another form, of which the sizes do not fit each other, or whose sentences do not lie one after
    the other; OSError.
    """
    index, content = (prefix.with_name(f"{prefix.name}.{part}") for part in ("idx", "bin"))
    found = index.stat().st_size
    with index.open("rb") as file:
        header = file.read(HEADER.size)
        kind, count = _header(index, header)
        expected = HEADER.size + 12 * count
        if found != expected:
            raise DataError(f"{index}: expected {expected} bytes for {count} sentences, got {found}; copy the file again")
        sizes = np.fromfile(file, "<i4", count).astype(np.int64)
        places = np.fromfile(file, "<i8", count)
    if count and int(sizes.min()) < 1:
        row = int(sizes.argmin())
        raise DataError(f"{index}, sentence {row + 1}: expected at least one number, got {sizes[row]}; binarise the text again")
    ends = sizes.cumsum()
    wrong = (places != (ends - sizes) * kind.itemsize).nonzero()[0]
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{index}, sentence {row + 1}: expected the place {(ends[row] - sizes[row]) * kind.itemsize}, behind the sentence "
            f"before, got {places[row]}; binarise the text again"
        )
    size = content.stat().st_size
    stated = int(ends[-1]) * kind.itemsize if count else 0
    if size != stated:
        raise DataError(f"{content}: expected {stated} bytes as its index states, got {size}; copy the file again")
    return Binarised(content, np.memmap(content, kind, "r") if size else np.empty(0, kind), ends)


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

    Raises DataError for a sentence that does not end with `</s>`, with a special symbol inside, or with a number of no symbol.
    """
    table = [*SPECIAL, *symbols]
    start = 0
    for row, end in enumerate(text.ends.tolist(), 1):
        *numbers, last = text.numbers[start:end].tolist()
        if last != END:
            raise DataError(f"{text.path}, sentence {row}: expected {END} (</s>) at the end, got {last}; binarise the text again")
        wrong = [one for one in numbers if not UNKNOWN <= one < len(table)]
        if wrong:
            raise DataError(
                f"{text.path}, sentence {row}: expected numbers from {UNKNOWN} to {len(table) - 1}, those of the dictionary, got "
                f"{wrong[0]}; name the dictionary that the text was binarised with"
            )
        yield " ".join(table[one] for one in numbers)
        start = end
