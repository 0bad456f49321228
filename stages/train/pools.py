"""The endless stream of pools of training pairs: epochs over all shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from fewstep.sources import Ints
from models.training.batch import EpochPool, Pool, Position
from models.training.seeds import seed_of

Mask = npt.NDArray[np.bool_]

POOL_ROWS = 2**17
"""Number of rows in a pool: shards are read together until they hold this many rows, which are held in memory, shuffled and
sorted together."""


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
