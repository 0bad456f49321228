"""Batches of token ids: padded tensors, and the endless stream of training batches as a pure function of (seed, position)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fewstep.sources import Ints, padded
from fewstep.vocabulary import EOS, PAD
from models.training.seeds import seed_of

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Pairs in natural order. Each side ends in EOS and is padded with PAD on the right. All tensors are int64."""

    ids: Tensor
    """The caller's id of each pair [B]."""
    source: Tensor
    """The padded sources [B,S] with EOS."""
    source_lengths: Tensor
    """The lengths [B] of the sources with EOS."""
    target: Tensor
    """The padded targets [B,T] with EOS, without BOS."""
    target_lengths: Tensor
    """The lengths [B] of the targets with EOS."""

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on another device."""
        return Batch(**{name: tensor.to(device, non_blocking=True) for name, tensor in vars(self).items()})

    def pinned(self) -> Batch:
        """Return the batch in page-locked memory, which a GPU reads while the host goes on."""
        return Batch(**{name: tensor.pin_memory() for name, tensor in vars(self).items()})

    def select(self, rows: Tensor) -> Batch:
        """Return the pairs `rows`, which may repeat."""
        return Batch(**{name: tensor[rows] for name, tensor in vars(self).items()})


def pad_rows(rows: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Return `padded` rows as tensors."""
    matrix, lengths = padded(rows)
    return torch.from_numpy(matrix), torch.from_numpy(lengths)


def collate(ids: Sequence[int], sources: Sequence[Any], targets: Sequence[Any]) -> Batch:
    """Return pairs of id sequences (lists or arrays without EOS) as one batch."""
    source, source_lengths = pad_rows(sources)
    target, target_lengths = pad_rows(targets)
    return Batch(torch.as_tensor(list(ids), dtype=torch.int64), source, source_lengths, target, target_lengths)


class Ragged(NamedTuple):
    """Concatenated rows of ids: row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: npt.NDArray[Any]
    offsets: Ints

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def padded(self, rows: Ints) -> tuple[Tensor, Tensor]:
        """Return padded rows without a loop over rows."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - self.offsets[rows]
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

    def between(self, start: int, stop: int) -> Pool:
        """Return the rows from `start` to `stop`."""
        sides = []
        for side in (self.source, self.target):
            offsets = side.offsets[start : stop + 1]
            sides.append(Ragged(side.values[offsets[0] : offsets[-1]], offsets - offsets[0]))
        return Pool(self.ids[start:stop], *sides)

    def batch(self, rows: Ints) -> Batch:
        """Return these rows as one batch."""
        return Batch(torch.from_numpy(self.ids[rows]), *self.source.padded(rows), *self.target.padded(rows))


def joined(pools: Sequence[Pool]) -> Pool:
    """Return the pairs of several pools as one."""
    sides = []
    for parts in ([pool.source for pool in pools], [pool.target for pool in pools]):
        starts = np.cumsum([0, *(len(part.values) for part in parts)])
        offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
        values = np.concatenate([np.zeros(0, np.uint16), *(part.values for part in parts)])
        sides.append(Ragged(values, np.concatenate([*offsets, starts[-1:]]).astype(np.int64)))
    return Pool(np.concatenate([np.zeros(0, np.int64), *(pool.ids for pool in pools)]), *sides)


