"""Write one side of texts or tokens as lines for the estimators of n-gram models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fewstep.ngram import SEPARATORS
from stages.artifacts import Text, Tokens, Vocabulary
from stages.errors import DataError, StageError, unwritable
from stages.shards import read_shard, shard_paths
from stages.vocabulary.run import processor

if TYPE_CHECKING:
    from stages.ngram import NgramConfig


def write_lines(parts: Sequence[Text | Tokens], vocabulary: Vocabulary | None, config: NgramConfig, path: Path) -> int:
    """Write the chosen side of all rows, with spaces between pieces, and return the number of rows.

    Raises StageError for inputs that do not fit `config.unit`, DataError for ids outside the vocabulary.
    """
    expected = Tokens if config.unit == "pieces" else Text
    if not all(isinstance(part, expected) for part in parts) or (config.unit == "pieces" and vocabulary is None):
        raise StageError(f"ngram: unit {config.unit}: expected {'tokens and their vocabulary' if expected is Tokens else 'texts'}")
    names = piece_names(vocabulary, config.side) if config.unit == "pieces" and vocabulary else None
    rows = 0
    try:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for shard in (shard for part in parts for shard in shard_paths(part.path)):
                column = read_shard(shard)[config.side]
                lines = column.to_pylist() if names is None else spelled(column, names, shard)
                file.writelines(" ".join(line.split("\n")) + "\n" for line in lines)
                rows += len(lines)
    except OSError as error:
        raise unwritable(path, error) from error
    return rows


def piece_names(vocabulary: Vocabulary, side: str) -> pa.Array:
    """Return the text of each piece by id. Raises DataError for a piece that is empty or contains white space."""
    pieces = processor(vocabulary.path, side)
    names = [str(pieces.id_to_piece(index)) for index in range(pieces.get_piece_size())]
    if (blank := next((index for index, name in enumerate(names) if not name or SEPARATORS.search(name)), None)) is not None:
        raise DataError(
            f"{vocabulary.path}: expected pieces without white space, got {names[blank]!r} (piece {blank}); train the vocabulary "
            "on text without tabs and other control characters"
        )
    return pa.array(names, pa.large_string())


def spelled(column: pa.ChunkedArray, names: pa.Array, shard: Path) -> list[str]:
    """Return rows of ids as lines of pieces with spaces between them."""
    lists = column.combine_chunks().cast(pa.list_(pa.int64()))
    if len(lists) == 0:
        return []
    try:
        pieces = names.take(lists.flatten())
    except pa.ArrowIndexError as error:
        raise DataError(
            f"{shard}: expected ids of the vocabulary's {len(names)} pieces, got larger ids; encode the text with the vocabulary "
            "of this model"
        ) from error
    offsets = pc.subtract(lists.offsets, lists.offsets[0])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, pieces), pa.scalar(" ", pieces.type))
    return [str(line) for line in joined.to_pylist()]
