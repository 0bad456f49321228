"""Expected bigrams of CTC against enumeration of all alignments."""

from collections import Counter
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.reference.ctc import collapse
from models.common.losses.target_ngrams import clipped_matches, target_ngrams
from models.parallel.loss import loss
from models.parallel.ngram_loss import expected_bigrams, expected_total, neighbour_overlaps
from tests.models.parallel.networks import batch_of, network
from tests.models.parallel.test_ctc import BLANK, ROWS, A, B, batch


def overlaps(rows):
    products = rows[1:].exp() * rows[:-1].exp()
    return (products.sum(1) - products[:, BLANK])[None]


def by_enumeration(rows):
    """Return the expected number of each bigram of the text that the slots write."""
    counts = Counter()
    for path in product(range(rows.size(1)), repeat=len(rows)):
        probability = sum(row[symbol] for row, symbol in zip(rows, path, strict=True)).exp().item()
        for bigram in pairwise(collapse(path, BLANK)):
            counts[bigram] += probability
    return counts


def agreement(rows, target):
    scores, ids, target_lengths, lengths = batch([rows], [target])
    matched = clipped_matches(expected_bigrams(scores, ids, target_lengths, lengths), target_ngrams(ids, target_lengths, 2))
    return 2 * matched / (expected_total(scores[:, 0], overlaps(rows), lengths) + len(target) - 1)


def test_a_known_lattice_has_its_numbers():
    scores, ids, target_lengths, lengths = batch([ROWS], [(A, B, A)])
    assert expected_bigrams(scores, ids, target_lengths, lengths)[0].tolist() == pytest.approx([0.568, 0.3424])
    scores, ids, target_lengths, lengths = batch([ROWS] * 2, [(A, A), (B, B)])
    assert expected_bigrams(scores, ids, target_lengths, lengths)[:, 0].tolist() == pytest.approx([0.072, 0.0816])
    assert expected_total(scores[:1, 0], overlaps(ROWS), lengths[:1]).item() == pytest.approx(1.064)
    assert agreement(ROWS, (A, B, A)).item() == pytest.approx(0.594256, abs=1e-6)


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
        scores = logits.log_softmax(1)[:, [BLANK, *target]].t()[None]
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


def test_training_lowers_the_loss():
    pairs = [([8, 9, 10], [11, 12, 13]), ([9, 8], [12, 11]), ([10, 10, 8, 9], [13, 13, 11, 12]), ([8], [11])]
    model = network(objective="ctc", dropout=0.0).train()
    plain, fuzzy = model.config, network(objective="ctc-ngram", dropout=0.0).config
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    costs = []
    for update in range(40):
        model.config = plain if update < 15 else fuzzy
        result = loss(model, batch_of(pairs), update, 0.0)
        optimizer.zero_grad()
        (result.total / result.count).backward()
        optimizer.step()
        costs.append(result.total.item() / len(pairs))
    assert -1.0 <= sum(costs[-5:]) / 5 < sum(costs[15:20]) / 5 - 0.05
    assert set(result.statistics) == {"precision", "recall", "impossible"}
    assert int(result.statistics["impossible"]) == 0


def test_targets_without_bigrams_cost_nothing():
    model = network(objective="ctc-ngram").eval()
    result = loss(model, batch_of([([8, 9], []), ([9], [11])]), 0, 0.0)
    assert (result.total.item(), int(result.count)) == (0.0, 2)
