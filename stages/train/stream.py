"""The stream of training pairs: epochs over all text, or the stages of a curriculum, which read several texts in shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import Protocol

import numpy as np

from fewstep.config.network import Sizes
from fewstep.sources import Ints
from models.training.batch import EpochPool, Pool, Position, joined, planned_batches
from models.training.config import CurriculumStage
from models.training.seeds import seed_of
from stages.artifacts import Tokens
from stages.train import TrainConfig
from stages.train.token_files import POOL_ROWS, Fitting, Mask, PoolStream, TokenFiles, masking


@dataclass(frozen=True)
class MixedText:
    """A text of a curriculum."""

    read: Callable[[Sequence[int]], Pool]
    """A function that reads the shards of these numbers as one pool."""
    shard_rows: Sequence[int]
    """Rows of each shard."""

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return sum(self.shard_rows)

    def between(self, start: int, stop: int, seed: tuple[int | str, ...]) -> Iterator[Pool]:
        """Yield the rows from `start` to `stop` of the endless stream of epochs, each of which has the shards in another order."""
        while start < stop:
            epoch, first = divmod(start, self.rows)
            last = min(stop - epoch * self.rows, self.rows)
            order = np.random.Generator(np.random.Philox(seed_of(*seed, epoch, "shards"))).permutation(len(self.shard_rows))
            ends = list(accumulate(self.shard_rows[shard] for shard in order))
            for shard, end in zip(order.tolist(), ends, strict=True):
                begin = end - self.shard_rows[shard]
                if max(begin, first) < min(end, last):
                    yield self.read([shard]).between(max(first - begin, 0), min(last, end) - begin)
            start = epoch * self.rows + last


@dataclass(frozen=True)
class CurriculumStream:
    """The endless stream of pools of a curriculum, a pure function of (seed, position).

    A pool has rows of all texts of its stage in their shares, so that batches mix them. A stage of U updates ends after as many
    batches, one of E epochs after the pool in which its first text was read E times.
    """

    stages: Sequence[CurriculumStage]
    texts: Mapping[str, MixedText]
    keep: Callable[[Ints, Ints], Mask]
    """A function from source and target lengths (without EOS) to the pairs that can be trained on."""
    batch_tokens: int
    seed: int
    pool_rows: int = POOL_ROWS

    def pools(self, start: Position) -> Iterator[EpochPool]:
        """Yield the pools from that of `start` on."""
        first = start.pool
        before = start.stage_batches - start.batch
        for stage in range(start.epoch, len(self.stages)):
            for number in self._numbers(stage, first):
                found = self._pool(stage, number)._replace(stage_batches=before)
                updates = self.stages[stage].updates
                if updates is None:
                    before += len(planned_batches(found, self.batch_tokens, self.seed))
                    yield found
                    continue
                batches = min(len(planned_batches(found, self.batch_tokens, self.seed)), updates - before)
                yield found._replace(limit=batches)
                before += batches
                if before == updates:
                    break
            first = 0
            before = 0

    def _numbers(self, stage: int, first: int) -> Iterator[int]:
        """Yield the numbers of the pools of a stage from `first` on."""
        epochs = self.stages[stage].epochs
        if epochs is None:
            return count(first)
        (name, share), *_ = self._shares(stage)
        return iter(range(first, math.ceil(epochs * self.texts[name].rows / (share * self._size(stage)))))

    def _shares(self, stage: int) -> list[tuple[str, float]]:
        mix = self.stages[stage].mix
        return [(name, share / sum(mix.values())) for name, share in mix.items()]

    def _size(self, stage: int) -> float:
        """Return the rows of a pool: as many as allowed, without reading a text twice."""
        return min(self.pool_rows, *(self.texts[name].rows / share for name, share in self._shares(stage)))

    def _pool(self, stage: int, number: int) -> EpochPool:
        parts = list[Pool]()
        for name, share in self._shares(stage):
            rows = share * self._size(stage)
            start, stop = math.floor(number * rows), math.floor((number + 1) * rows)
            parts += self.texts[name].between(start, stop, (self.seed, stage, name))
        pool = joined(parts)
        return EpochPool(stage, number, pool, np.flatnonzero(self.keep(pool.source.lengths, pool.target.lengths)))


class Stream(Protocol):
    """An endless stream of pools of training pairs."""

    def pools(self, start: Position) -> Iterator[EpochPool]:
        """Yield the pools from that of `start` on."""
        ...


def pool_stream(
    tokens: Sequence[Tokens], config: TrainConfig, sizes: Sizes, texts: Mapping[str, Sequence[Tokens]] | None = None
) -> tuple[Stream, dict[str, int]]:
    """Return the stream of training pairs, and the number of pairs that are left out by reason.

    The stream follows the curriculum of the config, if it has one, over `texts` by name. Raises DataError when all pairs are left
    out, and for text with masked spans in separate vocabularies.
    """
    fitting = Fitting(config)
    training = config.training
    if training.curriculum:
        files = {name: TokenFiles([artifact.path for artifact in parts], sizes) for name, parts in (texts or {}).items()}
        mixed = {name: MixedText(found.pool, fitting.rows(found)) for name, found in files.items()}
        return CurriculumStream(training.curriculum, mixed, fitting.keep, training.batch_tokens, training.seed), fitting.dropped
    files_of_all = TokenFiles([artifact.path for artifact in tokens], sizes)
    rows = fitting.rows(files_of_all)
    stream = PoolStream(rows, files_of_all.pool, fitting.keep, training.seed, transform=masking(config, sizes))
    return stream, fitting.dropped
