"""Paths through lattices and the confidence of their tokens, against brute force and known answers."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.families.lattice.batches import Slots
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.lattice.paths import Lattice, confidences, path_hypotheses
from tests.models.lattice.made import all_paths, random_lattice

BY_HAND = Lattice(
    np.array([[-0.5, -1.0]]),
    np.array([[[[-1.2, -0.3], [-0.2, -2.0]], [[-1.2, -0.3], [-0.2, -2.0]]]]),
    np.array([[[-3.0, -0.9], [-0.4, -1.1], [-0.7, -0.5]]]),
)
"""A lattice with candidates a and b in each of three slots."""


def found(lattice, least, most, count=1):
    return lattice.paths(np.array([least]), np.array([most]), count)


def words(paths, row=0, rank=0):
    return [taken for taken in paths.candidates[row, rank].tolist() if taken >= 0]


def test_a_lattice_by_hand():
    """The best path is "b a", the second best "a b a"; "a b a" is the best of three tokens."""
    paths = found(BY_HAND, 1, 3, 2)
    assert [words(paths), words(paths, 0, 1)] == [[1, 0], [0, 1, 0]]
    assert paths.scores[0].tolist() == pytest.approx([-1.6, -1.7])
    assert paths.lengths[0].tolist() == [2, 3]
    three = found(BY_HAND, 3, 3)
    assert words(three) == [0, 1, 0]
    assert three.scores.item() == pytest.approx(-1.7)


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 5),
    width=st.integers(1, 4),
    least=st.integers(1, 5),
    spread=st.integers(0, 4),
)
def test_the_best_path_the_margin_and_what_each_word_is_worth(seed, size, width, least, spread):
    """Confidences agree with the enumeration of all paths."""
    lattice, least = random_lattice(random.Random(seed), 1, size, width), min(least, size)
    most = min(least + spread, size)
    window = np.array([least]), np.array([most])
    every = [one for one in all_paths(lattice, 0, least, most) if one[0] > -np.inf]
    paths = lattice.paths(*window, 2)
    if not every:
        assert paths.lengths.tolist() == [[0, 0]]
        return
    score, best = max(every)
    assert paths.scores[0, 0].item() == pytest.approx(score, abs=1e-12)
    assert words(paths) == list(best)
    assert lattice.paths(*window).scores.item() == pytest.approx(score, abs=1e-12)
    second = max((s for s, p in every if p != best), default=-np.inf)
    assert paths.scores[0, 1].item() == pytest.approx(second, abs=1e-12)
    worth = confidences(lattice, *window, paths)
    for slot, taken in enumerate(best):
        others = max((s for s, p in every if len(p) <= slot or p[slot] != taken), default=-np.inf)
        assert worth[0, slot].item() == pytest.approx(score - others, abs=1e-12)
    assert bool(np.isinf(worth[0, len(best) :]).all())


def test_a_wider_window_and_more_candidates_never_score_less():
    lattice = random_lattice(random.Random(3), 20, 6, 5)
    scores = [lattice.paths(np.full((20,), 3 - w), np.full((20,), 3 + w)).scores for w in range(3)]
    assert all(bool((wider >= narrower).all()) for narrower, wider in itertools.pairwise(scores))
    fewer = [
        Lattice(lattice.start[:, :k], lattice.edges[..., :k, :k], lattice.exits[..., :k])
        .paths(np.full((20,), 2), np.full((20,), 6))
        .scores
        for k in range(1, 6)
    ]
    assert all(bool((wider >= narrower).all()) for narrower, wider in itertools.pairwise(fewer))


def test_hypotheses_tell_of_their_words():
    ids = np.array([[[11, 12], [13, 14], [15, 16]]])
    slots = Slots(ids, np.zeros(ids.shape), np.array([1]), np.array([3]))
    search = LatticeSearch(n_best=2, confidences=True)
    (ranked,) = path_hypotheses(BY_HAND, slots, found(BY_HAND, 1, 3, 2), search)
    assert [one.ids for one in ranked] == [[12, 13], [11, 14, 15]]
    assert ranked[0].statistics["margin"] == pytest.approx(0.1)
    # Without b first: "a b a" (-1.7); without a second: "a b a", too.
    assert ranked[0].statistics["confidences"] == pytest.approx([0.1, 0.1])
    nothing = Lattice(*(np.full_like(part, -np.inf) for part in BY_HAND))
    ((one,),) = path_hypotheses(nothing, slots, found(nothing, 1, 3), LatticeSearch())
    assert (one.ids, one.score) == ([], float("-inf"))
