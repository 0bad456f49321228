"""Checks of text that is split into tokens already."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from fewstep.text.subwords import CONTINUED
from stages.errors import DataError

MARK = "\u2581"
"""The mark of SentencePiece for a space."""


def check_split(table: pa.Table, start: int, name: Callable[[str], str]) -> None:
    """Raise DataError for a line that is not split as by Moses and subword-nmt: with marks of SentencePiece, or with a subword at
    its end that continues. `start` rows of the text are before the table, and `name` maps a side to its first file."""
    for side in table.column_names:
        column = table[side].combine_chunks()
        for found, expected in (
            (pc.match_substring(column, MARK), f"tokens separated by spaces, without the mark {MARK} of SentencePiece"),
            (pc.match_substring_regex(column, rf"{CONTINUED}\s*$"), f"a whole word at the end of a line, without {CONTINUED}"),
        ):
            if (row := pc.index(found, True).as_py()) >= 0:
                line = column[row].as_py().rstrip()
                shown = line if len(line) <= 100 else f"...{line[-100:]}"
                raise DataError(
                    f"{name(side)}, pair {start + row + 1:,} ({side}): expected {expected}, got {shown!r}; split the text as by "
                    "subword-nmt, or choose a vocabulary of pieces (vocabulary.model: bpe)"
                )
