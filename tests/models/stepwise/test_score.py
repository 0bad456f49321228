"""Scores of given targets agree with the scores of searches."""

import dataclasses
import math
import random
from collections import Counter

import pytest
import torch

from fewstep.config.network import Sizes
from fewstep.config.options import NucleusSampling, OutputLimits
from fewstep.deduplicate import deduplicate
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.families.stepwise.orders import ORDERS, GenerationOrder
from fewstep.vocabulary import BOS, EOS, UNK
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.model import StepwiseModel

SMALL = StepwiseConfig(encoder_layers=1, decoder_layers=2, width=16, feed_forward=24, heads=2, dropout=0.0, max_positions=40)
VOCABULARY = 12


def decoder(order=None, vocabulary=VOCABULARY, **changes):
    """Return an untrained network with sharp distributions that vary with the text."""
    torch.manual_seed(0)
    model = StepwiseModel(
        dataclasses.replace(SMALL, **changes), Sizes(vocabulary, vocabulary, True), order or GenerationOrder()
    ).eval()
    with torch.no_grad():
        model.target_embedding.weight.mul_(3)
    return StepwiseDecoder(model)


def texts(count, longest, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(7, VOCABULARY) for _ in range(draw.randrange(longest + 1))] for _ in range(count)]


@pytest.mark.parametrize("name", ORDERS)
def test_what_a_search_wrote_has_the_probability_that_the_search_found(name):
    """The search computes step by step with a cache, the score all steps at once."""
    at_work = decoder(ORDERS[name], vocabulary=9)
    sources = [[7], [8, 7], [7, 7, 8], [8, 8], [7, 8, 8, 8]]
    search = StepwiseSearch(
        strategy="beam",
        beam_size=40,
        n_best=40,
        length_penalty=0.0,
        output_limits=OutputLimits(max_extra_tokens=9, allow_unknown=True),
    )
    searches = [
        search,
        dataclasses.replace(search, output_limits=OutputLimits(max_extra_tokens=9, min_tokens=6, allow_unknown=True)),
    ]
    pairs = [
        (source, one)
        for each in searches
        for source, ranked in zip(sources, at_work.decode(at_work.prepare(sources), each), strict=True)
        for one in ranked
        if len(one.ids) < len(source) + 10  # else the longest output cut it, and no EOS was written
    ]
    compared = Counter()
    for (_, one), score in zip(pairs, at_work.score([source for source, _ in pairs], [one.ids for _, one in pairs]), strict=True):
        if at_work.model.order.stop == "per-direction" and one.score > score + 1e-3:
            compared["other"] += 1  # written the other way: (EOS, w) for (w, EOS)
            continue
        assert score == pytest.approx(one.score, abs=2e-4)
        compared[len(one.ids)] += 1
    assert len(compared) > 3, "outputs of few lengths would test little"
    assert compared["other"] < compared.total() / 2


@pytest.mark.parametrize("name", ["autoregressive", "interleaved-sa", "multi-directional", "double-token"])
def test_scores_do_not_depend_on_company(name):
    at_work = decoder(ORDERS[name])
    sources, targets = texts(20, 9, seed=1), texts(20, 12, seed=2)
    together = at_work.score(sources, targets)
    assert together == pytest.approx(at_work.score(sources[::-1], targets[::-1])[::-1], abs=1e-4)
    for source, target, score in zip(sources, targets, together, strict=True):
        assert at_work.score([source], [target]) == pytest.approx([score], abs=1e-4)
    assert all(score < 0 for score in together)


def test_sides_may_be_empty_and_batches_too():
    at_work = decoder()
    assert at_work.score([], []) == []
    empty, some = at_work.score([[], [7]], [[], [8]])
    assert empty < 0
    assert some < 0


def test_the_unknown_token_is_scored_though_no_search_writes_it():
    at_work = decoder()
    (score,) = at_work.score([[7]], [[8, UNK]])
    assert math.isfinite(score)


@pytest.mark.parametrize(
    ("sources", "targets", "problem"),
    [
        ([[7]], [], r"targets: expected 1, one for each source, got 0"),
        ([[7], [7] * 40], [[7], [8]], r"sources\[1\]: expected at most 39 tokens, got 40"),
        ([[7], [7]], [[7], [8] * 40], r"targets\[1\]: expected at most 39 tokens, got 40"),
        ([[7]], [[8, EOS, 8]], r"targets\[0\]: expected ids of text, got the reserved id 2 \(</s>\)"),
        ([[7]], [[BOS, 8]], r"got the reserved id 1 \(<s>\)"),
    ],
)
def test_what_cannot_be_scored_is_refused(sources, targets, problem):
    with pytest.raises(ValueError, match=problem):
        decoder().score(sources, targets)


@pytest.mark.parametrize("name", ORDERS)
def test_the_longest_target_can_be_scored(name):
    (score,) = decoder(ORDERS[name], max_positions=11).score([[7] * 10], [[8] * 10])
    assert math.isfinite(score)


def test_a_living_network_is_scored_without_dropout_or_autocast_and_keeps_its_mode():
    at_work = decoder(dropout=0.5)
    expected = at_work.score([[7, 8]], [[9, 10]])
    at_work.model.train()
    with torch.autocast("cpu", torch.bfloat16):
        assert at_work.score([[7, 8]], [[9, 10]]) == expected
    assert at_work.model.training


@pytest.mark.parametrize(
    "search",
    [
        StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=9)),
        StepwiseSearch(strategy="beam", beam_size=4, n_best=4, output_limits=OutputLimits(max_extra_tokens=9)),
    ],
)
def test_repetitions_are_taken_out_of_outputs_only_where_asked(search):
    at_work = decoder(ORDERS["interleaved-sa"])
    prepared = at_work.prepare(texts(30, 6, seed=5))
    plain = at_work.decode(prepared, search)
    clean = at_work.decode(prepared, dataclasses.replace(search, deduplicate=True))
    shortened = 0
    for before, after in zip(plain, clean, strict=True):
        first = {}
        for one in before:
            first.setdefault(tuple(deduplicate(one.ids)), one)
        assert [(tuple(one.ids), one.score, one.steps) for one in after] == [
            (ids, one.score, one.steps) for ids, one in first.items()
        ]
        shortened += before[0].ids != after[0].ids
    assert shortened > 3


def test_samples_stay_as_many_as_were_drawn():
    at_work = decoder(ORDERS["interleaved-sa"])
    search = StepwiseSearch(
        strategy="sample",
        n_best=12,
        sampling=NucleusSampling(top_p=0.5),
        output_limits=OutputLimits(max_extra_tokens=9),
        deduplicate=True,
    )
    found = at_work.decode(at_work.prepare(texts(6, 6, seed=5)), search)
    assert [len(ranked) for ranked in found] == [12] * 6
    assert any(len({tuple(one.ids) for one in ranked}) < 12 for ranked in found)
