"""Numbers of the words of all shards, by first appearance in the whole text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kernels.fast_align.shards import numbered_text
from stages.align.text import Job, ids_of, lines_of, load
from stages.shared.shards import read_shard, write_shard

if TYPE_CHECKING:
    from fewstep_native import Bitext


def word_file(job: Job, shard: int) -> Path:
    """Return the path of the words of a shard."""
    return job.state("words", f"{shard:05d}.arrow")


def all_words(job: Job) -> Path:
    """Return the path of the words of all shards."""
    return job.state("words.arrow")


def _numbers_file(job: Job, shard: int) -> Path:
    return job.state("words", f"{shard:05d}.numbers.npy")


def make_collector(job: Job) -> Callable[[int], None]:
    """Return a function that collects the words of a shard."""
    return partial(_collect, job)


def _collect(job: Job, shard: int) -> None:
    """Write the words of a shard in order of first appearance, and its sentences as numbers of these words."""
    import pyarrow as pa

    from fewstep.native import fewstep_native

    table = read_shard(job.shards[shard])
    text = fewstep_native.Bitext()
    text.add_lines(*lines_of(table, "source"), *lines_of(table, "target"))
    for target, side in enumerate(("source", "target")):
        starts, numbers = text.ids(bool(target))
        job.save(job.state("words", f"{shard:05d}.{side}.starts.npy"), starts)
        job.save(job.state("words", f"{shard:05d}.{side}.npy"), numbers)
    words = pa.array([text.word(number) for number in range(text.words)], pa.binary())
    write_shard(word_file(job, shard), pa.table({"word": words}), job.context)


def make_merger(job: Job) -> Callable[[int], None]:
    """Return a function that merges the words of all shards."""
    return partial(_merge, job)


def _merge(job: Job, _: int) -> None:
    """Write the words of all shards in order of first appearance, and for each shard the number in the whole list of each of its
    words."""
    import pyarrow as pa

    known: dict[bytes, int] = {}
    for shard in range(len(job.shards)):
        words = read_shard(word_file(job, shard))["word"].to_pylist()
        job.save(_numbers_file(job, shard), np.array([known.setdefault(word, len(known)) for word in words], np.uint32))
    write_shard(all_words(job), pa.table({"word": pa.array(list(known), pa.binary())}), job.context)


def text_of(job: Job, shard: int) -> Bitext:
    """Return a shard in the numbers of the whole text."""
    if job.sizes:
        table = read_shard(job.shards[shard])
        return numbered_text(ids_of(table, "source"), ids_of(table, "target"), *job.sizes)
    numbers = load(_numbers_file(job, shard))
    size = read_shard(all_words(job)).num_rows
    sides = [
        (load(job.state("words", f"{shard:05d}.{side}.starts.npy")), numbers[load(job.state("words", f"{shard:05d}.{side}.npy"))])
        for side in ("source", "target")
    ]
    return numbered_text(sides[0], sides[1], size, size)


def words_of(job: Job) -> Bitext:
    """Return a text with the words of all shards in order; without words if pieces are aligned."""
    from fewstep.native import fewstep_native

    text = fewstep_native.Bitext()
    if job.sizes is None:
        line = np.frombuffer(b" ".join(read_shard(all_words(job))["word"].to_pylist()), np.uint8)
        text.add_lines(np.array([0, len(line)]), line, np.zeros(2, np.int64), np.zeros(0, np.uint8))
    return text
