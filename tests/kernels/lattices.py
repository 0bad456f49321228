"""Lattices for the tests of their searches."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st


class Lattices(NamedTuple):
    """Arguments of `kernels.lattice_viterbi`."""

    start: np.ndarray
    edges: np.ndarray
    exits: np.ndarray
    min_lengths: np.ndarray
    max_lengths: np.ndarray

    def sentence(self, b):
        """Return the arguments of the twins."""
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
