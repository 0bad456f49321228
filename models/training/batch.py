"""Batches of token ids: padded tensors, and the endless stream of training batches as a pure function of (seed, position)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fewstep.vocabulary import EOS, PAD
from models.training.seeds import seed_of

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

POOL_ROWS = 2**17
"""Shards are read together until they hold this many rows: what is shuffled and sorted at once, and held in memory."""


@dataclass(frozen=True)
class Batch:
    """Pairs in natural order, each side ended by EOS and padded with PAD at the right. All tensors are int64."""

    ids: Tensor
    """[B] what the caller calls each pair."""
    source: Tensor
    """[B,S]"""
    source_lengths: Tensor
    """[B] with EOS"""
    target: Tensor
    """[B,T] without BOS"""
    target_lengths: Tensor
    """[B] with EOS"""

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""
        return Batch(**{name: tensor.to(device, non_blocking=True) for name, tensor in vars(self).items()})

    def select(self, rows: Tensor) -> Batch:
        """Some of the pairs, as often as they are named."""
        return Batch(**{name: tensor[rows] for name, tensor in vars(self).items()})


def padded(rows: Sequence[Any]) -> tuple[Ints, Ints]:
    """Rows of ids (lists or arrays, without EOS) as ([B,N] ended by EOS and padded, [B] lengths with EOS)."""
    lengths = [len(row) + 1 for row in rows]
    matrix = np.full((len(rows), max(lengths, default=1)), PAD, dtype=np.int64)
    for line, row in zip(matrix, rows, strict=True):
        line[: len(row)] = row
        line[len(row)] = EOS
    return matrix, np.array(lengths, dtype=np.int64)


def pad_rows(rows: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """The same for torch."""
    matrix, lengths = padded(rows)
    return torch.from_numpy(matrix), torch.from_numpy(lengths)


def collate(ids: Sequence[int], sources: Sequence[Any], targets: Sequence[Any]) -> Batch:
    """Pairs of id sequences, lists or arrays without EOS, as one batch."""
    source, source_lengths = pad_rows(sources)
    target, target_lengths = pad_rows(targets)
    return Batch(torch.as_tensor(list(ids), dtype=torch.int64), source, source_lengths, target, target_lengths)


class Ragged(NamedTuple):
    """Rows of ids end to end: row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: npt.NDArray[Any]
    offsets: Ints

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def padded(self, rows: Ints) -> tuple[Tensor, Tensor]:
        """As `pad_rows`, without a loop over rows."""
        starts, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        columns = np.arange(int(lengths.max(initial=0)) + 1)
        real = columns < lengths[:, None]
        matrix = np.full(real.shape, PAD, dtype=np.int64)
        matrix[real] = self.values[(starts[:, None] + columns)[real]]
        matrix[np.arange(len(rows)), lengths] = EOS
        return torch.from_numpy(matrix), torch.from_numpy(lengths + 1)


class Pool(NamedTuple):
    """Pairs that are held in memory together."""

    ids: Ints
    source: Ragged
    target: Ragged

    def batch(self, rows: Ints) -> Batch:
        """These rows as one batch."""
        return Batch(torch.from_numpy(self.ids[rows]), *self.source.padded(rows), *self.target.padded(rows))


class Position(NamedTuple):
    """A place in the endless stream: batch `batch` of pool `pool` of pass `epoch` over the data, each from 0."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


def cut(longest: Ints, budget: int) -> list[slice]:
    """Consecutive batches of rows whose padded lengths `longest` (with EOS) rise: each as large as rows x longest row <= budget
    allows. No row may be longer than the budget."""
    slices, start = [], 0
    while start < len(longest):
        window = longest[start : start + budget // int(longest[start])]
        size = int(np.searchsorted(window * np.arange(1, len(window) + 1), budget, side="right"))
        slices.append(slice(start, start + size))
        start += size
    return slices


def plan(source_lengths: Ints, target_lengths: Ints, rows: Ints, budget: int, seed: int) -> list[Ints]:
    """`rows` in batches of at most `budget` padded tokens (rows x longest side with EOS), of like lengths, in random order.

    Rows are shuffled and then sorted by their longer side; those of about equal length by the difference of the sides.
    """
    generator = np.random.Generator(np.random.Philox(seed))
    rows = generator.permutation(rows)
    source, target = source_lengths[rows], target_lengths[rows]
    longest = np.maximum(source, target) + 1
    tilt = np.sign((source - target) // 2)
    rows = rows[order := np.lexsort((tilt, longest))]
    slices = cut(longest[order], budget)
    return [rows[slices[index]] for index in generator.permutation(len(slices))]


@dataclass(frozen=True)
class Stream:
    """The endless stream of batches, a pure function of (seed, position).

    Each epoch visits the shards in an order of its own. Consecutive shards are pooled, each pool is planned by itself.
    """

    shard_rows: Sequence[int]
    """Rows of each shard."""
    read: Callable[[Sequence[int]], Pool]
    """Reads the shards of these numbers as one pool."""
    keep: Callable[[Ints, Ints], Mask]
    """Which pairs of these source and target lengths (without EOS) are trained on: none longer than the budget."""
    budget: int
    """Padded tokens in a batch at most."""
    seed: int
    pool_rows: int = POOL_ROWS

    def pools(self, epoch: int) -> list[list[int]]:
        """The shards of each pool of an epoch."""
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

    def batches(self, start: Position) -> Iterator[tuple[Pool, Ints, Position]]:
        """From `start` on: a pool, the rows of it that make the batch, and the position after it."""
        epoch, first, skip = start
        while True:
            for index, shards in enumerate(self.pools(epoch)[first:], first):
                pool = self.read(shards)
                source, target = pool.source.lengths, pool.target.lengths
                rows = np.flatnonzero(self.keep(source, target))
                batches = plan(source, target, rows, self.budget, seed_of(self.seed, epoch, index, "batches"))
                for number, batch in enumerate(batches[skip:], skip + 1):
                    yield pool, batch, Position(epoch, index, number)
                skip = 0
            epoch, first = epoch + 1, 0


class Share(NamedTuple):
    """What one worker contributes to one update."""

    slices: list[Batch]
    """Taken through the network one after the other; never none."""
    weight: float
    """1, or 0 when the batch had too few rows for all workers and a row of another stands in, to count for nothing."""
    position: Position
    """Where the stream goes on."""


def shares(stream: Stream, start: Position, *, rank: int = 0, size: int = 1, microbatch_tokens: int = 0) -> Iterator[Share]:
    """Worker `rank` of `size`'s share of every batch: rows i::(size x passes), with passes enough that a slice has about
    `microbatch_tokens` padded tokens at most (0: one pass)."""
    for pool, rows, position in stream.batches(start):
        share = rows[rank::size]
        weight = 1.0 if len(share) else 0.0
        share = share if len(share) else rows[:1]
        longest = int(np.maximum(pool.source.lengths[share], pool.target.lengths[share]).max()) + 1
        passes = min(len(share), max(1, -(-len(share) * longest // microbatch_tokens))) if microbatch_tokens else 1
        yield Share([pool.batch(share[index::passes]) for index in range(passes)], weight, position)
