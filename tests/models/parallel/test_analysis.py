"""Token accuracy and recall under the best assignment: by hand, and against enumeration of all alignments."""

import math
from itertools import pairwise, product

import pytest
import torch

from fewstep.vocabulary import BLANK
from kernels.reference import ctc as reference
from models.parallel.analysis import assigned, inspect, slot_ranks
from models.parallel.ctc import ctc_best_alignment
from tests.models.parallel.networks import PAIRS, batch_of, network
from tests.models.parallel.test_loss import ROWS, A, B, log_probs_of

IDENTITY = torch.eye(3)


def aligned(rows, target):
    """Return the target beside slots with log-probabilities [T,3], whose first output is the blank."""
    ids, lengths, slots = torch.tensor([target]), torch.tensor([len(target)]), torch.tensor([len(rows)])
    labels = torch.tensor([[0, *target]])
    best = ctc_best_alignment(rows[:, labels[0]].t()[None], ids, lengths, slots)
    (found,) = assigned(rows[None].float(), IDENTITY, best, labels, lengths, blank=0)
    return found


def test_a_token_takes_the_mean_of_its_slots_by_hand():
    """The best alignment of `aba` is `a-ba`: the last slot prefers the blank. That of `aab` on sharper rows repeats a."""
    found = aligned(ROWS, [A, B, A])
    assert found.correct.tolist() == [1, 1, 0]
    assert found.ranks.tolist() == [0, 0, 1], "b is before a in the last slot, the blank takes no rank"
    rows = torch.tensor([[0.1, 0.8, 0.1], [0.3, 0.5, 0.2], [0.5, 0.4, 0.1], [0.0, 0.1, 0.9]]).log()
    # a a a b (.8 x .5 x .4 x .9) loses to a a - b (.8 x .5 x .5 x .9).
    assert aligned(rows, [A, B]).correct.tolist() == [1, 1]
    rows[2] = torch.tensor([0.3, 0.3, 0.4]).log()
    # a a b b is best now, and both slots of each token are right; with a less certain second slot half of those of `a` are.
    assert aligned(rows, [A, B]).correct.tolist() == [1, 1]
    rows[1] = torch.tensor([0.1, 0.44, 0.46]).log()
    assert aligned(rows, [A, B]).correct.tolist() == [1, 1], "b three times"
    rows[1] = torch.tensor([0.48, 0.5, 0.02]).log()
    rows[0] = torch.tensor([0.3, 0.3, 0.4]).log()
    assert aligned(rows, [A, B]).correct.tolist() == [0.5, 1]


def test_recall_by_hand():
    """Slots (.1,.6,.3) (.5,.2,.3) (.2,.3,.5) over a, b, c and the target `b c a`: 1, 2 and 3 of 3 tokens for K = 1, 2, 3."""
    rows = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.2, 0.3, 0.5]]).log()
    labels = torch.tensor([[0, 1, 2, 0]])
    (found,) = assigned(rows[None], IDENTITY, torch.tensor([[1, 2, 3]]), labels, torch.tensor([3]), blank=None)
    assert [(found.ranks < size).sum().item() for size in (1, 2, 3)] == [1, 2, 3]
    assert found.correct.tolist() == [1, 0, 0]
    (short,) = assigned(rows[None], IDENTITY, torch.tensor([[1, 2, -1]]), labels, torch.tensor([3]), blank=None)
    assert short.ranks.tolist() == [0, 1, 3], "a token without a slot has no rank among the outputs"
    assert found.entropies.tolist() == pytest.approx([-sum(p * math.log(p) for p in row) for row in rows.exp().tolist()])


def test_of_equal_outputs_the_lower_index_is_first():
    found = slot_ranks(torch.zeros(3, 3), IDENTITY, torch.tensor([0, 1, 2]), None)
    assert found.ranks.tolist() == [0, 1, 2]
    assert found.right.tolist() == [True, False, False]


def best_by_enumeration(rows, target):
    """Return the most probable alignment as token numbers from 1, with 0 for the blank; None if the slots do not suffice."""
    best, value = None, -math.inf
    choices = range(len(target) + 1)
    for path in product(choices, repeat=len(rows)):
        used = [number for slot, number in enumerate(path) if number and (slot == 0 or path[slot - 1] != number)]
        if used != [*range(1, len(target) + 1)]:
            continue
        if any(one and other == one + 1 and target[one - 1] == target[other - 1] for one, other in pairwise(path)):
            continue  # equal neighbours without a blank between them are one token
        score = sum(float(row[target[number - 1] if number else BLANK]) for row, number in zip(rows, path, strict=True))
        if score > value:
            best, value = list(path), score
    return best


@pytest.mark.parametrize("upsampling", [1.5, 2.0])
def test_alignments_of_a_network_are_the_best_of_all(upsampling):
    model = network(objective="ctc", upsampling=upsampling)
    pairs = [([8, 9, 10], [7, 11]), ([7], [12]), ([12, 13], [9, 9, 8]), ([7], [9, 9])]
    with torch.no_grad():
        for (source, target), found in zip(pairs, inspect(model, batch_of(pairs)), strict=True):
            rows, _ = log_probs_of(model, source, math.ceil(upsampling * (len(source) + 1)))
            best = best_by_enumeration(rows, target)
            assert (found is None) == (best is None) == (reference.log_likelihood(rows.tolist(), target, BLANK) == -math.inf)
            if found is None:
                continue
            slots = {number: [slot for slot, one in enumerate(best) if one == number] for number in range(1, len(target) + 1)}
            for number, token in enumerate(target, 1):
                right = [int(rows[slot].argmax()) == token for slot in slots[number]]
                assert found.correct[number - 1].item() == pytest.approx(sum(right) / len(right))
                without = rows.clone()
                without[:, BLANK] = -math.inf
                ranks = [int((without[slot] > without[slot][token]).sum()) for slot in slots[number]]
                assert found.ranks[number - 1].item() == min(ranks)
            assert found.predicted_ranks is None
            assert len(found.entropies) == len(rows)


@pytest.mark.parametrize("objective", ["nat", "glat", "cmlm"])
def test_slots_of_a_network_hold_the_token_at_their_position(objective):
    model = network(objective=objective)
    with torch.no_grad():
        together = inspect(model, batch_of(PAIRS))
        for pair, found in zip(PAIRS, together, strict=True):
            source, target = pair
            rows, lengths = log_probs_of(model, source, len(target) + 1)
            assert found.ranks.tolist() == [int((row > row[token]).sum()) for row, token in zip(rows, target, strict=False)]
            assert found.correct.tolist() == [float(row.argmax() == token) for row, token in zip(rows, target, strict=False)]
            assert len(found.entropies) == len(target), "EOS does not count"
            slots = max(model.config.min_slots, int(lengths.argmax()) - 128 + len(source) + 1)
            rows, _ = log_probs_of(model, source, slots)
            outputs = len(model.outputs)
            ranks = [int((rows[slot] > rows[slot][token]).sum()) if slot < slots else outputs for slot, token in enumerate(target)]
            assert found.predicted_ranks.tolist() == ranks
            (alone,) = inspect(model, batch_of([pair]))
            assert alone.ranks.tolist() == found.ranks.tolist(), "whatever else is in the batch"


def test_a_target_without_slots_is_impossible():
    model = network(objective="nat")
    pairs = [([8], [9] * 45), ([8], [9])]
    assert [found is None for found in inspect(model, batch_of(pairs))] == [True, False]
