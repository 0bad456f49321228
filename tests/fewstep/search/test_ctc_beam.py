"""Prefix beam search and its slow twin, against each other and against enumeration of all paths."""

import math
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.search.ctc_beam import CtcBeamOptions, ctc_beam
from fewstep.vocabulary import BLANK, EOS, RESERVED
from kernels import NgramModel
from kernels.reference import ctc as twin
from kernels.reference import ctc_beam as slow

A, B = 7, 8
ROWS = [[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.1, 0.3, 0.6], [0.5, 0.2, 0.3]]
EVERY = 10**6


class Bigrams:
    """A language model over the two tokens: p(a), p(b) and p(end) at the start, after a and after b."""

    rows: ClassVar = {0: (0.2, 0.7, 0.1), A: (0.1, 0.3, 0.6), B: (0.5, 0.1, 0.4)}
    begin = 0

    def step(self, state, token):
        return math.log(self.rows[state][{A: 0, B: 1, EOS: 2}[token]]), token


def candidates(sentences):
    """Return the arguments of the search for probabilities [T,3] of the blank, a and b."""
    size = max(len(rows) for rows in sentences)
    values = np.full((len(sentences), size, 3), 0.5, np.float32)
    for row, rows in enumerate(sentences):
        values[row, : len(rows)] = np.reshape(rows, (-1, 3))
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    ids = np.broadcast_to(np.array([A, B]), logs[..., 1:].shape)
    return logs[..., 1:].copy(), ids.copy(), logs[..., 0].copy(), np.array([len(rows) for rows in sentences])


def search(rows=ROWS, ngram=None, **options):
    """Return texts and scores. The native search cannot read a model in Python."""
    both = [slow.ctc_beam] if ngram else [ctc_beam, slow.ctc_beam]
    options = CtcBeamOptions(**{"beam_size": EVERY, **options})
    found, *others = (beam(*candidates([rows]), options=options, ngram=ngram)[0] for beam in both)
    assert all(other == found for other in others)
    return ["".join("ab"[token - A] for token in one.ids) for one in found], [one.score for one in found]


def test_without_pruning_all_texts_have_their_probability():
    texts, scores = search(n_best=EVERY)
    exact = twin.text_probabilities([[math.log(p) for p in row] for row in ROWS], 0)
    named = {"".join("-ab"[token] for token in text): value for text, value in exact.items()}
    assert len(texts) == len(set(texts)) == len(named)
    assert [math.exp(score) for score in scores] == pytest.approx([named[text] for text in texts])
    assert scores == sorted(scores, reverse=True)
    assert texts[:3] == ["ab", "ba", "a"]


@pytest.mark.parametrize(("beam", "mass"), [(1, 0.192), (2, 0.222), (3, 0.270), (EVERY, 0.3302)])
def test_a_beam_finds_a_lower_bound(beam, mass):
    texts, scores = search(beam_size=beam)
    assert (texts, math.exp(scores[0])) == (["ab"], pytest.approx(mass))


def test_prefixes_keep_their_two_masses():
    masses = {}
    for ending in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]):
        texts, scores = search([*ROWS[:2], ending], n_best=EVERY)
        masses[ending[0]] = {text: math.exp(score) for text, score in zip(texts, scores, strict=True) if score > -math.inf}
    blank, token = masses[1.0], masses[0.0]
    # A blank at the end keeps both masses of a prefix; an `a` continues the one that ends in a blank to `aa`.
    assert blank == pytest.approx({"": 0.08, "a": 0.48, "b": 0.22, "ab": 0.10, "ba": 0.12})
    assert token["aa"] == pytest.approx(0.20)
    assert token["a"] == pytest.approx(0.08 + 0.28)
    assert token["ba"] == pytest.approx(0.22 + 0.12)


def test_the_beam_beats_the_best_alignment():
    rows = [[0.6, 0.4, 0.0]] * 2
    texts, scores = search(rows)
    assert (texts, math.exp(scores[0])) == (["a"], pytest.approx(0.64))


