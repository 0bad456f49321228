"""Beam searches of steps, coupled slots and CTC against their reference implementations."""

import itertools
import math
import random
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep import Beam, BeamOptions, BigramCoupling, JointStep
from fewstep.search.ctc_beam import CtcBeamOptions, ctc_beam
from fewstep.vocabulary import BLANK, RESERVED
from kernels import NgramModel
from kernels.reference import ctc as reference
from kernels.reference.beam import BeamSearch, best_chain, choose, first_end
from tests.fewstep.search import published_searches

EOS, WORDS = 2, [3, 4, 5]


def table_of(seed, prefix, step_size, eager):
    """Log-probabilities of the slots after a flat prefix: any function of it will do. `eager`: how much EOS is liked."""
    draw = random.Random(f"{seed} {prefix}")
    slots = []
    for _ in range(step_size):
        weights = {token: math.exp(draw.gauss(eager if token == EOS else 0.0, 1.5)) for token in (EOS, *WORDS)}
        slots.append({token: float(np.float32(math.log(w / sum(weights.values())))) for token, w in weights.items()})
    return slots


def words_of(options, tables):
    """Tables [H][z] as the kernel takes them."""
    width = min(options.num_candidates, len(WORDS) + (not options.separate_eos))
    scores = np.full((len(tables), options.step_size, width), -np.inf, np.float32)
    ids = np.zeros((len(tables), options.step_size, width), np.int64)
    eos = np.zeros((len(tables), options.step_size), np.float32)
    for (row, slots), slot in itertools.product(enumerate(tables), range(options.step_size)):
        table = slots[slot]
        eos[row, slot] = table[EOS]
        ranked = sorted((token for token in table if token != EOS or not options.separate_eos), key=lambda token: -table[token])
        for place, token in enumerate(ranked[:width]):
            scores[row, slot, place], ids[row, slot, place] = table[token], token
    return scores, ids, eos


def searched(options, limits, seeds, eager, tables_of=None):
    """The kernel's outcomes, all sentences side by side, and how many rows it asked for at each step."""
    beam = Beam(limits, options)
    prefixes, alive = [[()] for _ in limits], list(range(len(limits)))
    while alive:
        before = [(sentence, prefix) for sentence in alive for prefix in prefixes[sentence]]
        if tables_of is None:
            tables = [table_of(seeds[sentence], prefix, options.step_size, eager) for sentence, prefix in before]
        else:
            tables = [tables_of(seeds[sentence], prefix) for sentence, prefix in before]
        going, counts, rows, tokens = beam.advance(*words_of(options, tables))
        alive = [alive[place] for place in going.tolist()]
        written = iter([(*before[row][1], *new) for row, new in zip(rows.tolist(), map(tuple, tokens.tolist()), strict=True)])
        for sentence, count in zip(alive, counts.tolist(), strict=True):
            prefixes[sentence] = list(itertools.islice(written, count))
    return beam.outcomes()


@st.composite
def problems(draw):
    step_size = draw(st.integers(1, 4))
    beam_size = draw(st.integers(1, 4))
    options = BeamOptions(
        beam_size=beam_size,
        step_size=step_size,
        per_direction=step_size == 2 and draw(st.booleans()),
        n_best=draw(st.integers(1, beam_size)),
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0, 2.0])),
        gnmt=draw(st.booleans()),
        beam_threshold=draw(st.sampled_from([math.inf, 0.5, 2.0])),
    )
    limits = draw(st.lists(st.integers(1, 9 if step_size < 4 else 6), min_size=1, max_size=4))
    return options, limits, draw(st.integers(0, 10**6)), draw(st.sampled_from([-2.0, 0.0, 1.0, 3.0]))


@given(problems())
def test_finds_what_the_reference_finds_that_writes_out_every_continuation(problem):
    agrees_with_reference(*problem)


PIECES = ["<pad>", "<s>", "</s>", "a", "b", "c"]
SCORER = NgramModel.estimate([["a", "b", "c", "a"], ["b", "c"], ["a", "b", "b"]] * 3, order=2, discount_fallback=(0.5, 1, 1.5))


@given(
    st.integers(2, 4),
    st.booleans(),
    st.sampled_from([0.3, 2.0]),
    st.lists(st.integers(1, 7), min_size=1, max_size=3),
    st.integers(0, 10**6),
    st.sampled_from([-2.0, 0.0, 3.0]),
)
def test_couplings_of_slots_count(beam_size, right_to_left, weight, limits, seed, eager):
    """With two slots nothing is dropped before its link is known."""
    coupling = BigramCoupling(ngram=SCORER.for_vocabulary(PIECES), weight=weight, right_to_left=(right_to_left,))
    agrees_with_reference(BeamOptions(beam_size=beam_size, step_size=2, coupling=coupling), limits, seed, eager)


def test_links_need_exact_ranking():
    linked = BigramCoupling(ngram=SCORER.for_vocabulary(PIECES), weight=1.0)
    for options in ({"selection": "outer"}, {"per_direction": True}):
        with pytest.raises(ValueError, match="coupling: expected selection exact"):
            Beam([3], BeamOptions(beam_size=2, step_size=2, coupling=linked, **options))


