"""The stream of training batches: a pure function of (seed, position) that visits every kept row once an epoch."""

from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.vocabulary import BOS, EOS, MASK, PAD, RESERVED
from models.training.batch import Pool, Position, Ragged, Share, batches, collate, cut, pinned, plan, prefetch_batches, shares
from models.training.config import Infilling
from models.training.infilling import draw_spans, infill, infilled_lengths, span_counts
from stages.train.token_files import PoolStream


def ragged(rows):
    return Ragged(
        np.concatenate([np.zeros(0, np.uint16), *(np.array(r, np.uint16) for r in rows)]), np.cumsum([0, *map(len, rows)])
    )


def make_shards(lengths, shard_rows):
    """Shards of pairs: row k holds the ids k + 7 in its source and k + 8 in its target."""
    pairs = [(k, [k + 7] * s, [k + 8] * t) for k, (s, t) in enumerate(lengths)]
    return [pairs[i : i + shard_rows] for i in range(0, len(pairs), shard_rows)]


def make_stream(lengths, *, shard_rows=5, seed=3, pool_rows=12, longest=30):
    shards = make_shards(lengths, shard_rows)

    def read(numbers):
        rows = [row for number in numbers for row in shards[number]]
        return Pool(np.array([r[0] for r in rows]), ragged([r[1] for r in rows]), ragged([r[2] for r in rows]))

    def keep(source, target):
        return np.maximum(source, target) <= longest

    return PoolStream([len(shard) for shard in shards], read, keep, seed, pool_rows)


def batches_of(stream, budget=40, start=Position()):
    return batches(stream.pools(start), budget, stream.seed, start.batch)


def flat(stream, start=Position(), count=60, budget=40):
    return [(pool.ids[rows].tolist(), position) for pool, rows, position in islice(batches_of(stream, budget, start), count)]


pair_lengths = st.lists(st.tuples(st.integers(0, 35), st.integers(0, 35)), min_size=1, max_size=60).filter(
    lambda pairs: any(max(pair) <= 30 for pair in pairs)
)


@given(lengths=pair_lengths, seed=st.integers(0, 5), budget=st.integers(31, 120), skip=st.integers(0, 40))
def test_the_stream_continues_from_any_position(lengths, seed, budget, skip):
    whole = flat(make_stream(lengths, seed=seed), budget=budget)
    position = whole[skip][1]
    assert flat(make_stream(lengths, seed=seed), position, 59 - skip, budget) == whole[skip + 1 :]


@given(lengths=pair_lengths, seed=st.integers(0, 5), budget=st.integers(31, 120))
def test_every_kept_row_comes_once_an_epoch_within_the_budget(lengths, seed, budget):
    epochs = {0: [], 1: []}
    for pool, rows, position in batches_of(make_stream(lengths, seed=seed), budget):
        if position.epoch == 2:
            break
        epochs[position.epoch] += pool.ids[rows].tolist()
        longest = max(pool.source.lengths[rows].max(), pool.target.lengths[rows].max()) + 1
        assert len(rows) * longest <= budget
    kept = [k for k, pair in enumerate(lengths) if max(pair) <= 30]
    assert sorted(epochs[0]) == sorted(epochs[1]) == kept


def test_epochs_seeds_and_pools_differ():
    lengths = [(k % 9 + 1, k % 7 + 1) for k in range(60)]
    first = [ids for ids, position in flat(make_stream(lengths), count=200) if position.epoch == 0]
    second = [ids for ids, position in flat(make_stream(lengths), count=200) if position.epoch == 1]
    other = [ids for ids, position in flat(make_stream(lengths, seed=4), count=200) if position.epoch == 0]
    assert first != second
    assert first != other
    assert (
        len({position.pool for _, position in flat(make_stream(lengths), count=len(first))}) == 4
    )  # 12 shards of 5, 12 rows a pool


@given(st.lists(st.integers(1, 20), min_size=1, max_size=50).map(sorted), st.integers(20, 90))
def test_cut_is_greedy(lengths, budget):
    expected, start = [], 0
    for stop in range(1, len(lengths) + 1):
        if (stop - start) * lengths[stop - 1] > budget:
            expected.append(slice(start, stop - 1))
            start = stop - 1
    assert cut(np.array(lengths), budget) == [*expected, slice(start, len(lengths))]


def test_batches_hold_rows_of_like_lengths_in_random_order():
    lengths = np.random.default_rng(0).integers(1, 40, 2000)
    batches = plan(lengths, lengths, np.arange(2000), 400, seed=1)
    means = [lengths[rows].mean() for rows in batches]
    assert max(lengths[rows].max() - lengths[rows].min() for rows in batches) <= 6
    assert means != sorted(means)