@pytest.mark.parametrize(
    ("weight", "bonus", "best"),
    [
        (0.5, 0.0, [("b", -2.941070), ("ab", -2.972907)]),
        (1.0, 0.0, [("b", -3.577553)]),
        (0.5, 1.0, [("ab", -0.972907), ("bab", -0.973186)]),
        (1.0, 1.0, [("ba", -1.829798)]),
    ],
)
def test_a_language_model_and_a_bonus_change_the_best_text(weight, bonus, best):
    texts, scores = search(ngram=Bigrams(), ngram_weight=weight, token_bonus=bonus, n_best=len(best))
    assert list(zip(texts, scores, strict=True)) == [(text, pytest.approx(score, abs=1e-6)) for text, score in best]


def test_a_narrow_beam_with_a_language_model_misses_the_best_text():
    assert search(ngram=Bigrams(), ngram_weight=0.5, token_bonus=1.0, beam_size=3)[0] == ["bab"]


def test_scores_are_divided_by_a_power_of_the_length():
    plain, divided = (dict(zip(*search(n_best=EVERY, length_penalty=alpha), strict=True)) for alpha in (0.0, 0.7))
    assert divided == pytest.approx({text: score / (len(text) + 1) ** 0.7 for text, score in plain.items()})


WORDS = ["x", "y", "z", "w"]


@pytest.fixture(scope="module")
def language_model():
    model = NgramModel.estimate(
        [list("xyzzy"), list("xxw"), list("wyz"), list("zz"), list("yxwxy")], 3, discount_fallback=(0.5, 1.0, 1.5)
    )
    return model.for_vocabulary([*RESERVED, *WORDS])


