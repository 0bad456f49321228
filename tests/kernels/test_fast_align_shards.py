"""EM by map and reduce gives the same bits for any shards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewstep.native import fewstep_native as native
from kernels import AlignOptions
from kernels.fast_align import shards
from kernels.fast_align.em import Sums, fit_tension, last_pass, passes, summarise
from kernels.fast_align.shards import Cells, Counts, Part, row_ranges

DRAWN = random.Random(7)
ROWS = [
    ([DRAWN.randrange(9) for _ in range(DRAWN.randrange(8))], [DRAWN.randrange(11) for _ in range(DRAWN.randrange(8))])
    for _ in range(70)
]


def sides(rows: list[tuple[list[int], list[int]]]) -> list[tuple[Any, Any]]:
    return [
        (
            np.cumsum([0, *(len(row[side]) for row in rows)], dtype=np.int64),
            np.array([word for row in rows for word in row[side]], np.uint32),
        )
        for side in (0, 1)
    ]


def text_of(rows: list[tuple[list[int], list[int]]]) -> native.Bitext:
    return shards.numbered_text(*sides(rows), 9, 11)


def in_memory(options: AlignOptions) -> tuple[Any, ...]:
    text = text_of(ROWS)
    aligner = native.Aligner(text, options.reverse, options.native(), options.tension, keep_columns=True, threads=1)
    reported = list(passes(aligner, options))
    found = aligner.align(margins=True, threads=1)
    return [*reported, last_pass(found, aligner.target_words)], found.sources(), found.margins(), aligner.model()


def sharded(options: AlignOptions, cuts: list[int]) -> tuple[Any, ...]:
    parts = [ROWS[a:b] for a, b in zip([0, *cuts], [*cuts, len(ROWS)], strict=True)]
    make = lambda tension: [shards.shard_aligner(text_of(part), options, tension) for part in parts]  # noqa: E731
    aligners = make(options.tension)
    local = [shards.cells_of(aligner) for aligner in aligners]
    whole = shards.merge_cells(local)
    places = [shards.cell_offsets(whole, cells) for cells in local]
    sizes: dict[tuple[int, int], int] = {}
    for aligner in aligners:
        for m, n, count in aligner.sizes():
            sizes[m, n] = sizes.get((m, n), 0) + count
    listed = [(*size, sizes[size]) for size in sorted(sizes)]
    words, tension, reported, t = sum(aligner.target_words for aligner in aligners), options.tension, [], None
    for number in range(options.iterations):
        aligners = make(tension)
        if t is not None:
            for aligner, place in zip(aligners, places, strict=True):
                shards.take(aligner, whole.starts, place, t)
        if number == options.iterations - 1:
            break
        counted = [shards.expect(aligner, threads=1) for aligner in aligners]
        one = summarise(sum((sums for _, sums in counted), start=Sums()), words)
        if number and options.optimize_tension:
            one = fit_tension(one, tension, listed, options)
            tension = one.tensions[-1]
        reported.append(one)
        t = np.empty(len(whole.columns))
        taken = [Part(cells.starts, place, counts) for cells, place, (counts, _) in zip(local, places, counted, strict=True)]
        shards.maximise(whole.starts, taken, options, t)
    found = [aligner.align(margins=True, threads=1) for aligner in aligners]
    likelihood = sum((Sums.of([one.log_likelihood, (0, 0), (0, 0)]) for one in found), start=Sums())
    reported.append(summarise(likelihood, words))
    assert t is not None
    model = shards.model_of(whole, t, options, tension, shards.length_ratio(listed), native.Bitext())
    return (
        reported,
        np.concatenate([one.sources() for one in found]),
        np.concatenate([one.margins() for one in found]),
        model.native,
    )


@pytest.mark.parametrize("options", [AlignOptions(), AlignOptions(reverse=True, threads=2), AlignOptions(variational_bayes=False)])
def test_one_shard_and_seventeen(options: AlignOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "RANGE_CELLS", 40)
    reported, links, margins, model = in_memory(options)
    model.save(str(tmp_path / "whole"))
    for cuts in ([], [20, 50], [0, 1, 1, 2, 5, 9, 14, 20, 27, 30, 31, 33, 40, 51, 60, 70]):
        other = sharded(options, cuts)
        assert other[0] == reported
        assert np.array_equal(other[1], links)
        assert np.array_equal(other[2], margins)
        other[3].save(str(tmp_path / "sharded"))
        assert (tmp_path / "sharded").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (links >= 0).any()
    assert len(np.unique(margins)) > 50


def test_counts_are_exact_beyond_what_doubles_hold() -> None:
    starts, places = np.array([0, 1], np.uint64), np.zeros(1, np.uint32)
    low, high = np.array([2**63 + 1], np.uint64), np.array([5], np.uint32)
    parts = [Part(starts, places, Counts(low, high))] * 3
    total_low, total_high = np.zeros(1, np.uint64), np.zeros(1, np.uint32)
    for part in parts:
        native.add_counts(starts, starts, part.offsets, *part.counts, total_low, total_high)
    assert int(total_high[0]) * 2**64 + int(total_low[0]) == 3 * (5 * 2**64 + 2**63 + 1)


def test_ranges_of_rows() -> None:
    starts = np.array([0, 3, 3, 10, 11, 12, 20], np.uint64)
    assert list(row_ranges(starts, 4)) == [(0, 2), (2, 3), (3, 5), (5, 6)]
    assert list(row_ranges(starts, 100)) == [(0, 6)]
    assert list(row_ranges(starts, 1)) == [(k, k + 1) if k else (0, 1) for k in range(6)]
    assert list(row_ranges(starts[:1], 4)) == []


def test_what_does_not_fit_is_an_error() -> None:
    (source, target) = sides(ROWS)
    with pytest.raises(ValueError, match="word number 8 is not below 8"):
        shards.numbered_text(source, target, 8, 11)
    with pytest.raises(ValueError, match="unequal numbers of sentences"):
        shards.numbered_text(source, (target[0][:-1], target[1]), 9, 11)
    with pytest.raises(ValueError, match="sentence starts lie beyond the text"):
        shards.numbered_text(source, (target[0] + 1, target[1]), 9, 11)
    whole = shards.cells_of(shards.shard_aligner(text_of(ROWS[:3]), AlignOptions(), 4.0))
    other = shards.cells_of(shards.shard_aligner(text_of(ROWS[3:]), AlignOptions(), 4.0))
    with pytest.raises(ValueError, match="merged cells that contain those of each shard"):
        shards.cell_offsets(shards.merge_cells([whole]), other)
    with pytest.raises(ValueError, match="rows do not fit their cells"):
        shards.merge_cells([Cells(whole.starts, whole.columns[:-1])])
    text = text_of(ROWS)
    shards.shard_aligner(text, AlignOptions(), 4.0)
    with pytest.raises(ValueError, match="pairs cannot be added to a text that is in use"):
        text.add_words(["a"], ["b"])
