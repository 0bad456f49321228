"""Paths through lattices against brute force, known answers and the formulation with pads."""

import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.lattice.config import LatticeSearch
from models.lattice.scoring import Lattice, Slots
from models.lattice.search import best_paths, confidences, max_marginals
from models.lattice.written import hypotheses
from tests.models.lattice.made import all_paths, random_lattice

BY_HAND = Lattice(
    torch.tensor([[-0.5, -1.0]]),
    torch.tensor([[[[-1.2, -0.3], [-0.2, -2.0]], [[-1.2, -0.3], [-0.2, -2.0]]]]),
    torch.tensor([[[-3.0, -0.9], [-0.4, -1.1], [-0.7, -0.5]]]),
)
"""Candidates a and b in each of three slots."""


def found(lattice, least, most, count=1):
    return best_paths(lattice, torch.tensor([least]), torch.tensor([most]), count)


def words(paths, row=0, rank=0):
    return [taken for taken in paths.candidates[row, rank].tolist() if taken >= 0]


def test_a_lattice_by_hand():
    """Of all lengths "b a" is best, "a b a" second; of three words "a b a"."""
    paths = found(BY_HAND, 1, 3, 2)
    assert [words(paths), words(paths, 0, 1)] == [[1, 0], [0, 1, 0]]
    assert paths.scores[0].tolist() == pytest.approx([-1.6, -1.7])
    assert paths.lengths[0].tolist() == [2, 3]
    three = found(BY_HAND, 3, 3)
    assert words(three) == [0, 1, 0]
    assert float(three.scores) == pytest.approx(-1.7)


LATTICES = given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 5),
    width=st.integers(1, 4),
    least=st.integers(1, 6),
    spread=st.integers(0, 4),
    count=st.sampled_from([1, 2, 3, 7]),
)


@settings(max_examples=60, deadline=None)
@LATTICES
def test_the_best_paths_are_those_of_brute_force(seed, size, width, least, spread, count):
    lattice = random_lattice(random.Random(seed), 3, size, width)
    windows = torch.tensor([least, 1, size]), torch.tensor([least + spread, size, size])
    paths = best_paths(lattice, *windows, count)
    for row in range(3):
        every = sorted(
            (one for one in all_paths(lattice, row, int(windows[0][row]), int(windows[1][row])) if one[0] > -torch.inf),
            reverse=True,
        )
        expected = [score for score, _ in every[:count]]
        scores = [score for score in paths.scores[row].tolist() if score > -torch.inf]
        assert scores == pytest.approx(expected, abs=1e-12)
        for rank, score in enumerate(scores):
            path = tuple(words(paths, row, rank))
            assert len(path) == int(paths.lengths[row, rank])
            assert {p: s for s, p in every}[path] == pytest.approx(score, abs=1e-12)
        taken = [tuple(words(paths, row, rank)) for rank in range(len(scores))]
        assert len(set(taken)) == len(taken)
        assert paths.lengths[row, len(scores) :].tolist() == [0] * (count - len(scores))


def by_pads(lattice, row, least, most):
    """The formulation with states for EOS and PAD in slots 0 .. N: after EOS comes PAD alone, and PAD is the last."""
    size, width = lattice.exits.shape[1:]
    eos, pad = width, width + 1
    score = [*lattice.start[row].tolist(), -torch.inf, -torch.inf]
    for slot in range(1, size + 2):
        new = [-torch.inf] * (width + 2)
        for j in range(width):
            if slot < size:
                new[j] = max(score[i] + float(lattice.edges[row, slot - 1, i, j]) for i in range(width))
        if least <= slot <= min(most, size):
            new[eos] = max(score[i] + float(lattice.exits[row, slot - 1, i]) for i in range(width))
        new[pad] = max(score[eos], score[pad])
        score = new
    return score[pad]


@settings(max_examples=40, deadline=None)
@LATTICES
def test_exits_stand_for_pads(seed, size, width, least, spread, count):
    lattice = random_lattice(random.Random(seed), 1, size, width)
    assert float(found(lattice, least, least + spread).scores) == pytest.approx(
        by_pads(lattice, 0, least, least + spread), abs=1e-12
    )
    single = Lattice(*(part.float() for part in lattice))
    assert float(found(single, least, least + spread).scores) == pytest.approx(by_pads(lattice, 0, least, least + spread), abs=1e-5)


