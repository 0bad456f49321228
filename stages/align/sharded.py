"""EM as map and reduce over shards, for texts beyond the memory of one machine. Finished parts are not computed again.

A cell is a pair of words that occur in one sentence pair. Below `checkpoints/` each direction has the cells of each shard
(`cells/`), their union (`whole.*`) and the positions of a shard's cells in it (`positions/`). Each iteration has the counts of each
shard (`counts/`), then the probabilities `t` and `iteration.json`, which finish it; the files of the iteration before are then
deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import durable
from kernels.fast_align.em import Pass, Sums, fit_tension, summarise
from kernels.fast_align.shards import (
    UNSEEN,
    Cells,
    Counts,
    Part,
    cell_offsets,
    cells_of,
    expect,
    length_ratio,
    maximise,
    merge_cells,
    model_of,
    numbered_text,
    shard_aligner,
    take,
)
from stages.align.text import DIRECTIONS, Direction, Job, fit_record, ids_of, lines_of, load, load_json, pass_record, report_pass
from stages.context import StepContext
from stages.shared.phases import run_phase
from stages.shared.shards import read_shard, write_shard

if TYPE_CHECKING:
    from fewstep_native import Aligner, Bitext

Item = tuple[Direction, int]
"""A direction, and a shard or an iteration."""


def align_sharded(job: Job, context: StepContext) -> dict[str, Any]:
    """Write the links and models of both directions, and return their entries of `align.json`."""
    shards = range(len(job.shards))
    items = [(direction, shard) for direction in DIRECTIONS for shard in shards]
    if job.sizes is None:
        run_phase(context, make_collector, job, [s for s in shards if not word_file(job, s).exists()], "shards of words")
        if not all_words(job).exists():
            run_phase(context, make_merger, job, [0], "words merged")
    run_phase(context, make_indexer, job, [item for item in items if not _summary_file(job, *item).exists()], "shards indexed")
    unmerged = [direction for direction in DIRECTIONS if not job.state(direction, "whole.json").exists()]
    run_phase(context, make_cell_merger, job, unmerged, "directions merged")
    for number in range(job.config.iterations - 1):
        _iterate(job, context, items, number)
    run_phase(context, make_linker, job, [item for item in items if not _linked_file(job, *item).exists()], "shards linked")
    unfitted = [direction for direction in DIRECTIONS if not job.state(direction, "fitted.json").exists()]
    run_phase(context, make_concluder, job, unfitted, "directions concluded")
    fitted: dict[str, Any] = {direction: load_json(job.state(direction, "fitted.json")) for direction in DIRECTIONS}
    report_pass(context, job.config.iterations - 1, {direction: fitted[direction]["passes"][-1] for direction in DIRECTIONS})
    return fitted


def _iterate(job: Job, context: StepContext, items: Sequence[Item], number: int) -> None:
    if all(_done(job, direction, number).exists() for direction in DIRECTIONS):
        return
    missing = [
        (direction, shard, number)
        for direction, shard in items
        if not _done(job, direction, number).exists() and not _sums_file(job, direction, number, shard).exists()
    ]
    run_phase(context, make_counter, job, missing, f"shards counted, iteration {number + 1}")
    reductions = [(direction, number) for direction in DIRECTIONS if not _done(job, direction, number).exists()]
    run_phase(context, make_reducer, job, reductions, f"directions reduced, iteration {number + 1}")
    report_pass(context, number, {direction: load_json(_done(job, direction, number))["pass"] for direction in DIRECTIONS})


def _summary_file(job: Job, direction: Direction, shard: int) -> Path:
    return job.state(direction, "cells", f"{shard:05d}.json")


def _sums_file(job: Job, direction: Direction, number: int, shard: int) -> Path:
    return job.state(direction, f"iteration{number}", "counts", f"{shard:05d}.json")


def _linked_file(job: Job, direction: Direction, shard: int) -> Path:
    return job.state("links", direction, f"{shard:05d}.json")


def _done(job: Job, direction: Direction, number: int) -> Path:
    return job.state(direction, f"iteration{number}.json")


def _beside(path: Path, array: str) -> Path:
    """The file of an array beside a JSON file."""
    return path.with_name(f"{path.stem}.{array}.npy")


def _cells_of(job: Job, direction: Direction, shard: int) -> Cells:
    summary = _summary_file(job, direction, shard)
    return Cells(load(_beside(summary, "starts")), load(_beside(summary, "columns")))


def _whole(job: Job, direction: Direction) -> Cells:
    return Cells(load(job.state(direction, "whole.starts.npy")), load(job.state(direction, "whole.columns.npy")))


def _positions_file(job: Job, direction: Direction, shard: int) -> Path:
    return job.state(direction, "positions", f"{shard:05d}.npy")


def _probabilities_file(job: Job, direction: Direction, number: int) -> Path:
    return _beside(_done(job, direction, number), "t")


def make_indexer(job: Job) -> Callable[[Item], None]:
    """Return a function that finds the cells of a shard in a direction."""
    return partial(_index, job)


def _index(job: Job, item: Item) -> None:
    """Write the cells of a shard and the lengths of its pairs."""
    direction, shard = item
    options = job.options(direction)
    text = text_of(job, shard)
    aligner = shard_aligner(text, options, options.tension)
    summary = _summary_file(job, direction, shard)
    cells = cells_of(aligner)
    job.save(_beside(summary, "starts"), cells.starts)
    job.save(_beside(summary, "columns"), cells.columns)
    job.save(job.links(direction, shard, "starts"), text.ids(not options.reverse)[0])
    counts = {"target_words": aligner.target_words, "empty": aligner.empty, "too_long": aligner.long}
    job.save_json(summary, {"counts": counts, "sizes": aligner.sizes()})


def make_cell_merger(job: Job) -> Callable[[Direction], None]:
    """Return a function that merges the cells of all shards in a direction."""
    return partial(_merge_cells, job)


def _merge_cells(job: Job, direction: Direction) -> None:
    """Write the cells of all shards, the positions of each shard's cells in them, and the lengths of all pairs."""
    shards = [_cells_of(job, direction, shard) for shard in range(len(job.shards))]
    whole = merge_cells(shards)
    for shard, cells in enumerate(shards):
        job.save(_positions_file(job, direction, shard), cell_offsets(whole, cells))
    job.save(job.state(direction, "whole.starts.npy"), whole.starts)
    job.save(job.state(direction, "whole.columns.npy"), whole.columns)
    sizes: dict[tuple[int, int], int] = {}
    counts = dict.fromkeys(("target_words", "empty", "too_long"), 0)
    for shard in range(len(job.shards)):
        summary = load_json(_summary_file(job, direction, shard))
        counts = {key: counts[key] + summary["counts"][key] for key in counts}
        for m, n, count in summary["sizes"]:
            sizes[m, n] = sizes.get((m, n), 0) + count
    # Last: later attempts take its presence for a finished merge.
    job.save_json(job.state(direction, "whole.json"), {"counts": counts, "sizes": [[*size, sizes[size]] for size in sorted(sizes)]})


