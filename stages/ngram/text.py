"""Write one side of texts or tokens as lines for the estimators of n-gram models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fewstep.ngram import SEPARATORS
from stages.artifacts import Text, Tokens, Vocabulary
from stages.errors import DataError, StageError, unwritable
from stages.shared.shards import read_shard, shard_paths
from stages.shared.vocabulary import processor

if TYPE_CHECKING:
    from stages.ngram import NgramConfig, NgramInputs


def check_inputs(inputs: NgramInputs, config: NgramConfig) -> None:
    """Raise StageError for inputs that do not fit `config.unit`."""
    expected = Tokens if config.unit == "pieces" else Text
    parts = (*inputs.training, inputs.validation)
    if not all(isinstance(part, expected) for part in parts) or (config.unit == "pieces" and inputs.vocabulary is None):
        raise StageError(f"ngram: unit {config.unit}: expected {'tokens and their vocabulary' if expected is Tokens else 'texts'}")


def training_shards(inputs: NgramInputs) -> list[Path]:
    """Return the shards of all training texts, in order."""
    return [shard for part in inputs.training for shard in shard_paths(part.path)]


class Lines:
    """Reads the chosen side of shards as lines, with spaces between pieces."""

    def __init__(self, inputs: NgramInputs, config: NgramConfig) -> None:
        """Load the vocabulary. Raises DataError as `piece_names` does."""
        self._side = config.side
        self._names = piece_names(inputs.vocabulary, config.side) if config.unit == "pieces" and inputs.vocabulary else None

    def write(self, shards: Iterable[Path], path: Path) -> None:
        """Write the lines of shards to a file. Raises DataError for ids outside the vocabulary."""
        try:
            with path.open("w", encoding="utf-8", newline="\n") as file:
                for shard in shards:
                    file.writelines(self._of(shard))
        except OSError as error:
            raise unwritable(path, error) from error

    def text(self, shards: Iterable[Path]) -> bytes:
        """Return the lines of shards. Raises DataError for ids outside the vocabulary."""
        return "".join(chain.from_iterable(map(self._of, shards))).encode()

    def _of(self, shard: Path) -> Iterator[str]:
        column = read_shard(shard)[self._side]
        lines = column.to_pylist() if self._names is None else spelled(column, self._names, shard)
        return (" ".join(line.split("\n")) + "\n" for line in lines)


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