@settings(max_examples=40, deadline=None)
@LATTICES
def test_max_marginals_and_what_each_word_is_worth(seed, size, width, least, spread, count):
    lattice, least = random_lattice(random.Random(seed), 1, size, width), min(least, size)
    window = torch.tensor([least]), torch.tensor([least + spread])
    every = [one for one in all_paths(lattice, 0, least, least + spread) if one[0] > -torch.inf]
    marginals = max_marginals(lattice, *window)
    for slot in range(size):
        for taken in range(width):
            expected = max((s for s, p in every if len(p) > slot and p[slot] == taken), default=-torch.inf)
            assert float(marginals[0, slot, taken]) == pytest.approx(expected, abs=1e-12)
    if not every:
        return
    paths = best_paths(lattice, *window)
    worth, margin = confidences(lattice, *window, paths)
    score, best = max(every)
    for slot, taken in enumerate(best):
        others = max((s for s, p in every if len(p) <= slot or p[slot] != taken), default=-torch.inf)
        assert float(worth[0, slot]) == pytest.approx(score - others, abs=1e-12)
    second = max((s for s, p in every if p != best), default=-torch.inf)
    assert float(margin) == pytest.approx(score - second, abs=1e-12)


def test_a_wider_window_and_more_candidates_never_score_less():
    lattice = random_lattice(random.Random(3), 20, 6, 5)
    scores = [best_paths(lattice, torch.full((20,), 3 - w), torch.full((20,), 3 + w)).scores for w in range(3)]
    assert all(bool((wider >= narrower).all()) for narrower, wider in itertools.pairwise(scores))
    fewer = [
        best_paths(
            Lattice(lattice.start[:, :k], lattice.edges[..., :k, :k], lattice.exits[..., :k]),
            torch.full((20,), 2),
            torch.full((20,), 6),
        ).scores
        for k in range(1, 6)
    ]
    assert all(bool((wider >= narrower).all()) for narrower, wider in itertools.pairwise(fewer))


def test_of_equals_the_shorter_and_the_first_candidates_win():
    even = Lattice(torch.zeros(1, 3), torch.zeros(1, 3, 3, 3), torch.zeros(1, 4, 3))
    for count in (1, 4):
        paths = found(even, 2, 4, count)
        assert words(paths) == [0, 0]
    assert [words(paths, 0, rank) for rank in range(4)] == [[0, 0], [1, 0], [2, 0], [0, 1]]


def test_windows_of_a_batch_are_each_sentences_own():
    lattice = random_lattice(random.Random(4), 4, 5, 3)
    least, most = torch.tensor([1, 2, 5, 3]), torch.tensor([1, 4, 5, 3])
    together = best_paths(lattice, least, most)
    for row in range(4):
        alone = best_paths(Lattice(*(part[row : row + 1] for part in lattice)), least[row : row + 1], most[row : row + 1])
        assert [part[row].tolist() for part in together] == [part[0].tolist() for part in alone]


def test_hypotheses_tell_of_their_words():
    ids = torch.tensor([[[11, 12], [13, 14], [15, 16]]])
    slots = Slots(ids, torch.zeros(ids.shape), torch.tensor([1]), torch.tensor([3]))
    search = LatticeSearch(n_best=2, confidences=True)
    (ranked,) = hypotheses(BY_HAND, slots, found(BY_HAND, 1, 3, 2), search)
    assert [one.ids for one in ranked] == [[12, 13], [11, 14, 15]]
    assert ranked[0].statistics["margin"] == pytest.approx(0.1)
    # Without b first: "a b a" (-1.7); without a second: "a b a", too.
    assert ranked[0].statistics["confidences"] == pytest.approx([0.1, 0.1])
    nothing = Lattice(*(torch.full_like(part, -torch.inf) for part in BY_HAND))
    ((one,),) = hypotheses(nothing, slots, found(nothing, 1, 3), LatticeSearch())
    assert (one.ids, one.score) == ([], float("-inf"))
