import dataclasses
import itertools
import math
from functools import partial

import pytest
import torch

from fewstep.config.network import Sizes
from fewstep.config.options import NucleusSampling, OutputLimits
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.families.stepwise.orders import ORDERS
from fewstep.vocabulary import EOS
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.ensemble import Ensemble
from models.stepwise.model import StepwiseModel
from models.training.batch import collate

frozen = partial(StepwiseDecoder, frozen=True)
"""A decoder of finished networks."""

SMALL = StepwiseConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=24, heads=2, dropout=0.0, max_positions=40)
WORDS = 10
NEAR = 1e-4
SOURCES = [[7, 8, 9], [9], [8, 8, 7, 9, 7], [], [7]]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def network(seed, order="autoregressive", **changes):
    torch.manual_seed(seed)
    model = StepwiseModel(dataclasses.replace(SMALL, order=order, **changes), Sizes(WORDS, WORDS, True), ORDERS[order]).eval()
    with torch.no_grad():
        model.target_embedding.weight.mul_(2.0)
    return model


def ensemble(order="autoregressive", size=3):
    return Ensemble([network(seed, order) for seed in range(size)])


def decode(decoder, search):
    return decoder.decode(decoder.prepare(SOURCES), search)


@torch.no_grad()
def log_probs(members, source, prefix):
    """Return the logarithm of the mean probability of each next token, of an autoregressive ensemble."""
    batch = collate([0], [source], [[*prefix, 7]])
    found = []
    for member in members:
        made = member(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
        found.append((made.states @ made.weight.t()).softmax(-1)[len(prefix)])
    return torch.stack(found).mean(0).log()


def test_greedy_takes_the_token_of_the_highest_mean_probability():
    model = ensemble()
    search = StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=3))
    for source, (found,) in zip(SOURCES, decode(StepwiseDecoder(model), search), strict=True):
        written, score = [], 0.0
        for _ in range(len(source) + 1 + 3):
            row = log_probs(model.members, source, written)
            row[[token for token in range(7) if token != EOS]] = -math.inf
            row[EOS] = row[EOS] if written else -math.inf
            score += float(row.max())
            written.append(int(row.argmax()))
            if written[-1] == EOS:
                break
        assert found.ids == [token for token in written if token != EOS]
        assert found.score == pytest.approx(score / len(written), abs=1e-5)


def test_a_text_scores_the_mean_probability_of_each_of_its_tokens():
    model = ensemble()
    targets = [[7, 9], [8], [7, 7, 7, 9], [9, 8], []]
    for source, target, score in zip(SOURCES, targets, StepwiseDecoder(model).score(SOURCES, targets), strict=True):
        steps = [float(log_probs(model.members, source, target[:n])[word]) for n, word in enumerate([*target, EOS])]
        assert score == pytest.approx(sum(steps), abs=1e-4)


def test_the_probabilities_of_all_short_texts_and_of_longer_ones_sum_to_one():
    """Holds only if members are averaged token by token: means of whole outputs would do, means of logarithms would not."""
    model = ensemble()
    texts = [list(text) for length in range(2) for text in itertools.product(range(7, WORDS), repeat=length)]
    with torch.no_grad():
        ends = sum(math.exp(score) for score in StepwiseDecoder(model).score([[7]] * len(texts), texts))
        first = log_probs(model.members, [7], []).exp()
        other = sum(float(first[word]) * (1 - float(log_probs(model.members, [7], [word]).exp()[EOS])) for word in range(7, WORDS))
    reserved = float(first[[token for token in range(7) if token != EOS]].sum())
    assert ends + other + reserved == pytest.approx(1.0, abs=1e-5)


SEARCHES = [
    StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=4)),
    StepwiseSearch(strategy="beam", beam_size=3, n_best=3, output_limits=OutputLimits(max_extra_tokens=4)),
    StepwiseSearch(strategy="beam", beam_size=4, output_limits=OutputLimits(max_extra_tokens=4, min_tokens=2), length_penalty=0.6),
]


@pytest.mark.parametrize("order", ["autoregressive", "semi-autoregressive", "interleaved", "interleaved-sa"])
def test_native_search_finds_what_torch_finds(order):
    model, near = ensemble(order), 0
    for search in SEARCHES:
        for expected, found in zip(decode(StepwiseDecoder(model), search), decode(frozen(model), search), strict=True):
            if min(one[0].statistics["margin"] for one in (expected, found)) < NEAR:
                near += 1
                continue
            assert [one.ids for one in found] == [one.ids for one in expected]
            assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
    assert near < 5


def test_samples_are_drawn_from_the_mean():
    """With a tiny top_p a sample consists of the most probable tokens."""
    model = ensemble()
    greedy = decode(StepwiseDecoder(model), StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=4)))
    samples = decode(
        StepwiseDecoder(model),
        StepwiseSearch(strategy="sample", sampling=NucleusSampling(top_p=1e-6), output_limits=OutputLimits(max_extra_tokens=4)),
    )
    assert [one[0].ids for one in samples] == [one[0].ids for one in greedy]


@pytest.mark.parametrize("search", SEARCHES[:2])
def test_an_ensemble_of_copies_is_its_member(search):
    alone, together = (decode(StepwiseDecoder(model), search) for model in (network(1), Ensemble([network(1), network(1)])))
    for one, other in zip(alone, together, strict=True):
        assert [found.ids for found in one] == [found.ids for found in other]
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-5)


def test_networks_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match=r"member 2: expected the order of the first .*fold"):
        Ensemble([network(0), network(1, "interleaved")])
    with pytest.raises(ValueError, match=r"member 2: expected the max_positions of the first \(40\), got 30"):
        Ensemble([network(0), network(1, max_positions=30)])