def agrees_with_reference(options, limits, seed, eager):
    seeds = [seed + index for index in range(len(limits))]
    for outcome, limit, own in zip(searched(options, limits, seeds, eager), limits, seeds, strict=True):
        search = BeamSearch(options, limit)
        while not search.done:
            search.advance([table_of(own, one.tokens, options.step_size, eager) for one in search.live])
        expected = search.outcome()
        assert [tokens for _, tokens in outcome.hypotheses] == [tokens for _, tokens in expected]
        assert [score for score, _ in outcome.hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-5)
        assert outcome.steps == search.steps
        assert outcome.margin >= 0


@given(st.integers(0, 10**6), st.sampled_from([0.2, 1.0, 3.0]), st.sampled_from([-2.0, 0.0, 3.0]))
def test_what_is_far_behind_does_not_live_on(seed, prune, eager):
    """Each live hypothesis has a score; none may be further than `prune` behind the best, or there is one alone."""
    options = BeamOptions(beam_size=4, beam_threshold=prune)
    table = table_of(seed, (), 1, eager)
    _, living = first_step(options, table, 99)
    scores = sorted(table[0].values(), reverse=True)
    expected = [[word] for word in sorted(WORDS, key=lambda word: -table[0][word]) if table[0][word] >= scores[0] - prune]
    assert living == expected


def first_step(options, table, limit):
    """Outcomes, and what lives on, after one step from one hypothesis."""
    beam = Beam([limit], options)
    _, _, _, tokens = beam.advance(*words_of(options, [table]))
    return beam.outcomes()[0], tokens.tolist()


@pytest.mark.parametrize(("step_size", "per_direction"), [(2, False), (3, False), (4, False), (2, True)])
def test_as_many_live_on_as_there_should_be_though_every_slot_likes_to_end(step_size, per_direction):
    options = BeamOptions(beam_size=3, step_size=step_size, per_direction=per_direction, length_penalty=0.0, n_best=3)
    _, living = first_step(options, [{3: -0.1, EOS: -3.0, 4: -9.0, 5: -9.5}] * step_size, 99)
    expected = [[3] * step_size, *([3] * (step_size - 1 - slot) + [4] + [3] * slot for slot in range(step_size))]
    assert living[0] == expected[0]
    assert len({tuple(row) for row in living}) == 3
    assert all(row in expected for row in living)


@pytest.mark.parametrize("name", ["outer", "outer-authors"])
def test_outer_finds_what_the_published_search_finds(name):
    """300 searches; the sentences of a batch are searched independently."""
    published = published_searches.algorithm_1 if name == "outer" else published_searches.authors
    draw, ended = random.Random(name), 0
    for _ in range(100):
        size, beams, alpha, gnmt = draw.randint(2, 5), draw.randint(1, 4), draw.choice([0.0, 0.6, 1.0]), draw.random() < 0.5
        options = BeamOptions(
            beam_size=beams, step_size=size, selection=name, n_best=draw.randint(1, beams), length_penalty=alpha, gnmt=gnmt
        )
        seeds, limits, eager = [draw.random() for _ in range(3)], [draw.randint(1, 13) for _ in range(3)], draw.choice([-3, -1, 1])

        def tables(seed, prefix, options=options, eager=eager):
            found = table_of(seed, prefix, options.step_size, eager)
            if options.selection == "outer-authors" and not prefix:  # the caller excludes EOS (`SlotRules.min_tokens`)
                found = [slot | {EOS: -math.inf} for slot in found]
            return found

        def penalty(slots, options=options):
            return ((5 + slots) / 6 if options.gnmt else slots) ** options.length_penalty

        for outcome, seed, limit in zip(searched(options, limits, seeds, eager, tables), seeds, limits, strict=True):
            expected = published(lambda prefix, seed=seed: tables(seed, prefix), beams, size, limit, penalty)
            best: dict[tuple[int, ...], float] = {}
            for score, text in expected[: options.n_best]:
                best.setdefault(text, score)
            assert [tuple(tokens) for _, tokens in outcome.hypotheses] == list(best)
            assert [score for score, _ in outcome.hypotheses] == pytest.approx(list(best.values()), abs=1e-6)
            ended += outcome.steps * size < limit
    assert ended > 40


@given(st.integers(0, 10**6), st.integers(1, 3), st.floats(-1, 3))
def test_double_top_k_takes_left_tokens_first_and_then_pairs(seed, beams, eager):
    table = table_of(seed, (), 2, eager)
    options = BeamOptions(beam_size=beams, step_size=2, per_direction=True, selection="double-top-k", length_penalty=0.0)
    left = sorted(table[0], key=lambda token: -table[0][token])[: 2 * beams]
    pairs = sorted(((table[0][a] + table[1][b], [a, b]) for a in left for b in table[1]), reverse=True)[: 3 * beams]
    outcome, _ = first_step(options, table, 2)
    assert outcome.hypotheses[0][0] == pytest.approx(pairs[0][0], abs=1e-5)
    if beams == 1:
        assert outcome.hypotheses[0][0] == pytest.approx(sum(max(slot.values()) for slot in table), abs=1e-5)
    _, living = first_step(options, table, 99)
    expected = [pair for _, pair in pairs if EOS not in pair][:beams]
    assert not living or living[: len(expected)] == expected


