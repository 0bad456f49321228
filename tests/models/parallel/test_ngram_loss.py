"""Training by n-grams, and what slots read."""

import dataclasses
import random
from collections import Counter
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.network import Sizes
from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from kernels.reference.ctc import collapse
from models.common.losses.target_ngrams import clipped_matches, target_ngrams
from models.parallel.decode import ParallelDecoder
from models.parallel.lengths import fits, length_candidates, upsampled
from models.parallel.loss import loss
from models.parallel.model import build, copied, mixture, slot_inputs
from models.parallel.ngram_loss import expected_bigrams, expected_total, neighbour_overlaps
from tests.models.parallel.networks import OBJECTIVES, SMALL, batch_of, network
from tests.models.parallel.test_loss import EMPTY, ROWS, A, B, batch
from tests.shared import rest_exhaustive

# ---- expected bigrams of CTC against enumeration of all alignments


def overlaps(rows):
    products = rows[1:].exp() * rows[:-1].exp()
    return (products.sum(1) - products[:, EMPTY])[None]


def by_enumeration(rows):
    """Return the expected number of each bigram of the text that the slots write."""
    counts = Counter()
    for path in product(range(rows.size(1)), repeat=len(rows)):
        probability = sum(row[symbol] for row, symbol in zip(rows, path, strict=True)).exp().item()
        for bigram in pairwise(collapse(path, EMPTY)):
            counts[bigram] += probability
    return counts


def agreement(rows, target):
    scores, ids, target_lengths, lengths = batch([rows], [target])
    matched = clipped_matches(expected_bigrams(scores, ids, target_lengths, lengths), target_ngrams(ids, target_lengths, 2))
    return 2 * matched / (expected_total(scores[:, 0], overlaps(rows), lengths) + len(target) - 1)


@st.composite
def lattices(draw):
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    rows = torch.rand(draw(st.integers(1, 6)), draw(st.integers(2, 4)), generator=generator, dtype=torch.float64) ** 2
    target = draw(st.lists(st.integers(1, rows.size(1) - 1), min_size=1, max_size=6))
    return (rows / rows.sum(1, keepdim=True)).log(), tuple(target)


@given(lattices())
def test_expectations_are_those_of_all_alignments(example):
    rows, target = example
    counts = by_enumeration(rows)
    scores, ids, target_lengths, lengths = batch([rows], [target])
    found = expected_bigrams(scores, ids, target_lengths, lengths)[0].tolist()
    assert found == pytest.approx([counts[bigram] for bigram in pairwise(target)], abs=1e-9)
    assert expected_total(scores[:, 0], overlaps(rows), lengths).item() == pytest.approx(sum(counts.values()), abs=1e-9)
    wanted = Counter(pairwise(target))
    matched = clipped_matches(torch.tensor([found], dtype=torch.float64), target_ngrams(ids, target_lengths, 2)).item()
    assert matched == pytest.approx(sum(min(counts[bigram], count) for bigram, count in wanted.items()))


@given(lattices())
def test_the_gradient_is_that_of_the_formula(example):
    rows, target = example

    def matched(logits):
        scores, ids, target_lengths, lengths = batch([rows], [target])
        scores = logits.log_softmax(1)[:, [EMPTY, *target]].t()[None]
        return expected_bigrams(scores, ids, target_lengths, lengths).sum() + expected_total(
            scores[:, 0], overlaps(logits.log_softmax(1)), lengths
        )

    assert torch.autograd.gradcheck(matched, (rows.clone().requires_grad_(),))


def test_padding_and_impossible_blanks_carry_no_nan():
    certain = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64).log()
    scores, ids, target_lengths, lengths = batch([ROWS, certain], [(A, B, A), (A, B)])
    scores[1, :, 2:] = torch.nan
    scores[1, 3:] = torch.nan
    scores.requires_grad_()
    found = expected_bigrams(scores, ids, target_lengths, lengths)
    assert found.flatten().tolist() == pytest.approx([0.568, 0.3424, 1.0, 0.0])
    found.sum().backward()
    assert scores.grad.isfinite().all()
    assert not scores.grad[1, :, 2:].any()


def test_overlaps_are_those_of_all_tokens_whatever_the_parts(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    states, weight = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((3, 4, 5), (6, 5)))
    probabilities = (states @ weight.t()).softmax(2)
    expected = sum(probabilities[:, 1:, w] * probabilities[:, :-1, w] for w in range(6) if w != 2)
    for held in (1, 10**9):
        monkeypatch.setattr("models.parallel.ngram_loss.PROBABILITIES", held)
        torch.testing.assert_close(neighbour_overlaps(states, weight, 2), expected)


def test_targets_without_bigrams_cost_nothing():
    model = network(objective="ctc-ngram").eval()
    result = loss(model, batch_of([([8, 9], []), ([9], [11])]), 0, 0.0)
    assert (result.total.item(), int(result.count)) == (0.0, 2)


# ---- small trainings on a language that can be learnt: each source is reversed, and every token becomes another one


UPDATES = 400


def pairs(count: int, seed: int) -> list[tuple[list[int], list[int]]]:
    draw = random.Random(seed)
    sources = [[draw.randrange(7, 17) for _ in range(draw.randint(2, 6))] for _ in range(count)]
    return [(source, [token + 10 for token in reversed(source)]) for source in sources]