@given(st.lists(st.lists(st.integers(7, 500), max_size=9), min_size=1, max_size=12), st.randoms())
def test_vectorised_padding_equals_collate(rows, random):
    targets = [row[::-1][:4] for row in rows]
    pool = Pool(np.arange(len(rows)) * 10, ragged(rows), ragged(targets))
    chosen = [random.randrange(len(rows)) for _ in range(len(rows))]
    expected = collate([10 * k for k in chosen], [rows[k] for k in chosen], [targets[k] for k in chosen])
    got = pool.batch(np.array(chosen))
    for name, tensor in vars(expected).items():
        assert tensor.equal(getattr(got, name)), name
        assert tensor.dtype == getattr(got, name).dtype


def test_padding_ends_rows_with_eos():
    matrix, lengths = ragged([[9, 8], [], [7]]).padded(np.array([0, 1, 2]))
    assert matrix.tolist() == [[9, 8, EOS], [EOS, PAD, PAD], [7, EOS, PAD]]
    assert lengths.tolist() == [3, 1, 2]


@pytest.mark.parametrize(("size", "microbatch_tokens"), [(1, 0), (1, 15), (2, 0), (3, 9), (4, 1000)])
def test_shares_split_each_batch_whatever_workers_and_passes(size, microbatch_tokens):
    stream = make_stream([(k % 9 + 1, k % 7 + 1) for k in range(40)])
    parts = [
        list(islice(shares(stream.pools(Position()), 60, 3, rank=rank, size=size, microbatch_tokens=microbatch_tokens), 30))
        for rank in range(size)
    ]
    for workers, (ids, position) in zip(zip(*parts, strict=True), flat(stream, count=30, budget=60), strict=True):
        seen = [int(k) for (share,) in workers if share.weight for batch in share.slices for k in batch.ids]
        assert sorted(seen) == sorted(ids)
        assert {share.position for (share,) in workers} == {position}
        assert all(share.slices for (share,) in workers)
        if microbatch_tokens:
            slices = [batch for (share,) in workers for batch in share.slices if len(batch.ids) > 1]
            assert all(
                (len(batch.ids) - 1) * max(batch.source.size(1), batch.target.size(1)) <= microbatch_tokens for batch in slices
            )


def test_a_worker_without_rows_stands_in_with_weight_zero():
    stream = make_stream([(30, 30), (29, 30)])
    (first,), (second,) = (next(shares(stream.pools(Position()), 40, 3, rank=rank, size=2)) for rank in range(2))
    assert (first.weight, second.weight) == (1.0, 0.0)
    assert second.slices[0].ids.equal(first.slices[0].ids)


def test_prefetching_keeps_order_and_raises_in_place():
    def items():
        yield from range(1, 4)
        raise RuntimeError("broken")

    stream = prefetch_batches(items())
    assert list(islice(stream, 3)) == [1, 2, 3]
    with pytest.raises(RuntimeError, match="broken"):
        next(stream)


def test_shares_for_a_gpu_are_copied_to_page_locked_memory_once(monkeypatch):
    """Without a GPU there is no such memory; the copy is marked instead."""
    locked = set()

    def pin_memory(tensor):
        copy = tensor.clone()
        locked.add(copy.data_ptr())
        return copy

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    batch = collate([3, 1], [[7, 8], [9]], [[7], [8, 9]])
    (found,) = pinned(iter([[Share([batch], 0.5, Position(1, 2), 4)]]))
    assert (found[0].weight, found[0].position, found[0].number) == (0.5, Position(1, 2), 4)
    for name, tensor in vars(found[0].slices[0]).items():
        assert tensor.equal(vars(batch)[name])
        assert tensor.data_ptr() in locked


# ---- text infilling: what is masked and what is to be written make up the text, span by span


FIRST = len(RESERVED)

texts = st.lists(st.lists(st.integers(FIRST, 2**16 - 1), max_size=40), max_size=8)
configs = st.builds(
    Infilling,
    masked_share=st.floats(0.01, 0.99),
    mean_span_tokens=st.floats(1, 12),
    target=st.sampled_from(["spans", "segments", "text"]),
)


def pool_of(rows, ids=None):
    return Pool(
        np.arange(len(rows)) if ids is None else np.array(ids),
        ragged(rows),
        ragged([[FIRST]] * len(rows)),
    )


def rows_of(part):
    return [part.values[a:b].tolist() for a, b in zip(part.offsets[:-1], part.offsets[1:], strict=True)]


def pairs(rows, config, seed=1, ids=None):
    made = infill(pool_of(rows, ids), config, seed)
    return list(zip(rows_of(made.source), rows_of(made.target), strict=True))


def spans_of(target):
    spans = [[]]
    for token in target:
        if token in (MASK, BOS):
            spans.append([])
        else:
            spans[-1].append(token)
    return spans