class Position(NamedTuple):
    """A position in the endless stream: batch `batch` of pool `pool` of pass `epoch` over the data, each from 0. With a curriculum,
    `epoch` is the stage."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0
    stage_batches: int = 0
    """Batches of the stage of a curriculum so far; 0 without one."""


class EpochPool(NamedTuple):
    """A pool of the endless stream of pools."""

    epoch: int
    """The pass over the data, from 0."""
    number: int
    """The number of the pool in its epoch, from 0."""
    pool: Pool
    rows: Ints
    """The rows that can be trained on."""
    stage_batches: int | None = None
    """Batches of the stage of a curriculum before this pool. None: there is no curriculum."""
    limit: int | None = None
    """Batches of the pool after which its stage ends. None: all of them."""


def cut(longest: Ints, budget: int) -> list[slice]:
    """Yield consecutive batches of rows, each as large as rows x longest row <= budget allows.

    The padded lengths `longest` (with EOS) of the rows must rise; no row may be longer than the budget.
    """
    slices = []
    start = 0
    while start < len(longest):
        window = longest[start : start + budget // int(longest[start])]
        size = int(np.searchsorted(window * np.arange(1, len(window) + 1), budget, side="right"))
        slices.append(slice(start, start + size))
        start += size
    return slices


def plan(source_lengths: Ints, target_lengths: Ints, rows: Ints, budget: int, seed: int) -> list[Ints]:
    """Return `rows` in random batches of similar lengths with at most `budget` padded tokens (rows x longest side with EOS).

    Rows are shuffled, then sorted by their longer side, and rows of about equal length by the difference of the sides.
    """
    generator = np.random.Generator(np.random.Philox(seed))
    rows = generator.permutation(rows)
    source, target = source_lengths[rows], target_lengths[rows]
    longest = np.maximum(source, target) + 1
    tilt = np.sign((source - target) // 2)
    rows = rows[order := np.lexsort((tilt, longest))]
    slices = cut(longest[order], budget)
    return [rows[slices[index]] for index in generator.permutation(len(slices))]


def batches(pools: Iterator[EpochPool], budget: int, seed: int, skip: int = 0) -> Iterator[tuple[Pool, Ints, Position]]:
    """Yield a pool, the rows that form a batch of at most `budget` padded tokens, and the position after it.

    Each pool is planned on its own. The first `skip` batches of the first pool are left out.
    """
    for found in pools:
        planned = planned_batches(found, budget, seed)[: found.limit]
        for done, batch in enumerate(planned[skip:], skip + 1):
            stage_batches = 0 if found.stage_batches is None else found.stage_batches + done
            yield found.pool, batch, Position(found.epoch, found.number, done, stage_batches)
        skip = 0


def planned_batches(found: EpochPool, budget: int, seed: int) -> list[Ints]:
    """Return the rows of each batch of a pool."""
    pool = found.pool
    return plan(pool.source.lengths, pool.target.lengths, found.rows, budget, seed_of(seed, found.epoch, found.number, "batches"))


class Share(NamedTuple):
    """A part of a batch, which one worker processes in one update. A worker may process several."""

    slices: list[Batch]
    """Batches that pass through the network one after the other, at least one."""
    weight: float
    """Weight of this share: 1, or 0 if the batch had too few rows for all workers and the share repeats a row of another one."""
    position: Position
    """The position after this batch."""
    number: int = 0
    """The number of the share in its batch, from 0, which seeds its dropout."""


def shares(
    pools: Iterator[EpochPool],
    budget: int,
    seed: int,
    skip: int = 0,
    *,
    rank: int = 0,
    size: int = 1,
    num_shares: int = 0,
    microbatch_tokens: int = 0,
) -> Iterator[list[Share]]:
    """Yield the shares of worker `rank` of `size` in every batch of `batches`.

    A batch has `num_shares` shares (0: one for each worker), which do not depend on the number of workers: share i has the rows
    i::num_shares and belongs to worker i modulo `size`. A worker without a share repeats a row with weight 0.
    """
    count = num_shares or size
    numbers = range(rank, count, size) or range(rank, rank + 1)
    for pool, rows, position in batches(pools, budget, seed, skip):
        yield [_share(pool, rows, position, number, count, microbatch_tokens) for number in numbers]


def _share(pool: Pool, rows: Ints, position: Position, number: int, count: int, microbatch_tokens: int) -> Share:
    """Return a share of a batch: its rows number::(count x passes).

    The number of passes is chosen so that a slice has at most about `microbatch_tokens` padded tokens (0: one pass).
    """
    share = rows[number::count] if number < count else rows[:0]
    weight = 1.0 if len(share) else 0.0
    share = share if len(share) else rows[:1]
    longest = int(np.maximum(pool.source.lengths[share], pool.target.lengths[share]).max()) + 1
    passes = min(len(share), max(1, -(-len(share) * longest // microbatch_tokens))) if microbatch_tokens else 1
    return Share([pool.batch(share[index::passes]) for index in range(passes)], weight, position, number)


def pinned(items: Iterator[list[Share]]) -> Iterator[list[Share]]:
    """Yield the same shares with their batches in page-locked memory; without it the copy of a batch to a GPU holds the host up."""
    return ([share._replace(slices=[batch.pinned() for batch in share.slices]) for share in own] for own in items)


def prefetch_batches(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """Yield the same items, prepared up to `depth` ahead in a thread. An error of an item is raised when that item is due."""
    waiting: deque[Future[T | None]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as thread:
        while True:
            while len(waiting) < depth:
                waiting.append(thread.submit(next, items, None))
            item = waiting.popleft().result()
            if item is None:
                return
            yield item
