"""Lattices for the tests of their searches."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import lattice_max_marginals, lattice_n_best, lattice_viterbi
from kernels.reference import lattice as reference


class Lattices(NamedTuple):
    """Arguments of `kernels.lattice_viterbi`."""

    start: np.ndarray
    edges: np.ndarray
    exits: np.ndarray
    min_lengths: np.ndarray
    max_lengths: np.ndarray

    def sentence(self, b):
        """Return the arguments of the implementations."""
        return self.start[b], self.edges[b], self.exits[b], int(self.min_lengths[b]), int(self.max_lengths[b])


def by_hand(least, most):
    """Return a lattice with candidates a and b in each of three slots; the tests state the answers."""
    edge = [[-1.2, -0.3], [-0.2, -2.0]]
    return Lattices(
        np.array([[-0.5, -1.0]]),
        np.array([[edge, edge]]),
        np.array([[[-3.0, -0.9], [-0.4, -1.1], [-0.7, -0.5]]]),
        np.array([least]),
        np.array([most]),
    )


def random_lattices(sentences, slots, candidates, *, seed, dtype=np.float64, holes=0.0, grain=None):
    """Draw scores below 0, some of them impossible. With `grain` they are multiples of it: sums are exact and ties occur."""
    draw = np.random.default_rng(seed)

    def scores(*shape):
        found = -4 * draw.random(shape)
        if grain:
            found = np.round(found / grain) * grain
        bad = draw.choice([-np.inf, np.nan, np.inf], size=shape)
        return np.where(draw.random(shape) < holes, bad, found).astype(dtype)

    most = draw.integers(1, slots + 1, sentences)
    least = draw.integers(1, most + 1)
    edges = scores(sentences, slots - 1, candidates, candidates)
    return Lattices(scores(sentences, candidates), edges, scores(sentences, slots, candidates), least, most)


@st.composite
def lattices(draw, dtype=np.float64):
    """Draw a lattice that is small enough for brute force."""
    return random_lattices(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 2**32)),
        dtype=dtype,
        holes=draw(st.sampled_from([0.0, 0.3, 1.0])),
        grain=draw(st.sampled_from([None, 0.5])),
    )


# ---- lattice


A, B = 0, 1


def words(paths, row=0):
    return paths.path[row][: paths.lengths[row]].tolist()


def test_by_hand():
    """The specification of the search derives the numbers."""
    every = lattice_viterbi(*by_hand(1, 3))
    assert words(every) == [B, A]
    assert every.scores[0] == pytest.approx(-1.6, abs=1e-12)
    longest = lattice_viterbi(*by_hand(3, 3))
    assert words(longest) == [A, B, A]
    assert longest.scores[0] == pytest.approx(-1.7, abs=1e-12)
    both = lattice_n_best(*by_hand(1, 3), n_best=2)
    assert [words(type(both)(*(x[0] for x in both)), row) for row in range(2)] == [[B, A], [A, B, A]]
    shortest = lattice_viterbi(*by_hand(1, 1))
    assert (words(shortest), shortest.path[0].tolist()) == ([B], [B, -1, -1])
    assert shortest.scores[0] == pytest.approx(-1.9, abs=1e-12)


@given(lattices())
def test_every_formulation_finds_the_same(given_):
    """Serial search, its reference, pads, the scan of products and brute force: exactly equal in float64."""
    found = lattice_viterbi(*given_)
    for b in range(len(found.scores)):
        start, edges, exits, least, most = given_.sentence(b)
        every = reference.all_paths(start, edges, exits, least, most)
        best = every[0][0] if every else -np.inf
        worth, path = reference.viterbi(start, edges, exits, least, most)
        assert found.scores[b] == best == worth
        assert tuple(words(found, b)) == path
        assert found.path[b][found.lengths[b] :].tolist() == [-1] * (found.path.shape[1] - found.lengths[b])
        clean = [np.where(np.isnan(x) | (x == np.inf), -np.inf, x) for x in (start, edges, exits)]
        assert reference.viterbi_with_pads(*clean, least, most) == best
        assert reference.scan(*clean, least, most) == pytest.approx(best, abs=1e-12)  # sums in another order
        if every:
            assert reference.score_of(start, edges, exits, path) == best
            assert len(path) == min(len(one) for score, one in every if score == best)


@given(lattices(np.float32))
def test_single_precision(given_):
    found = lattice_viterbi(*given_)
    assert found.scores.dtype == np.float32
    for b in range(len(found.scores)):
        best, _ = reference.viterbi(*(np.asarray(x, np.float64) for x in given_.sentence(b)[:3]), *given_.sentence(b)[3:])
        assert found.scores[b] == best or found.scores[b] == pytest.approx(best, abs=1e-5)
        if found.lengths[b]:
            path = tuple(words(found, b))
            assert reference.score_of(*given_.sentence(b)[:3], path) == pytest.approx(float(found.scores[b]), abs=1e-5)


@given(
    slots=st.integers(1, 9),
    candidates=st.sampled_from([1, 3, 7, 8, 15, 16, 17, 31, 64, 65, 80, 130]),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([np.float32, np.float64]),
    holes=st.sampled_from([0.0, 0.5, 0.97]),
)
def test_wide_lattices(slots, candidates, seed, dtype, holes):
    """Numbers of candidates that are and are not multiples of a vector; ties are broken as in the reference."""
    given_ = random_lattices(2, slots, candidates, seed=seed, dtype=dtype, holes=holes, grain=0.25)
    found = lattice_viterbi(*given_)
    for b in range(2):
        best, path = reference.viterbi(*given_.sentence(b))
        assert (found.scores[b], tuple(words(found, b))) == (best, path)


@given(lattices(), st.integers(1, 9))
def test_n_best(given_, n):
    found = lattice_n_best(*given_, n_best=n)
    one = lattice_viterbi(*given_)
    for b in range(len(found.scores)):
        every = reference.all_paths(*given_.sentence(b))
        wanted = [score for score, _ in every[:n]] + [-np.inf] * (n - len(every))
        assert found.scores[b].tolist() == wanted
        rows = [tuple(found.path[b, rank][: found.lengths[b, rank]].tolist()) for rank in range(n)]
        there = rows[: min(n, len(every))]
        assert len(set(there)) == len(there)
        assert all(reference.score_of(*given_.sentence(b)[:3], row) == score for row, score in zip(there, wanted, strict=False))
        assert set(rows[len(every) :]) <= {()}
        assert (found.scores[b, 0], found.path[b, 0].tolist()) == (one.scores[b], one.path[b].tolist())


@given(lattices())
def test_max_marginals(given_):
    found = lattice_max_marginals(*given_)
    best = lattice_viterbi(*given_)
    for b in range(len(found)):
        np.testing.assert_allclose(found[b], reference.max_marginals(*given_.sentence(b)), atol=1e-12)
        for slot, candidate in enumerate(words(best, b)):
            assert found[b, slot, candidate] == pytest.approx(best.scores[b], abs=1e-12)
            assert found[b, slot].max() == found[b, slot, candidate]


@given(lattices(np.float32), st.integers(2, 5))
def test_threads_batches_and_cells_beyond_a_sentence_change_nothing(given_, threads):
    whole = lattice_viterbi(*given_)
    marginals = lattice_max_marginals(*given_)
    for found in (lattice_viterbi(*given_, threads=threads), lattice_viterbi(*(torch.from_numpy(x) for x in given_))):
        assert all(np.array_equal(one, other) for one, other in zip(whole, found, strict=True))
    assert np.array_equal(marginals, lattice_max_marginals(*given_, threads=threads))
    ranked = [lattice_n_best(*given_, n_best=3, threads=count) for count in (1, threads)]
    assert all(np.array_equal(one, other) for one, other in zip(*ranked, strict=True))
    spoiled = given_._replace(edges=given_.edges.copy(), exits=given_.exits.copy())
    for b, most in enumerate(given_.max_lengths):
        spoiled.edges[b, most - 1 :], spoiled.exits[b, most:] = 0.0, 0.0
    for b in range(len(whole.scores)):
        alone = lattice_viterbi(*(x[b : b + 1] for x in spoiled))
        assert all(np.array_equal(one[0], other[b]) for one, other in zip(alone, whole, strict=True))
    assert np.array_equal(marginals, lattice_max_marginals(*spoiled))


def test_no_words_and_no_path():
    given_ = random_lattices(2, 3, 2, seed=1)._replace(min_lengths=np.array([0, 2]), max_lengths=np.array([0, 3]))
    given_.exits[1] = -np.inf
    found = lattice_viterbi(*given_)
    assert (found.lengths.tolist(), found.scores.tolist()) == ([0, 0], [-np.inf, -np.inf])
    assert (found.path == -1).all()
    assert (lattice_max_marginals(*given_) == -np.inf).all()
    assert lattice_viterbi(*(x[:0] for x in given_)).path.shape == (0, 3)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"max_lengths": np.array([4])}, ValueError, "max_length <= 3 slots, or 0 and 0, got 1 and 4"),
        ({"min_lengths": np.array([0])}, ValueError, "got 0 and 3"),
        ({"min_lengths": np.array([3]), "max_lengths": np.array([2])}, ValueError, "got 3 and 2"),
        ({"start": np.zeros((1, 3))}, ValueError, r"start: expected \[B,K\] with B 1, N 3 and K 2"),
        ({"edges": np.zeros((1, 3, 2, 2))}, ValueError, r"edges: expected \[B,N-1,K,K\]"),
        ({"exits": np.zeros((1, 3))}, ValueError, r"exits: expected \[B,N,K\], got the shape \(1, 3\)"),
        ({"exits": np.zeros((1, 3, 2), np.float32)}, TypeError, "expected one type, got float64, float64, float32"),
        ({"start": np.zeros((1, 2), np.float16)}, TypeError, r"start: expected float32 or float64 \[B,K\], got float16"),
        ({"max_lengths": np.array([3], np.int32)}, TypeError, "max_lengths: expected int64"),
        ({"start": torch.zeros(1, 2, requires_grad=True)}, TypeError, "detached"),
    ],
)
def test_bad_arrays(change, error, message):
    given_ = by_hand(1, 3)._replace(**change)
    with pytest.raises(error, match=message):
        lattice_viterbi(*given_)


def test_bad_options():
    with pytest.raises(ValueError, match="n_best: expected at least 1, got 0"):
        lattice_n_best(*by_hand(1, 3), n_best=0)
    with pytest.raises(ValueError, match="threads: expected at least 1, got -1"):
        lattice_viterbi(*by_hand(1, 3), threads=-1)
