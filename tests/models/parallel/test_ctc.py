"""CTC against enumeration, on tiny and on long lattices."""

import math
from itertools import groupby

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from kernels.reference import ctc as twin
from models.parallel.ctc import ctc_best_alignment, ctc_log_likelihood, slots_needed

BLANK, A, B = range(3)
ROWS = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.1, 0.3, 0.6], [0.5, 0.2, 0.3]], dtype=torch.float64).log()
PROBABILITIES = {
    (A, B): 0.3302, (B, A): 0.1034, (A,): 0.1012, (B,): 0.0998, (A, B, A): 0.0926, (B, A, B): 0.0918,
    (B, B): 0.0642, (A, A): 0.0516, (A, A, B): 0.018, (A, B, A, B): 0.009, (): 0.004,
}  # fmt: skip


def batch(rows, targets, slots=None):
    """Return the arguments of the likelihood for log-probabilities [T,V] of each sentence and their targets."""
    size, width = max(len(target) for target in targets), max(len(row) for row in rows)
    ids = torch.full((len(targets), size), 99)
    scores = torch.full((len(targets), size + 1, width), -3.0, dtype=rows[0].dtype)
    for number, (row, target) in enumerate(zip(rows, targets, strict=True)):
        ids[number, : len(target)] = torch.tensor(target, dtype=torch.int64)
        scores[number, : len(target) + 1, : len(row)] = row[:, [BLANK, *target]].t()
    lengths = torch.tensor(slots or [len(row) for row in rows])
    return scores, ids, torch.tensor([len(target) for target in targets]), lengths


def test_the_probabilities_of_all_texts_are_those_of_the_table():
    found = ctc_log_likelihood(*batch([ROWS] * len(PROBABILITIES), list(PROBABILITIES))).exp()
    assert found.tolist() == pytest.approx(list(PROBABILITIES.values()), abs=1e-12)
    assert ctc_log_likelihood(*batch([ROWS], [(A, A, A)])).tolist() == [-math.inf]


def test_the_gradient_is_the_posterior():
    logits = ROWS.clone().requires_grad_()
    scores = logits.log_softmax(1)[:, [BLANK, A, B]].t()[None]
    ctc_log_likelihood(scores, torch.tensor([[A, B]]), torch.tensor([2]), torch.tensor([4])).sum().backward()
    posterior = torch.tensor([[0.1672, 0.8328, 0], [0.3307, 0.5088, 0.1605], [0.0588, 0.0981, 0.8431], [0.5421, 0, 0.4579]])
    torch.testing.assert_close(logits.grad.float(), posterior - ROWS.exp().float(), rtol=0, atol=5e-5)


def test_the_gradient_is_that_of_finite_differences_and_zero_where_slots_do_not_suffice():
    logits = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    ids, sizes, slots = torch.tensor([[1, 2], [1, 1], [2, 2]]), torch.tensor([2, 2, 1]), torch.tensor([5, 4, 5])

    def likelihood(logits):
        rows = logits.log_softmax(2)
        scores = torch.cat((rows[..., :1], rows.gather(2, ids[:, None].expand(-1, 5, -1))), 2).transpose(1, 2)
        return ctc_log_likelihood(scores, ids, sizes, slots)

    torch.autograd.gradcheck(likelihood, logits)
    slots[:] = torch.tensor([1, 2, 5])
    found = likelihood(logits)
    assert found.isfinite().tolist() == [False, False, True]
    found.where(found.isfinite(), 0.0).sum().backward()
    assert not logits.grad[:2].any()
    assert logits.grad[2].any()


def test_the_kernel_of_cudnn_is_never_used(monkeypatch):
    """It ignores `zero_infinity` and has given NaN with large vocabularies; torch may choose it for targets on the CPU."""
    used, ctc_loss = [], F.ctc_loss

    def recorded(*arguments, **options):
        used.append(torch.backends.cudnn.enabled)
        return ctc_loss(*arguments, **options)

    monkeypatch.setattr(F, "ctc_loss", recorded)
    before = torch.backends.cudnn.enabled
    ctc_log_likelihood(*batch([ROWS], [(A, B)]))
    assert used == [False]
    assert torch.backends.cudnn.enabled == before


@given(st.data())
def test_likelihoods_equal_enumeration_whatever_the_padding(data):
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    slots = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    rows = [torch.randn(count, 3, generator=generator, dtype=torch.float64).log_softmax(1) for count in slots]
    targets = [data.draw(st.lists(st.integers(1, 2), max_size=4)) for _ in slots]
    found = ctc_log_likelihood(*batch(rows, targets)).tolist()
    for row, target, value in zip(rows, targets, found, strict=True):
        exact = twin.text_probabilities(row.tolist(), BLANK)
        assert sum(exact.values()) == pytest.approx(1.0)
        assert math.exp(value) == pytest.approx(exact.get(tuple(target), 0.0), abs=1e-12)
        assert value == pytest.approx(twin.log_likelihood(row.tolist(), target, BLANK))


@given(st.data())
def test_the_best_alignment_writes_the_target_as_well_as_any_path(data):
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    slots = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    rows = [torch.randn(count, 3, generator=generator, dtype=torch.float64).log_softmax(1) for count in slots]
    targets = [data.draw(st.lists(st.integers(1, 2), max_size=4)) for _ in slots]
    arguments = batch(rows, targets)
    needed = slots_needed(*arguments[1:3])
    for number, (row, target) in enumerate(zip(rows, targets, strict=True)):
        path = ctc_best_alignment(*arguments)[number].tolist()
        assert needed[number] == len(target) + sum(len(list(same)) - 1 for _, same in groupby(target))
        assert all(state == -1 for state in path[len(row) :])
        if needed[number] > len(row):
            assert set(path) == {-1}
            continue
        symbols = [[BLANK, *target][state] for state in path[: len(row)]]
        assert twin.collapse(symbols, BLANK) == tuple(target)
        score = sum(one[symbol].item() for one, symbol in zip(row, symbols, strict=True))
        assert score == pytest.approx(twin.best_path(row.tolist(), target, BLANK))


@pytest.mark.parametrize(("target", "path"), [((A, B), [1, 0, 2, 0]), ((A, B, A), [1, 0, 2, 3])])
def test_ties_of_alignments_are_broken_by_the_rule(target, path):
    assert ctc_best_alignment(*batch([ROWS], [target])).tolist() == [path]


@pytest.mark.parametrize(
    ("slots", "target", "count"),
    [
        (4, "ab", 15),
        (4, "aa", 5),
        (4, "aba", 7),
        (6, "abc", 84),
        (10, "abcde", 3003),
        (10, "aabbc", 286),
        (30, "ab" * 5, 137846528820),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_slots_count_the_alignments(slots, target, count, dtype):
    ids = [ord(letter) - ord("a") + 1 for letter in target]
    found = ctc_log_likelihood(*batch([torch.full((slots, 7), -math.log(7), dtype=dtype)], [ids])).item()
    assert found == pytest.approx(math.log(count) - slots * math.log(7), rel=1e-5 if dtype == torch.float32 else 1e-12)
