import itertools
import math
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep import Beam, BeamOptions, BigramCoupling
from kernels import NgramModel
from kernels.reference.beam import Search

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


def searched(options, limits, seeds, eager):
    """The kernel's outcomes, all sentences side by side, and how many rows it asked for at each step."""
    beam = Beam(limits, options)
    prefixes, alive = [[()] for _ in limits], list(range(len(limits)))
    while alive:
        before = [(sentence, prefix) for sentence in alive for prefix in prefixes[sentence]]
        tables = [table_of(seeds[sentence], prefix, options.step_size, eager) for sentence, prefix in before]
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
def test_finds_what_the_twin_finds_that_writes_out_every_continuation(problem):
    agrees_with_twin(*problem)


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
    agrees_with_twin(BeamOptions(beam_size=beam_size, step_size=2, coupling=coupling), limits, seed, eager)


def test_links_need_exact_ranking():
    linked = BigramCoupling(ngram=SCORER.for_vocabulary(PIECES), weight=1.0)
    for options in ({"selection": "outer"}, {"per_direction": True}):
        with pytest.raises(ValueError, match="coupling: expected selection exact"):
            Beam([3], BeamOptions(beam_size=2, step_size=2, coupling=linked, **options))


def agrees_with_twin(options, limits, seed, eager):
    seeds = [seed + index for index in range(len(limits))]
    for outcome, limit, own in zip(searched(options, limits, seeds, eager), limits, seeds, strict=True):
        twin = Search(options, limit)
        while not twin.done:
            twin.advance([table_of(own, one.tokens, options.step_size, eager) for one in twin.live])
        expected = twin.outcome()
        assert [tokens for _, tokens in outcome.hypotheses] == [tokens for _, tokens in expected]
        assert [score for score, _ in outcome.hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-5)
        assert outcome.steps == twin.steps
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


@given(st.integers(0, 10**6), st.integers(1, 3), st.floats(-1, 3))
def test_outer_takes_the_top_of_the_table_of_pairs(seed, beams, eager):
    table = table_of(seed, (), 2, eager)
    options = BeamOptions(beam_size=beams, step_size=2, selection="outer", n_best=beams, length_penalty=0.0)
    best = [sorted(slot, key=lambda token, slot=slot: -slot[token])[:beams] for slot in table]
    pairs = sorted(((table[0][a] + table[1][b], [a, b]) for a in best[0] for b in best[1]), reverse=True)
    outcome, _ = first_step(options, table, 2)
    assert [score for score, _ in outcome.hypotheses][:1] == pytest.approx([pairs[0][0]], abs=1e-5)
    _, living = first_step(options, table, 99)
    expected = [pair for _, pair in pairs[: 2 * beams + 1] if EOS not in pair][:beams]
    assert not living or living[: len(expected)] == expected


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
