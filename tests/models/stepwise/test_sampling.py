import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.network import Sizes
from fewstep.config.options import NucleusSampling, OutputLimits
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from models.stepwise.decode import decode_batch
from models.stepwise.loss import log_probability
from models.stepwise.model import build
from models.stepwise.search.sampling import draw
from models.training.batch import collate

SOURCES = [[7, 8, 9], [12], [10, 11, 12, 13, 9], [8, 8], [13, 7]]


def network(order="autoregressive"):
    torch.manual_seed(0)
    config = StepwiseConfig(
        order=order, encoder_layers=1, decoder_layers=1, width=16, feed_forward=24, heads=2, dropout=0.0, max_positions=30
    )
    return build(config, Sizes(16, 16, True)).eval()


def sampling(n_best=1, **options):
    return StepwiseSearch(strategy="sample", n_best=n_best, sampling=NucleusSampling(**options))


def frequencies(probabilities, count=4000, **options):
    """Return the number of draws of each token for evenly spaced random numbers."""
    logits = torch.tensor(probabilities).log().expand(count, 1, -1)
    tokens, _, _ = draw(logits, ((torch.arange(count) + 0.5) / count)[:, None], sampling(**options).sampling)
    return (torch.bincount(tokens.flatten(), minlength=len(probabilities)) / count).tolist()


def test_tokens_are_drawn_by_their_probability():
    assert frequencies([0.2, 0.5, 0.0, 0.3], top_p=1.0) == pytest.approx([0.2, 0.5, 0.0, 0.3], abs=1e-3)


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p():
    assert frequencies([0.2, 0.5, 0.0, 0.3], top_p=0.5) == [0.0, 1.0, 0.0, 0.0]
    assert frequencies([0.2, 0.5, 0.0, 0.3], top_p=0.6) == pytest.approx([0.0, 0.625, 0.0, 0.375], abs=1e-3)
    assert frequencies([0.2, 0.5, 0.0, 0.3], top_p=0.81) == pytest.approx([0.2, 0.5, 0.0, 0.3], abs=1e-3)


def test_temperature_sharpens():
    weights = [p**2 for p in (0.2, 0.5, 0.3)]
    expected = [weight / sum(weights) for weight in weights]
    assert frequencies([0.2, 0.5, 0.3], top_p=1.0, temperature=0.5) == pytest.approx(expected, abs=1e-3)


@given(
    st.lists(st.floats(-30, 30), min_size=2, max_size=9), st.floats(0.01, 1.0), st.sampled_from([0.0, 0.5, math.nextafter(1, 0)])
)
def test_a_banned_token_is_never_drawn(logits, top_p, number):
    values = torch.tensor([[[-math.inf, *logits]]])
    tokens, chosen, _ = draw(values, torch.tensor([[number]]), sampling(top_p=top_p).sampling)
    assert tokens.item() > 0
    assert chosen.item() == values[0, 0, tokens.item()].item()


@pytest.mark.parametrize("order", ["autoregressive", "interleaved", "interleaved-sa", "double-token"])
def test_samples_do_not_depend_on_company_and_score_what_they_are(order):
    model = network(order)
    limits = OutputLimits(max_extra_tokens=20)
    search = dataclasses.replace(sampling(n_best=4, top_p=0.95), length_penalty=0.0, output_limits=limits)
    together = decode_batch(model, SOURCES, search)
    turned = decode_batch(model, SOURCES[::-1], search)[::-1]
    checked = 0
    for source, found, again in zip(SOURCES, together, turned, strict=True):
        (alone,) = decode_batch(model, [source], search)
        assert [one.ids for one in found] == [one.ids for one in again] == [one.ids for one in alone]
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        # Directions that end one by one write some texts in two ways; what the limit cut has no EOS.
        ended = [one for one in found if len(one.ids) < len(source) + 21 and order != "double-token"]
        for one in ended:
            expected = log_probability(model, collate([0], [source], [one.ids])).item()
            assert one.score == pytest.approx(expected, abs=1e-4)
        checked += len(ended)
    assert checked >= 5 or order == "double-token"


def test_seeds_and_ranks_give_other_samples():
    model = network()
    first, again, other = (
        [[one.ids for one in found] for found in decode_batch(model, SOURCES, sampling(n_best=4, seed=seed))] for seed in (1, 1, 2)
    )
    assert first == again != other
    assert all(len({tuple(ids) for ids in found}) > 1 for found in first)