def _aligner_before(job: Job, direction: Direction, shard: int, number: int) -> Aligner:
    """Return the aligner of a shard, with the probabilities and the tension at the start of iteration `number`."""
    tension = job.config.tension if number == 0 else load_json(_done(job, direction, number - 1))["tension"]
    aligner = shard_aligner(text_of(job, shard), job.options(direction), tension)
    if number:
        t = load(_probabilities_file(job, direction, number - 1))
        take(aligner, load(job.state(direction, "whole.starts.npy")), load(_positions_file(job, direction, shard)), t)
    return aligner


def make_counter(job: Job) -> Callable[[tuple[Direction, int, int]], None]:
    """Return a function that runs the E-step of an iteration on a shard."""
    return partial(_count, job)


def _count(job: Job, item: tuple[Direction, int, int]) -> None:
    """Run the E-step on a shard."""
    direction, shard, number = item
    counts, sums = expect(_aligner_before(job, direction, shard, number), job.context.resources.threads)
    path = _sums_file(job, direction, number, shard)
    job.save(_beside(path, "low"), counts.low)
    job.save(_beside(path, "high"), counts.high)
    job.save_json(path, {"log_likelihood": sums.log_likelihood, "null_posterior": sums.null_posterior, "feature": sums.feature})


def make_reducer(job: Job) -> Callable[[Item], None]:
    """Return a function that runs the M-step of an iteration in a direction."""
    return partial(_reduce, job)


