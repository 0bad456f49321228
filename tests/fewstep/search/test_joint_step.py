"""A greedy step with coupled slots: the twin against enumeration, native code against the twin."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep import BigramCoupling, JointStep
from kernels import NgramModel
from kernels.reference.joint_step import best_chain, choose, first_end

EOS, PIECES = 2, ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(3, 12))]

words = st.tuples(st.floats(-9, 0, width=32), st.integers(0, 5))
offers = st.lists(st.lists(words, min_size=1, max_size=4), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def ngram():
    """Return a model of a text in which some pairs are frequent."""
    draw = np.random.default_rng(0)
    text = [[PIECES[3 + int(9 * place**2)] for place in draw.random(8)] for _ in range(200)]
    return NgramModel.estimate(text, order=3, discount_fallback=(0.5, 1.0, 1.5)).for_vocabulary(PIECES)


@given(offers, st.integers(0, 100))
def test_the_best_chain_is_that_of_enumeration(slots, seed):
    links = np.random.default_rng(seed).normal(size=(6, 6))

    def value(chain):
        return sum(score for score, _ in chain) + sum(links[a[1], b[1]] for a, b in itertools.pairwise(chain))

    found = best_chain(slots, lambda before, word: float(links[before, word]))
    assert all(word in offered for word, offered in zip(found, slots, strict=True))
    assert value(found) == pytest.approx(max(map(value, itertools.product(*slots))))


def test_an_output_ends_where_it_has_ended_with_enough_probability():
    ends = np.log([[0.3, 0.3, 0.9, 0.9], [1e-9, 1e-9, 0.2, 0.1], [0.6, 1.0 - 1e-9, 1e-9, 1e-9]])
    best = np.log([0.5, 0.4, 0.05, 0.1])
    assert [first_end(row, best, 0.5) for row in ends] == [1, None, 0]  # 1 - 0.7 * 0.7 = 0.51
    assert [first_end(row, best, 0.0) for row in ends] == [2, 2, 0]


def offered(seed, rows, slots, count):
    """Draw the best tokens of each slot, best first, some with probability 0, and EOS."""
    draw = np.random.default_rng(seed)
    scores = -np.sort(draw.exponential(2.0, (rows, slots, count)).astype(np.float32))
    scores[draw.random(scores.shape) < 0.1] = -np.inf
    ids = draw.permuted(np.broadcast_to(np.arange(3, 12), (rows, slots, 9)), axis=2)[..., :count].copy()
    return -np.sort(-scores), ids, -draw.exponential(3.0, (rows, slots)).astype(np.float32)


@given(
    st.integers(0, 1000), st.integers(0, 3), st.integers(1, 6), st.integers(1, 4), st.sampled_from([0.0, 0.4, 5.0]),
    st.sampled_from([(False,), (True,), (False, True)]), st.sampled_from([0.0, 0.3, 0.9]),
)  # fmt: skip
def test_native_code_chooses_what_its_twin_chooses(ngram, seed, rows, slots, count, weight, right_to_left, end):
    step = JointStep(
        coupling=BigramCoupling(ngram=ngram if weight else None, weight=weight, right_to_left=right_to_left), end_threshold=end
    )
    given_words = offered(seed, rows, slots, count)
    ids, scores = step.choose(*given_words, eos=EOS)
    expected_ids, expected = choose(step, *given_words, eos=EOS)
    assert ids.tolist() == expected_ids.tolist()
    assert scores.tolist() == expected.tolist()


def test_shapes_and_tokens_that_do_not_fit_are_refused(ngram):
    scores, ids, ends = offered(0, 2, 3, 4)
    step = JointStep(coupling=BigramCoupling(ngram=ngram, weight=1.0))
    with pytest.raises(ValueError, match=r"scores: expected \[R,z,W\] with R 2 and z 2"):
        step.choose(scores, ids, np.ascontiguousarray(ends[:, :2]), eos=EOS)
    with pytest.raises(ValueError, match="ids: expected the shape of scores"):
        step.choose(scores, np.ascontiguousarray(ids[..., :3]), ends, eos=EOS)
    with pytest.raises(ValueError, match="scores: expected at least one candidate for each slot"):
        step.choose(scores[..., :0], ids[..., :0], ends, eos=EOS)
    with pytest.raises(ValueError, match="ngram: expected a model over the network's vocabulary"):
        step.choose(scores, ids + len(PIECES), ends, eos=EOS)
    assert math.isfinite(step.choose(scores, ids, ends, eos=EOS)[1].sum())
