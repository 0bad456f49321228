"""Text infilling: what is masked and what is to be written make up the text, span by span."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.vocabulary import BOS, MASK, RESERVED
from models.training.batch import Pool, Ragged
from models.training.config import Infilling
from models.training.infilling import draw_spans, infill, infilled_lengths, span_counts

FIRST = len(RESERVED)

texts = st.lists(st.lists(st.integers(FIRST, 2**16 - 1), max_size=40), max_size=8)
configs = st.builds(
    Infilling,
    masked_share=st.floats(0.01, 0.99),
    mean_span_tokens=st.floats(1, 12),
    target=st.sampled_from(["spans", "segments", "text"]),
)


def ragged(rows):
    return Ragged(np.array([token for row in rows for token in row], np.uint16), np.cumsum([0, *map(len, rows)], dtype=np.int64))


def pool_of(rows, ids=None):
    return Pool(np.arange(len(rows)) if ids is None else np.array(ids), ragged(rows), ragged([[FIRST]] * len(rows)))


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