def _reduce(job: Job, item: Item) -> None:
    """Fit the tension and run the M-step over the counts of all shards."""
    direction, number = item
    shards = range(len(job.shards))
    options = job.options(direction)
    statistics, tension = _summary(job, direction, number)
    starts = load(job.state(direction, "whole.starts.npy"))
    parts = []
    for shard in shards:
        path = _sums_file(job, direction, number, shard)
        counts = Counts(load(_beside(path, "low")), load(_beside(path, "high")))
        parts.append(Part(_cells_of(job, direction, shard).starts, load(_positions_file(job, direction, shard)), counts))
    path = _probabilities_file(job, direction, number)
    temporary = job.context.temporary(path)
    t = np.lib.format.open_memmap(temporary, "w+", np.float64, (int(starts[-1]),))
    maximise(starts, parts, options, t)
    t.flush()
    durable.rename(temporary, path)
    # After the probabilities, since it says that the iteration is finished; the files of the one before are not read again.
    job.save_json(_done(job, direction, number), {"pass": pass_record(statistics), "tension": tension})
    shutil.rmtree(path.with_name(f"iteration{number}"), ignore_errors=True)
    if number:
        _probabilities_file(job, direction, number - 1).unlink(missing_ok=True)


def _summary(job: Job, direction: Direction, number: int) -> tuple[Pass, float]:
    """The statistics of iteration `number`, and the tension after it."""
    files = [_sums_file(job, direction, number, shard) for shard in range(len(job.shards))]
    sums = sum((Sums(**load_json(path)) for path in files), start=Sums())
    whole = load_json(job.state(direction, "whole.json"))
    options = job.options(direction)
    statistics = summarise(sums, whole["counts"]["target_words"])
    tension = job.config.tension if number == 0 else load_json(_done(job, direction, number - 1))["tension"]
    if number and options.optimize_tension and statistics.target_words:
        statistics = fit_tension(statistics, tension, [tuple(size) for size in whole["sizes"]], options)
        tension = statistics.tensions[-1]
    return statistics, tension


def make_linker(job: Job) -> Callable[[Item], None]:
    """Return a function that finds the links of a shard in a direction."""
    return partial(_link, job)


def _link(job: Job, item: Item) -> None:
    """Write the best links of a shard, the last pass over it."""
    direction, shard = item
    aligner = _aligner_before(job, direction, shard, job.config.iterations - 1)
    found = aligner.align(margins=False, threads=job.context.resources.threads)
    job.save(job.links(direction, shard, "sources"), found.sources())
    high, low = found.log_likelihood
    record = {"log_likelihood": high * 2**64 + low, "near_ties": found.near_ties}
    job.save_json(_linked_file(job, direction, shard), record)


def make_concluder(job: Job) -> Callable[[Direction], None]:
    """Return a function that writes the model and the statistics of a direction."""
    return partial(_conclude, job)


def _conclude(job: Job, direction: Direction) -> None:
    """Write the model and the statistics of a direction."""
    options = job.options(direction)
    whole = load_json(job.state(direction, "whole.json"))
    cells = _whole(job, direction)
    done = [load_json(_done(job, direction, number)) for number in range(options.iterations - 1)]
    t = load(_probabilities_file(job, direction, len(done) - 1)) if done else np.full(len(cells.columns), UNSEEN)
    tension = done[-1]["tension"] if done else options.tension
    ratio = length_ratio([tuple(size) for size in whole["sizes"]])
    model_of(cells, t, options, tension, ratio, words_of(job)).save(job.context.directory / f"{direction}.align")
    linked = [load_json(_linked_file(job, direction, shard)) for shard in range(len(job.shards))]
    last = summarise(Sums(sum(shard["log_likelihood"] for shard in linked)), whole["counts"]["target_words"])
    counts = {**whole["counts"], "cells": len(cells.columns), "near_ties": sum(shard["near_ties"] for shard in linked)}
    record = fit_record(
        [*(one["pass"] for one in done), pass_record(last)],
        tension=tension,
        length_ratio=ratio,
        counts=counts,
    )
    job.save_json(job.state(direction, "fitted.json"), record)


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
