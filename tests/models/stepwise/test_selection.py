import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.family import EOS, PAD
from models.stepwise.config import StepwiseSearch
from models.stepwise.orders import ORDERS, Order
from models.stepwise.selection import select

VOCABULARY = 6
"""EOS among them; the reserved ids below it are never offered."""
WORDS = [3, 4, 5]


def joint(order, table, live, room):
    """Every continuation of one sentence with its log-probability, best first: [(score, hypothesis, tokens)]."""
    z, found = order.step_size, []
    for hypothesis, tokens in itertools.product(range(len(live)), itertools.product([EOS, *WORDS], repeat=z)):
        ended, score, kept = False, live[hypothesis], []
        for slot, token in enumerate(tokens):
            counts = slot < room and not (ended and order.stop == "first-eos")
            if not counts and token != WORDS[0]:
                break  # what does not count is any token: once is enough
            kept.append(token if counts else PAD)
            score += table[hypothesis][slot][token] if counts else 0.0
            ended |= counts and token == EOS
        else:
            found.append((score, hypothesis, kept))
    return sorted(found, key=lambda one: -one[0])


def searched(order, table, live, room, beams, selection="exact"):
    logits = torch.full((1, beams, order.step_size, VOCABULARY), -torch.inf)
    for hypothesis, slots in enumerate(table):
        for slot, words in enumerate(slots):
            for token, score in words.items():
                logits[0, hypothesis, slot, token] = score
    search = StepwiseSearch(strategy="beam", beam_size=beams, selection=selection)
    scores = torch.tensor([live + [-torch.inf] * (beams - len(live))])
    return select(logits, torch.zeros(logits.shape[:3]), scores, torch.tensor([room]), order, search)


@st.composite
def tables(draw, orders):
    """An order, per-slot tables of log-probabilities, live hypotheses, room and beam size."""
    order = draw(st.sampled_from(orders))
    beams = draw(st.integers(1, 4))
    hypotheses = draw(st.integers(1, beams))
    # Sums of distinct powers are distinct: no ties.
    cells = iter(draw(st.permutations(range(hypotheses * order.step_size * 4))))
    value = lambda: -math.log1p(next(cells)) - draw(st.floats(0, 3))  # noqa: E731
    table = [[{token: value() for token in (EOS, *WORDS)} for _ in range(order.step_size)] for _ in range(hypotheses)]
    live = sorted((-draw(st.floats(0, 4)) for _ in range(hypotheses)), reverse=True)
    return order, table, live, draw(st.integers(1, order.step_size + 1)), beams


FIRST_EOS = [Order(tokens_per_direction=2), Order(tokens_per_direction=3), ORDERS["interleaved"], ORDERS["interleaved-sa"]]


def finite(candidates, count):
    scores = candidates.scores[0, :count].tolist()
    return [score for score in scores if score > -math.inf]


@settings(deadline=None, max_examples=150)
@given(tables([*FIRST_EOS, ORDERS["double-token"]]))
def test_the_exact_selection_is_the_best_of_all_continuations(drawn):
    order, table, live, room, beams = drawn
    found = searched(order, table, live, room, beams)
    everything = joint(order, table, live, room)
    living = [one for one in everything if EOS not in one[2]]
    for candidates, expected in ((found.ranked, everything), (found.living, living)):
        count = beams + 1
        assert finite(candidates, count) == pytest.approx([score for score, _, _ in expected[:count]], abs=1e-4)
        # Each is a real continuation with that score, and none comes twice.
        real = {(hypothesis, *tokens): score for score, hypothesis, tokens in everything}
        keys = [
            (parent, *tokens)
            for score, parent, tokens in zip(*(values[0, :count].tolist() for values in candidates), strict=True)
            if score > -math.inf
        ]
        assert len(set(keys)) == len(keys)
        assert [real[key] for key in keys] == pytest.approx(finite(candidates, count), abs=1e-4)


@pytest.mark.parametrize("name", ["semi-autoregressive", "interleaved", "interleaved-sa", "multi-directional", "double-token"])
def test_enough_hypotheses_live_on_even_when_every_slot_wants_to_end(name):
    order, beams = ORDERS[name], 3
    table = [[{EOS: -0.001, 3: -9.0, 4: -9.5, 5: -10.0} for _ in range(order.step_size)]]
    living = searched(order, table, [0.0], 99, beams).living
    assert len(finite(living, beams)) == beams
    assert not (living.tokens == EOS).any()


@settings(deadline=None)
@given(tables([ORDERS["interleaved"]]))
def test_outer_is_the_top_of_the_table_of_pairs(drawn):
    order, table, live, _, beams = drawn
    found = searched(order, table, live, 2, beams, "outer")
    expected = sorted(
        (
            score + left + right
            for score, (first, second) in zip(live, table, strict=True)
            for left in sorted(first.values())[-beams:]
            for right in sorted(second.values())[-beams:]
        ),
        reverse=True,
    )
    assert finite(found.ranked, 99) == pytest.approx(expected[: 2 * beams + 1], abs=1e-4)


@settings(deadline=None)
@given(tables([ORDERS["double-token"]]))
def test_double_top_k_takes_left_tokens_over_all_hypotheses_and_then_pairs(drawn):
    order, table, live, _, beams = drawn
    found = searched(order, table, live, 2, beams, "double-top-k")
    left = sorted(
        (
            (score + value, index)
            for index, (score, slots) in enumerate(zip(live, table, strict=True))
            for value in slots[0].values()
        ),
        reverse=True,
    )[: 2 * beams]
    pairs = sorted((score + value for score, index in left for value in table[index][1].values()), reverse=True)
    assert finite(found.ranked, 99) == pytest.approx(pairs[: 3 * beams], abs=1e-4)
    if beams == 1:
        assert finite(found.ranked, 1) == pytest.approx([joint(order, table, live, 2)[0][0]], abs=1e-4)
