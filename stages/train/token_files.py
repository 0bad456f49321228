"""Token shards as training reads them: ids checked against the vocabulary, pairs filtered, and shards pooled in a random order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fewstep.config.network import Sizes
from fewstep.sources import Ints
from models.family import family_named
from models.training.batch import EpochPool, Pool, Position, Ragged, joined
from models.training.infilling import infill, infilled_lengths
from models.training.seeds import seed_of
from stages.artifacts import Vocabulary
from stages.errors import DataError
from stages.shared.shards import read_shard, shard_paths
from stages.shared.vocabulary import vocabulary_record
from stages.train import TrainConfig

Mask = npt.NDArray[np.bool_]

POOL_ROWS = 2**17
"""Number of rows in a pool: shards are read together until they hold this many rows, which are held in memory, shuffled and
sorted together."""


def vocabulary_sizes(vocabulary: Vocabulary) -> Sizes:
    """Return the sizes of a vocabulary. Raises ArtifactError for a damaged description."""
    described = vocabulary_record(vocabulary.path)
    return Sizes(described["source_size"], described["target_size"], described["joint"])


class TokenFiles:
    """The shards of several `Tokens` artifacts, as one list."""

    def __init__(self, directories: Sequence[Path], sizes: Sizes) -> None:
        self.paths = [path for directory in directories for path in shard_paths(directory)]
        self._sizes = sizes

    def lengths(self, shard: int) -> tuple[Ints, Ints]:
        """Return the source and target lengths of the rows of a shard, without EOS."""
        table = read_shard(self.paths[shard])
        return _ragged(table, "source").lengths, _ragged(table, "target").lengths

    def pool(self, shards: Sequence[int]) -> Pool:
        """Read these shards into memory. Raises DataError for an id outside the vocabulary."""
        return joined([self._shard(shard) for shard in shards])

    def _shard(self, shard: int) -> Pool:
        table = read_shard(self.paths[shard])
        source, target = _ragged(table, "source"), _ragged(table, "target")
        self._check(source, "source", self._sizes.source, shard, table)
        self._check(target, "target", self._sizes.target, shard, table)
        return Pool(table["id"].to_numpy(), source, target)

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
    """A list column with values in the memory of its table and int64 offsets from 0."""
    column = table.column(side).combine_chunks()
    offsets = column.offsets.to_numpy().astype(np.int64)
    if len(offsets) == 0:
        return Ragged(np.zeros(0, np.uint16), np.zeros(1, np.int64))
    return Ragged(column.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0])


@dataclass(frozen=True)
class PoolStream:
    """The endless stream of pools, a pure function of (seed, position).

    Each epoch visits the shards in a random order. Consecutive shards are pooled.
    """

    shard_rows: Sequence[int]
    """Rows of each shard."""
    read: Callable[[Sequence[int]], Pool]
    """A function that reads the shards of these numbers as one pool."""
    keep: Callable[[Ints, Ints], Mask]
    """A function from source and target lengths (without EOS) to the pairs that can be trained on."""
    seed: int
    pool_rows: int = POOL_ROWS
    transform: Callable[[Pool, int], Pool] | None = None
    """A function of a pool and its epoch that makes the pairs of the pool. None: the pairs are those of the shards."""

    def plan(self, epoch: int) -> list[list[int]]:
        """Return the shards of each pool of an epoch."""
        order = np.random.Generator(np.random.Philox(seed_of(self.seed, epoch, "shards"))).permutation(len(self.shard_rows))
        pools: list[list[int]] = []
        rows = self.pool_rows
        for shard in order.tolist():
            if rows >= self.pool_rows:
                pools.append([])
                rows = 0
            pools[-1].append(shard)
            rows += self.shard_rows[shard]
        return pools

    def pools(self, start: Position) -> Iterator[EpochPool]:
        """Yield the pools from that of `start` on."""
        first = start.pool
        for epoch in count(start.epoch):
            for number, shards in enumerate(self.plan(epoch)[first:], first):
                pool = self.read(shards)
                if self.transform is not None:
                    pool = self.transform(pool, epoch)
                rows = np.flatnonzero(self.keep(pool.source.lengths, pool.target.lengths))
                yield EpochPool(epoch, number, pool, rows)
            first = 0


class Fitting:
    """The choice of pairs that a network can be trained on, and the number of those that are left out by reason."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._fits = family_named(config.family).functions.fits
        self._limit = min(config.training.max_tokens, config.training.batch_tokens - 1)
        self.dropped = {"too_long": 0, "unfit": 0}

    def rows(self, files: TokenFiles) -> list[int]:
        """Return the rows of each shard, and count those that are left out. Raises DataError when all are."""
        rows = []
        left = 0
        dropped = {"too_long": 0, "unfit": 0}
        for shard in range(len(files.paths)):
            source, target = files.lengths(shard)
            if self._config.infilling is not None:
                source, target = infilled_lengths(source, self._config.infilling)
            rows.append(len(source))
            fitting, not_long = int(self.keep(source, target).sum()), int(self._short(source, target).sum())
            dropped["too_long"] += len(source) - not_long
            dropped["unfit"] += not_long - fitting
            left += fitting
        if left == 0:
            raise DataError(
                f"{', '.join(sorted({str(path.parent) for path in files.paths}))}: expected pairs to train on, got none of "
                f"{sum(rows)}: {dropped['too_long']} are longer than {self._limit} tokens (training.max_tokens, "
                f"training.batch_tokens), {dropped['unfit']} do not fit the network; increase these limits or max_positions"
            )
        for reason, number in dropped.items():
            self.dropped[reason] += number
        return rows

    def keep(self, source: Ints, target: Ints) -> Mask:
        """Return the pairs of these lengths that can be trained on."""
        kept = self._short(source, target)
        # The family is asked once for each pair of lengths, not for each row.
        size = self._limit + 1
        pairs, which = np.unique(source[kept] * size + target[kept], return_inverse=True)
        fitting = [bool(self._fits(self._config.network, *divmod(pair, size))) for pair in pairs.tolist()]
        kept[kept] = np.array(fitting, dtype=bool)[which]
        return kept

    def _short(self, source: Ints, target: Ints) -> Mask:
        return np.maximum(source, target) <= self._limit


def masking(config: TrainConfig, sizes: Sizes) -> Callable[[Pool, int | str], Pool] | None:
    """Return the function that masks spans of the texts of a pool, by the epoch; None for a training on pairs.

    Raises DataError for separate vocabularies: targets are made of the tokens of sources.
    """
    infilling = config.infilling
    seed = config.training.seed
    if infilling is None:
        return None
    if not sizes.joint:
        raise DataError(
            "pretraining: expected one vocabulary for both sides, got separate ones; set vocabulary.joint to true, or name files "
            "of a joint vocabulary"
        )
    return lambda pool, epoch: infill(pool, infilling, seed_of(seed, epoch, "infilling"))