def test_shapes_and_options_are_checked():
    with pytest.raises(ValueError, match=r"n_best: expected 1 to beam_size \(2\), got 3"):
        Beam([5], BeamOptions(beam_size=2, n_best=3))
    with pytest.raises(ValueError, match="beam_threshold: expected at least 0"):
        Beam([5], BeamOptions(beam_size=2, beam_threshold=-1.0))
    with pytest.raises(ValueError, match="limits: expected at least 1, got 0"):
        Beam([5, 0], BeamOptions(beam_size=2))
    beam = Beam([5, 5], BeamOptions(beam_size=2))
    scores, ids, eos = words_of(BeamOptions(beam_size=2), [table_of(1, (), 1, 0.0)] * 3)
    with pytest.raises(ValueError, match=r"scores: expected \[R,z,W\] with R 2 and z 1"):
        beam.advance(scores, ids, eos)


def test_importing_the_kernels_loads_nothing_heavy():
    code = "import sys, kernels; print([m for m in ('torch', 'numpy', 'fewstep_native') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# ---- a greedy step with coupled slots: the reference against enumeration, native code against the reference


PIECES_OF_WORDS = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(3, 12))]

words = st.tuples(st.floats(-9, 0, width=32), st.integers(0, 5))
offers = st.lists(st.lists(words, min_size=1, max_size=4), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def ngram():
    """Return a model of a text in which some pairs are frequent."""
    draw = np.random.default_rng(0)
    text = [[PIECES_OF_WORDS[3 + int(9 * place**2)] for place in draw.random(8)] for _ in range(200)]
    return NgramModel.estimate(text, order=3, discount_fallback=(0.5, 1.0, 1.5)).for_vocabulary(PIECES_OF_WORDS)


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
def test_native_code_chooses_what_its_reference_chooses(ngram, seed, rows, slots, count, weight, right_to_left, end):
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
        step.choose(scores, ids + len(PIECES_OF_WORDS), ends, eos=EOS)
    assert math.isfinite(step.choose(scores, ids, ends, eos=EOS)[1].sum())


# ---- prefix beam search and its reference, against each other and against enumeration of all paths


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
    both = [reference.ctc_beam] if ngram else [ctc_beam, reference.ctc_beam]
    options = CtcBeamOptions(**{"beam_size": EVERY, **options})
    found, *others = (beam(*candidates([rows]), options=options, ngram=ngram)[0] for beam in both)
    assert all(other == found for other in others)
    return ["".join("ab"[token - A] for token in one.ids) for one in found], [one.score for one in found]


def test_without_pruning_all_texts_have_their_probability():
    texts, scores = search(n_best=EVERY)
    exact = reference.text_probabilities([[math.log(p) for p in row] for row in ROWS], 0)
    named = {"".join("-ab"[token] for token in text): value for text, value in exact.items()}
    assert len(texts) == len(set(texts)) == len(named)
    assert [math.exp(score) for score in scores] == pytest.approx([named[text] for text in texts])
    assert scores == sorted(scores, reverse=True)
    assert texts[:3] == ["ab", "ba", "a"]


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


def test_scores_are_divided_by_a_power_of_the_length():
    plain, divided = (dict(zip(*search(n_best=EVERY, length_penalty=alpha), strict=True)) for alpha in (0.0, 0.7))
    assert divided == pytest.approx({text: score / (len(text) + 1) ** 0.7 for text, score in plain.items()})


LETTERS = ["x", "y", "z", "w"]


@pytest.fixture(scope="module")
def language_model():
    model = NgramModel.estimate(
        [list("xyzzy"), list("xxw"), list("wyz"), list("zz"), list("yxwxy")], 3, discount_fallback=(0.5, 1.0, 1.5)
    )
    return model.for_vocabulary([*RESERVED, *LETTERS])


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
def test_the_native_search_equals_its_reference(language_model, arguments, beam_size, weights):
    ngram_weight, token_bonus, alpha = weights
    options = CtcBeamOptions(
        beam_size=beam_size, ngram_weight=ngram_weight, token_bonus=token_bonus, length_penalty=alpha, n_best=3, threads=2
    )
    found = ctc_beam(*arguments, options=options, ngram=language_model)
    assert [[one.ids for one in ranked] for ranked in found] == [
        [one.ids for one in ranked] for ranked in reference.ctc_beam(*arguments, options=options, ngram=language_model)
    ]
    for row, ranked in enumerate(found):
        (expected,) = reference.ctc_beam(*(array[row : row + 1] for array in arguments), options=options, ngram=language_model)
        assert [one.score for one in ranked] == pytest.approx([one.score for one in expected])
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
        exact = reference.text_probabilities([[math.log(p) for p in row] for row in rows], 0)
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