@st.composite
def ranked_slots(draw):
    """Draw the arguments of the search: random slots of a few candidates, some of them impossible, in batches with padding."""
    batch, size, width = draw(st.integers(1, 3)), draw(st.integers(0, 7)), draw(st.integers(1, 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = generator.dirichlet([draw(st.sampled_from([0.3, 1.0, 5.0]))] * (width + 1), (batch, size)).astype(np.float32)
    values[generator.random(values.shape) < 0.1] = 0.0
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    if draw(st.booleans()):
        logs = np.round(logs)  # many ties
    order = generator.random((batch, size, 4)).argsort(2)[..., :width] + len(RESERVED)
    return logs[..., 1:].copy(), order.copy(), logs[..., 0].copy(), generator.integers(0, size + 1, batch)


@given(
    arguments=ranked_slots(),
    beam_size=st.integers(1, 6),
    weights=st.tuples(st.sampled_from([0.0, 0.4]), st.floats(-1, 1), st.floats(0, 1)),
)
def test_the_native_search_equals_its_twin(language_model, arguments, beam_size, weights):
    ngram_weight, token_bonus, alpha = weights
    options = CtcBeamOptions(
        beam_size=beam_size, ngram_weight=ngram_weight, token_bonus=token_bonus, length_penalty=alpha, n_best=3, threads=2
    )
    found = ctc_beam(*arguments, options=options, ngram=language_model)
    assert [[one.ids for one in ranked] for ranked in found] == [
        [one.ids for one in ranked] for ranked in slow.ctc_beam(*arguments, options=options, ngram=language_model)
    ]
    for row, ranked in enumerate(found):
        (twins,) = slow.ctc_beam(*(array[row : row + 1] for array in arguments), options=options, ngram=language_model)
        assert [one.score for one in ranked] == pytest.approx([one.score for one in twins])
        (alone,) = ctc_beam(*(array[row : row + 1] for array in arguments), options=options, ngram=language_model)
        assert alone == ranked


def test_a_prefix_that_was_dropped_and_returns_is_one_entry():
    # `a` is dropped after the second slot, where `ab` and the empty text are better, and returns in the third.
    rows = [[0.35, 0.64, 0.01], [0.09, 0.01, 0.9], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5]]
    for beam_size in (2, 3):
        search(rows, beam_size=beam_size, n_best=beam_size)


def test_equal_tokens_of_a_slot_are_added_up():
    scores, ids, blanks, lengths = candidates([ROWS])
    doubled = np.concatenate((scores - np.float32(math.log(2)),) * 2, 2)
    twice = ctc_beam(doubled, np.concatenate((ids, ids), 2), blanks, lengths, options=CtcBeamOptions(n_best=5))
    (once,) = ctc_beam(scores, ids, blanks, lengths, options=CtcBeamOptions(n_best=5))
    assert [one.ids for one in twice[0]] == [one.ids for one in once]
    assert [one.score for one in twice[0]] == pytest.approx([one.score for one in once], abs=1e-6)


def test_ids_outside_of_the_language_model_are_refused(language_model):
    scores, ids, blanks, lengths = candidates([ROWS])
    options = CtcBeamOptions(ngram_weight=0.5)
    with pytest.raises(ValueError, match=r"token_ids: expected 0 to 10, got 11"):
        ctc_beam(scores, ids + 4, blanks, lengths, options=options, ngram=language_model)
    with pytest.raises(ValueError, match=r"token_ids: expected 0 to .*, got -1"):
        ctc_beam(scores, ids - 8, blanks, lengths, options=CtcBeamOptions())
    with pytest.raises(ValueError, match="beam_size: expected at least 1, got 0"):
        ctc_beam(scores, ids, blanks, lengths, options=CtcBeamOptions(beam_size=0))


@given(slots=st.lists(st.integers(0, 5), min_size=1, max_size=4), seed=st.integers(0, 2**32), alpha=st.floats(0, 1))
def test_the_best_text_is_that_of_all_paths_whatever_the_padding(slots, seed, alpha):
    generator = np.random.default_rng(seed)
    sentences = [generator.dirichlet([0.5, 0.5, 0.5], size).clip(1e-6).tolist() for size in slots]
    options = CtcBeamOptions(beam_size=EVERY, length_penalty=alpha, n_best=EVERY)
    found = ctc_beam(*candidates(sentences), options=options)
    for rows, ranked in zip(sentences, found, strict=True):
        if not rows:
            assert ranked == [([], 0.0)]
            continue
        exact = twin.text_probabilities([[math.log(p) for p in row] for row in rows], 0)
        best = max(math.log(value) / (len(text) + 1) ** alpha for text, value in exact.items())
        assert ranked[0].score == pytest.approx(best, abs=1e-5)
        assert len(ranked) == len(exact)
        (alone,) = ctc_beam(*candidates([rows]), options=options)
        assert alone == ranked


def test_ties_are_won_by_the_lower_ids():
    rows = [[0.2, 0.4, 0.4]] * 2
    assert search(rows, n_best=4)[0][:2] == ["a", "b"]
    assert search(rows, beam_size=1)[0] == ["a"]


def test_impossible_slots_give_an_empty_output():
    assert search([[0.0, 0.0, 0.0]]) == ([""], [-math.inf])
    assert ctc_beam(*candidates([[[1.0, 0.0, 0.0]] * 3]), options=CtcBeamOptions())[0] == [([], 0.0)]


def test_other_arrays_are_refused():
    scores, ids, blanks, lengths = candidates([ROWS])
    with pytest.raises(ValueError, match="of the same sizes"):
        ctc_beam(scores[:, :3], ids, blanks, lengths, options=CtcBeamOptions())
    with pytest.raises(ValueError, match="lengths: expected 0 to 4 slots, got 5"):
        ctc_beam(scores, ids, blanks, lengths + 1, options=CtcBeamOptions())
    with pytest.raises(TypeError, match="scores: expected float32"):
        ctc_beam(scores.astype(np.float64), ids, blanks, lengths, options=CtcBeamOptions())
    assert BLANK not in ids
