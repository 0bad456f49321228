"""Token shards as training reads them: memory-mapped, lengths without values, ids checked against the vocabulary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fewstep.config.network import Sizes
from fewstep.sources import Ints
from models.training.batch import Pool, Ragged
from stages.artifacts import Vocabulary
from stages.errors import ArtifactError, DataError
from stages.shards import read_shard, shard_paths


def vocabulary_sizes(vocabulary: Vocabulary) -> Sizes:
    """Return the sizes of a vocabulary. Raises ArtifactError for a damaged `vocabulary.json`."""
    path = vocabulary.path / "vocabulary.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        return Sizes(described["source_size"], described["target_size"], described["joint"])
    except (OSError, ValueError, KeyError) as error:
        raise ArtifactError(
            f"{path}: expected JSON with joint, source_size and target_size, got: {error!r}; remove the artifact and run again"
        ) from error


class TokenFiles:
    """The shards of several `Tokens` artifacts, as one list."""

    def __init__(self, directories: Sequence[Path], sizes: Sizes) -> None:
        self.paths = [path for directory in directories for path in shard_paths(directory)]
        self._sizes = sizes

    def lengths(self, shard: int) -> tuple[Ints, Ints]:
        """Return the source and target lengths of the rows of a shard, without EOS. The ids are not read."""
        table = read_shard(self.paths[shard])
        return _ragged(table, "source").lengths, _ragged(table, "target").lengths

    def pool(self, shards: Sequence[int]) -> Pool:
        """Read these shards into memory. Raises DataError for an id outside the vocabulary."""
        tables = [read_shard(self.paths[shard]) for shard in shards]
        ids = np.concatenate([np.zeros(0, np.int64), *(table["id"].to_numpy() for table in tables)])
        return Pool(
            ids, self._side("source", self._sizes.source, tables, shards), self._side("target", self._sizes.target, tables, shards)
        )

    def _side(self, side: str, size: int, tables: Sequence[Any], shards: Sequence[int]) -> Ragged:
        parts = []
        for table, shard in zip(tables, shards, strict=True):
            parts.append(_ragged(table, side))
            self._check(parts[-1], side, size, shard, table)
        starts = np.cumsum([0, *(len(part.values) for part in parts)])
        offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
        values = np.concatenate([np.zeros(0, np.uint16), *(part.values for part in parts)])
        return Ragged(values, np.concatenate([*offsets, starts[-1:]]).astype(np.int64))

    def _check(self, rows: Ragged, side: str, size: int, shard: int, table: Any) -> None:
        if len(rows.values) == 0 or int(rows.values.max()) < size:
            return
        position = int(rows.values.argmax())
        row = int(np.searchsorted(rows.offsets, position, side="right")) - 1
        raise DataError(
            f"{self.paths[shard]}: row {row} (id {table['id'][row].as_py()}): {side} token {int(rows.values[position])} is "
            f"outside the vocabulary of {size}; encode the text with the vocabulary of this training"
        )


def _ragged(table: Any, side: str) -> Ragged:
    """A list column with values in the memory-mapped file and int64 offsets from 0."""
    column = table.column(side).combine_chunks()
    offsets = column.offsets.to_numpy().astype(np.int64)
    if len(offsets) == 0:
        return Ragged(np.zeros(0, np.uint16), np.zeros(1, np.int64))
    return Ragged(column.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0])