@given(texts, configs, st.integers(0, 2**40))
def test_each_token_is_either_kept_or_in_its_span(rows, config, seed):
    for row, (source, target) in zip(rows, pairs(rows, config, seed), strict=True):
        if config.target == "text":
            assert target == row
            continue
        spans = iter(spans_of(target))
        filled = [token for kept in source for token in (next(spans) if kept == MASK else [kept])]
        assert filled == row
        assert list(spans) == ([] if row else [[]]), "no span is left over"
        assert (source, target) != (row, []) or not row


@given(texts, configs)
def test_the_numbers_of_masked_tokens_and_spans_are_those_of_the_config(rows, config):
    config = Infilling(masked_share=config.masked_share, mean_span_tokens=config.mean_span_tokens)
    for row, (source, target) in zip(rows, pairs(rows, config), strict=True):
        if not row:
            continue
        spans = spans_of(target)
        masked = sum(map(len, spans))
        assert abs(masked - config.masked_share * len(row)) <= 0.5 or masked == 1 or masked == len(row)
        assert min(map(len, spans)) >= 1, "a span holds something"
        assert max(map(len, spans)) - min(map(len, spans)) <= 1
        assert (MASK, MASK) not in pairwise(source), "spans do not touch"
        room = min(masked, len(row) - masked + 1)
        assert len(spans) == room or abs(len(spans) - masked / config.mean_span_tokens) <= 0.5 or len(spans) == 1


@given(texts, configs)
def test_lengths_are_known_before_the_tokens(rows, config):
    source, target = infilled_lengths(np.array([len(row) for row in rows], np.int64), config)
    made = pairs(rows, config)
    assert source.tolist() == [len(one) for one, _ in made]
    assert target.tolist() == [len(other) for _, other in made]


@given(texts, configs, st.integers(0, 2**40), st.randoms())
def test_the_spans_of_a_text_depend_on_its_seed_and_id_alone(rows, config, seed, random):
    together = pairs(rows, config, seed, range(len(rows)))
    order = list(range(len(rows)))
    random.shuffle(order)
    assert pairs([rows[row] for row in order], config, seed, order) == [together[row] for row in order]
    for row in order:
        assert pairs([rows[row]], config, seed, [row]) == [together[row]]


def test_segments_are_spans_with_another_separator():
    row = list(range(FIRST, FIRST + 100))
    (source, spans), (same, segments) = (pairs([row], Infilling(target=target))[0] for target in ("spans", "segments"))
    assert source == same
    assert [BOS if token == MASK else token for token in spans] == segments
    assert segments.count(BOS) == 4


def test_seeds_and_ids_mask_other_spans():
    row = list(range(FIRST, FIRST + 200))
    made = [pairs([row], Infilling(), seed, [identity])[0] for seed in (1, 2) for identity in (0, 1)]
    assert len({tuple(source) for source, _ in made}) == 4


def test_spans_of_equal_sizes_fall_everywhere():
    """Mask 4 of 8 tokens in 2 spans: the gaps share 3 free tokens, each gap equally often; sizes 2 and 2."""
    found = Counter()
    for seed in range(3000):
        starts, sizes = draw_spans(8, 4, 2, np.random.Generator(np.random.Philox(seed)))
        assert sizes.tolist() == [2, 2]
        found[tuple(starts.tolist())] += 1
    # Multinomial(3; 1/3, 1/3, 1/3) over the gaps before, between and after: 10 outcomes, with 1, 3 or 6 of 27 parts.
    expected = {(before, before + 2 + 1 + between) for before in range(4) for between in range(4 - before)}
    assert found.keys() == expected
    parts = {starts: multinomial(starts[0], starts[1] - starts[0] - 3) for starts in expected}
    for starts, part in parts.items():
        assert found[starts] / 3000 == pytest.approx(part / 27, abs=0.035)


def multinomial(before, between):
    """Return 27 times the probability of these gaps."""
    factorial = [1, 1, 2, 6]
    return 6 // (factorial[before] * factorial[between] * factorial[3 - before - between])


@pytest.mark.parametrize(
    ("length", "share", "mean", "masked", "spans"),
    [
        (0, 0.15, 3, 0, 0),
        (1, 0.15, 3, 1, 1),
        (20, 0.15, 3, 3, 1),
        (100, 0.15, 3, 15, 5),
        (10, 0.9, 1, 9, 2),
        (600, 0.15, 15, 90, 6),
    ],
)
def test_counts_by_hand(length, share, mean, masked, spans):
    config = Infilling(masked_share=share, mean_span_tokens=mean)
    assert [int(part[0]) for part in span_counts(np.array([length]), config)] == [masked, spans]