@pytest.mark.slow
@pytest.mark.parametrize("objective", rest_exhaustive(OBJECTIVES, ["ctc"]))
def test_a_language_is_learnt(objective):
    torch.manual_seed(1)
    config = ParallelConfig(
        objective=objective,
        width=64,
        feed_forward=128,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        max_positions=16,
        glancing_updates=UPDATES,
    )
    model = build(config, Sizes(27, 27, True)).train()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, UPDATES)
    costs = []
    for update in range(1, UPDATES + 1):
        torch.manual_seed(update)
        result = loss(model, batch_of(pairs(64, update), range(64 * update, 64 * update + 64)), update, 0.0)
        optimizer.zero_grad()
        (result.total / result.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        costs.append(result.total.item() / int(result.count))
    assert sum(costs[-10:]) < 0.3 * sum(costs[:10])
    unseen = pairs(50, 0)
    decoder = ParallelDecoder(model)
    found = decoder.decode(decoder.prepare([source for source, _ in unseen]), ParallelSearch.for_network(config))
    right = sum(one[0].ids == target for one, (_, target) in zip(found, unseen, strict=True))
    assert right >= 45


# ---- inputs of empty slots, and their number


UNIFORM = dataclasses.replace(SMALL, slot_input="uniform")
SOFT = dataclasses.replace(SMALL, slot_input="soft")
CTC = dataclasses.replace(SMALL, objective="ctc")


@pytest.mark.parametrize(
    ("source", "target", "tokens"),
    [
        (5, 8, [0, 1, 1, 2, 2, 3, 3, 4]),
        (6, 3, [0, 2, 5]),
        (4, 3, [0, 2, 3]),
        (3, 7, [0, 0, 1, 1, 1, 2, 2]),
        (5, 1, [0]),
        (1, 3, [0, 0, 0]),
    ],
)
def test_slots_copy_the_token_at_the_same_relative_position(source, target, tokens):
    found = copied(UNIFORM, torch.tensor([source]), torch.tensor([target]), torch.arange(target))
    assert found.tolist() == [tokens]


def test_a_mixture_is_centred_on_the_relative_position():
    found = mixture(SOFT, torch.tensor([3]), torch.tensor([2]), torch.arange(2), 3)[0]
    near = torch.tensor([0.841099, 0.158863, 0.000038])
    torch.testing.assert_close(found, torch.stack((near, near.flip(0))), rtol=0, atol=1e-6)


def test_a_mixture_at_a_low_temperature_is_the_nearest_token():
    config = dataclasses.replace(SOFT, copy_temperature=0.001)
    found = mixture(config, torch.tensor([3]), torch.tensor([9]), torch.arange(9), 3)[0]
    assert found.argmax(1).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    torch.testing.assert_close(found.amax(1), torch.ones(9))


def test_mixtures_do_not_depend_on_padding():
    for config in (SOFT, dataclasses.replace(CTC, slot_input="gaussian")):
        alone = mixture(config, torch.tensor([3]), torch.tensor([6]), torch.arange(6), 3)
        padded = mixture(config, torch.tensor([3, 5]), torch.tensor([6, 9]), torch.arange(9), 5)[:1, :6]
        torch.testing.assert_close(padded[..., :3], alone)
        assert not padded[..., 3:].any()


@pytest.mark.parametrize(
    ("factor", "source", "tokens"),
    [(2.0, 3, [0, 0, 1, 1, 2, 2]), (3.0, 2, [0, 0, 0, 1, 1, 1]), (1.5, 3, [0, 0, 1, 2, 2]), (2.2, 5, None)],
)
def test_upsampling_repeats_source_tokens(factor, source, tokens):
    config = dataclasses.replace(CTC, upsampling=factor)
    slots = int(upsampled(config, torch.tensor([source]))[0])
    found = copied(config, torch.tensor([source]), torch.tensor([slots]), torch.arange(slots))[0].tolist()
    assert (slots, found) == ((len(tokens), tokens) if tokens else (11, [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]))


def test_upsampling_by_a_gaussian_weighs_the_nearest_token_most():
    config = dataclasses.replace(CTC, slot_input="gaussian", upsampling=2.0)
    assert mixture(config, torch.tensor([3]), torch.tensor([6]), torch.arange(6), 3)[0].argmax(1).tolist()[1::2] == [0, 1, 2]


def test_embeddings_are_copied_and_not_positions():
    embedded = torch.randn(2, 4, 16)
    found = slot_inputs(UNIFORM, embedded, torch.tensor([4, 2]), torch.tensor([2, 3]), 3)
    assert torch.equal(found[0, :2], embedded[0, [0, 3]])
    assert torch.equal(found[1], embedded[1, [0, 0, 1]])


def test_length_candidates_are_distinct_and_within_the_table():
    logits = torch.full((1, 256), -9.0)
    logits[0, [128, 129, 0, 255]] = torch.tensor([3.0, 4.0, 2.0, 1.0])
    lengths, distinct = length_candidates(SMALL, logits, torch.tensor([5]), 4)
    assert lengths.tolist() == [[6, 5, 1, 40]]
    lengths, distinct = length_candidates(SMALL, logits, torch.tensor([2]), 6, "around")
    assert lengths[distinct].tolist() == [3, 2, 4, 1, 5]
    masked = dataclasses.replace(SMALL, objective="cmlm")
    assert length_candidates(masked, logits, torch.tensor([1]), 3, "around")[0].tolist() == [[2, 2, 3]]


def test_pairs_without_enough_slots_are_left_out():
    assert fits(CTC, 3, 8)
    assert not fits(CTC, 3, 9)
    assert fits(SMALL, 3, 39)
    assert not fits(SMALL, 3, 40)
    assert not fits(CTC, 40, 3)
