import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewstep import BeamOptions, Lexicon, SlotRules, Transformer, TransformerShape
from fewstep.networks.arrays import expected_arrays
from kernels.reference.transformer import Reference, ReferenceEnsemble

EOS = 2
NEAR = 1e-4
"""A margin below which float32 may choose otherwise than float64."""


def arrays_for(shape, seed, *, vocabulary=11, sources=None, positions=9, slots=16):
    """Return a random network with sharp outputs, so that near-ties are rare."""
    draw = np.random.default_rng(seed)
    found = {}
    for name, size in expected_arrays(shape, sources is not None).items():
        rows = {"target_embedding": vocabulary, "source_embedding": sources, "source_positions": positions, "slot_codes": slots}
        rows["logits_bias"] = vocabulary
        size = (rows[name], *size[1:]) if name in rows else size
        values = draw.standard_normal(size, dtype=np.float32) * (1.5 if len(size) == 1 or name in rows else size[-1] ** -0.5)
        found[name] = values + 1.0 if name.endswith("norm.weight") else values
    return found


@st.composite
def problems(draw):
    heads = draw(st.sampled_from([1, 2, 3]))
    shape = TransformerShape(
        encoder_layers=draw(st.integers(0, 2)),
        decoder_layers=draw(st.integers(1, 3)),
        width=heads * draw(st.sampled_from([2, 5, 19, 32, 40])),
        feed_forward=draw(st.sampled_from([1, 5, 33])),
        heads=heads,
        norm=draw(st.sampled_from(["pre", "post"])),
        activation=draw(st.sampled_from(["relu", "gelu", "swish"])),
        scale_embeddings=draw(st.booleans()),
        logits_bias=draw(st.booleans()),
    )
    step_size = draw(st.integers(1, 5))
    mask = draw(st.sampled_from(["block", "causal", "same-direction"]))
    directions = draw(st.integers(1, 3))
    rules = SlotRules(
        mask=mask,
        directions=directions,
        banned=draw(st.sampled_from([(0,), (0, 1, 5)])),
        min_tokens=draw(st.integers(0, 4)),
        no_repeat_ngram=draw(st.integers(0, 3)) if step_size <= directions else 0,
    )
    beam_size = draw(st.integers(1, 4))
    options = BeamOptions(
        beam_size=beam_size,
        step_size=step_size,
        per_direction=step_size == 2 and draw(st.booleans()),
        selection=draw(st.sampled_from(["exact", "outer", "outer-authors", *(["double-top-k"] if step_size == 2 else [])])),
        n_best=draw(st.integers(1, beam_size)),
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0])),
        gnmt=draw(st.booleans()),
    )
    separate = draw(st.booleans())
    size = 8 if separate else 11
    sources = draw(st.lists(st.lists(st.integers(0, size - 1), min_size=1, max_size=9), min_size=1, max_size=4))
    limits = [draw(st.integers(1, 15 // step_size * step_size)) for _ in sources]
    arrays = arrays_for(shape, draw(st.integers(0, 2**32)), sources=size if separate else None)
    return arrays, shape, sources, limits, options, rules


def padded(sources):
    lengths = np.array([len(source) for source in sources])
    table = np.full((len(sources), int(lengths.max(initial=1))), -1)
    for row, source in zip(table, sources, strict=True):
        row[: len(source)] = source
    return table, lengths


def run(transformer, name, sources, limits, options, rules, threads=1, others=()):
    call = getattr(transformer, name)
    return call(*padded(sources), np.array(limits), options=options, rules=rules, threads=threads, others=others)


def same(found, references, name, source, limit, options, rules):
    """Compare an outcome with that of the first reference; return False for a near-tie, in which rounding may decide.

    In a near-tie the margin is small compared with the change of its own scores under perturbations of the last bits of
    weights (normalisation of a few nearly equal numbers enlarges them), of which the other references are examples.
    """
    expected, *shaken = (getattr(reference, name)(source, limit, options=options, rules=rules) for reference in references)
    unranked_gap = references[0].unranked_gap if name == "beam_search" else math.inf
    moved = max(distance(expected, one) for one in shaken)
    if min(found.margin, expected.margin, unranked_gap) < NEAR + 10 * moved:
        return False
    assert found.steps == expected.steps
    assert distance(found, expected) <= 1e-4 + 10 * moved
    assert found.margin == pytest.approx(expected.margin, abs=1e-3 + 10 * moved)
    return True


def distance(one, other):
    """Return the difference between the scores of equal hypotheses; infinity if they differ."""
    if [tokens for _, tokens in one.hypotheses] != [tokens for _, tokens in other.hypotheses]:
        return math.inf
    pairs = zip(one.hypotheses, other.hypotheses, strict=True)
    return max((abs(a - b) for (a, _), (b, _) in pairs if a != b), default=0.0)


SHAKES = 4
"""Number of perturbations. A single one may change a score a hundred times less than another."""


def shake(arrays, seed=0):
    """Return each number with an error of about one float32 rounding."""
    draw = np.random.default_rng(seed)
    return {name: values * (1.0 + 6e-8 * draw.standard_normal(values.shape)) for name, values in arrays.items()}


CLOSE, ALL = [0], [0]


@settings(derandomize=True)  # the share of near-ties among new draws has no bound
@given(problems())
def test_finds_what_the_reference_finds_that_starts_every_step_from_the_beginning(problem):
    arrays, shape, sources, limits, options, rules = problem
    transformer = Transformer(arrays, shape=shape)
    references = [Reference(given, shape=shape) for given in (arrays, *(shake(arrays, seed) for seed in range(SHAKES)))]
    for name in ("greedy", "beam_search"):
        for found, source, limit in zip(run(transformer, name, *problem[2:]), sources, limits, strict=True):
            ALL[0] += 1
            CLOSE[0] += not same(found, references, name, source, limit, options, rules)


def test_close_calls_were_few():
    if not ALL[0]:  # another process has drawn them
        test_finds_what_the_reference_finds_that_starts_every_step_from_the_beginning()
    assert ALL[0] > 20
    assert CLOSE[0] < 0.1 * ALL[0]


@given(problems(), st.integers(2, 4), st.sampled_from(["float32", "bfloat16", "int8"]))
def test_an_outcome_is_the_same_to_the_last_bit_alone_in_a_batch_and_with_threads(problem, threads, precision):
    arrays, shape, sources, limits, options, rules = problem
    transformer = Transformer(arrays, shape=shape, precision=precision)
    for name in ("greedy", "beam_search"):
        together = run(transformer, name, *problem[2:])
        assert run(transformer, name, *problem[2:], threads=threads) == together
        turned = run(transformer, name, sources[::-1], limits[::-1], options, rules)
        assert turned[::-1] == together
        for source, limit, outcome in zip(sources, limits, together, strict=True):
            assert run(transformer, name, [source], [limit], options, rules) == [outcome]


WIDE = TransformerShape(encoder_layers=2, decoder_layers=2, width=64, feed_forward=512, heads=2, norm="pre")
"""A network large enough for threads to share its products."""


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("words", [5, 30, 60])
def test_threads_share_out_the_products_of_a_wide_encoder(words, threads):
    """The matrices are so large that threads share rows only if there are many."""
    shape = TransformerShape(encoder_layers=2, decoder_layers=1, width=256, feed_forward=1800, heads=4, norm="post")
    transformer = Transformer(arrays_for(shape, 0, vocabulary=50, positions=64), shape=shape)
    problem = [[7 + place % 40 for place in range(words)]], [6], BeamOptions(beam_size=1), SlotRules(min_tokens=6)
    assert run(transformer, "greedy", *problem, threads) == run(transformer, "greedy", *problem)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("step_size", [1, 2, 4])
def test_threads_share_out_the_steps_of_a_single_sentence(step_size, threads, precision):
    first, second = (Transformer(arrays_for(WIDE, seed, vocabulary=3000), shape=WIDE, precision=precision) for seed in (0, 1))
    options, rules = BeamOptions(beam_size=4, n_best=4, step_size=step_size), SlotRules(min_tokens=8)
    for name in ("greedy", "beam_search"):
        for others in ((), (second,)):
            alone, helped = (run(first, name, [[5, 3, 7, 1] * 2], [12], options, rules, count, others) for count in (1, threads))
            assert helped == alone


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_fewer_bits(norm, precision):
    """The first step, which goes through all matrices, writes what it does in float32, with scores that differ a little."""
    shape, options = dataclasses.replace(WIDE, norm=norm), BeamOptions(beam_size=1, step_size=2)
    alike, apart = 0, 0.0
    for seed in range(20):
        arrays = arrays_for(shape, seed, vocabulary=300)
        ((score, words), (near, others)) = (
            run(Transformer(arrays, shape=shape, precision=name), "greedy", [[5, 3, 7, 1]], [2], options, SlotRules())[
                0
            ].hypotheses[0]
            for name in ("float32", precision)
        )
        alike, apart = alike + (words == others), max(apart, abs(near - score))
    assert alike >= 17
    assert 0 < apart < 1


SHAPE = TransformerShape(encoder_layers=1, decoder_layers=1, width=6, feed_forward=5, heads=3, norm="pre")


def test_no_sources_have_no_outcomes():
    transformer = Transformer(arrays_for(SHAPE, 0), shape=SHAPE)
    for name in ("greedy", "beam_search"):
        assert run(transformer, name, [], [], BeamOptions(beam_size=2), SlotRules()) == []


def test_where_no_token_is_allowed_the_score_is_minus_infinity():
    transformer = Transformer(arrays_for(SHAPE, 0), shape=SHAPE)
    rules = SlotRules(banned=tuple(token for token in range(11) if token != EOS), min_tokens=3)
    (outcome,) = run(transformer, "greedy", [[3]], [5], BeamOptions(beam_size=1), rules)
    assert outcome.hypotheses == [(-math.inf, [])]


def test_arrays_are_copied():
    arrays = arrays_for(SHAPE, 0)
    transformer = Transformer(arrays, shape=SHAPE)
    before = run(transformer, "greedy", [[3, 4]], [5], BeamOptions(beam_size=1), SlotRules())
    for values in arrays.values():
        values[:] = np.nan
    assert run(transformer, "greedy", [[3, 4]], [5], BeamOptions(beam_size=1), SlotRules()) == before


def test_all_arrays_that_do_not_fit_are_named_at_once():
    arrays = arrays_for(SHAPE, 0)
    del arrays["decoder.layers.0.cross_attention.output.bias"], arrays["encoder.norm.weight"]
    arrays["target_embedding"] = arrays["target_embedding"][:, :5]
    arrays["slot_codes"] = arrays["slot_codes"].astype(np.float64)
    with pytest.raises(
        ValueError, match=r"missing decoder\.layers\.0\.cross_attention\.output\.bias, encoder\.norm\.weight; "
    ) as raised:
        Transformer(arrays, shape=SHAPE)
    assert "slot_codes: expected float32, got float64; target_embedding: expected [rows,6], got [11, 5]" in str(raised.value)
    with pytest.raises(ValueError, match="precision: expected float32, bfloat16 or int8, got fp32"):
        Transformer(arrays_for(SHAPE, 0), shape=SHAPE, precision="fp32")
    with pytest.raises(ValueError, match="multiple of heads"):
        Transformer(arrays_for(SHAPE, 0), shape=dataclasses.replace(SHAPE, heads=4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": [[3, 11]]}, r"sources\[0\]: expected ids below 11, got 11"),
        ({"sources": [[3] * 10]}, r"lengths\[0\]: expected 1 to 9, got 10"),
        ({"sources": [[]]}, r"lengths\[0\]: expected 1 to 1, got 0"),
        ({"limits": [17]}, r"limits\[0\]: expected at most 16 slots with codes, got 17"),
        ({"limits": [0]}, "limits: expected at least 1, got 0"),
        ({"limits": [1, 1]}, "one for each row of sources"),
        ({"rules": SlotRules(banned=(0, 11))}, "banned: expected ids below 11, got 11"),
        ({"rules": SlotRules(banned=(1,))}, r"banned: expected pad \(0\) among them"),
        (
            {"options": BeamOptions(beam_size=1, step_size=2), "rules": SlotRules(no_repeat_ngram=3)},
            "no_repeat_ngram: expected 0 for a step of several tokens of a direction, got 3",
        ),
        ({"options": BeamOptions(beam_size=1, eos=12)}, "eos, pad: expected ids below 11, got 12"),
        ({"options": BeamOptions(beam_size=1, step_size=5), "limits": [16]}, "at most 15 slots"),
        ({"threads": 0}, "threads: expected at least 1, got 0"),
        (
            {"rules": SlotRules(shortlist_tokens=3, shortlist_links=2)},
            "shortlist: expected a network with a lexicon.*, got none",
        ),
    ],
)
def test_what_does_not_fit_the_network_is_refused(change, message):
    transformer = Transformer(arrays_for(SHAPE, 0), shape=SHAPE)
    given = {"sources": [[3]], "limits": [4], "options": BeamOptions(beam_size=1), "rules": SlotRules(), **change}
    for name in ("greedy", "beam_search"):
        with pytest.raises(ValueError, match=message):
            run(transformer, name, **given)


def test_what_does_not_fit_the_lexicon_is_refused():
    arrays, one = arrays_for(SHAPE, 0), {"sources": [[3]], "limits": [4], "options": BeamOptions(beam_size=1)}
    for lexicon, message in (
        (Lexicon(np.array([EOS, 11])), "common_tokens: expected ids below 11, got 11"),
        (Lexicon(np.array([EOS]), np.array([[3], [11]])), "linked_tokens: expected a row for each source token"),
        (Lexicon(np.array([EOS]), np.full((11, 1), 11)), "linked_tokens: expected ids below 11, got 11"),
    ):
        with pytest.raises(ValueError, match=message):
            Transformer(arrays, shape=SHAPE, lexicon=lexicon)
    transformer = Transformer(arrays, shape=SHAPE, lexicon=Lexicon(np.array([3, 4, EOS]), np.full((11, 1), 5)))
    for rules, message in (
        (SlotRules(shortlist_tokens=3, shortlist_links=2), "a lexicon of at least 2 links per token, got 1 links"),
        (SlotRules(shortlist_tokens=2, shortlist_links=1), "shortlist: expected eos among the first 2 common tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            run(transformer, "greedy", **one, rules=rules)
    with pytest.raises(ValueError, match="others: expected networks with one lexicon"):
        run(transformer, "greedy", **one, rules=SlotRules(), others=[Transformer(arrays, shape=SHAPE)])


def test_importing_it_loads_neither_torch_nor_numpy():
    code = "import sys; from fewstep import Transformer; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def ensemble_of(arrays, seeds):
    """Arrays of networks of one shape, with weights of their own; less sure of themselves than one alone: words that one network
    each is sure of have nearly equal shares, and are close calls."""
    found = []
    for seed in seeds:
        draw = np.random.default_rng(seed)
        member = {name: values[..., draw.permutation(values.shape[-1])] for name, values in arrays.items()}
        found.append(member | {"target_embedding": 0.3 * member["target_embedding"]})
    return found


@settings(derandomize=True)
@given(problems(), st.lists(st.integers(0, 2**32), min_size=2, max_size=4, unique=True))
def test_networks_that_write_together_average_their_probabilities(problem, seeds):
    arrays, shape, sources, limits, options, rules = problem
    all_arrays = ensemble_of(arrays, seeds)
    first, *others = [Transformer(one, shape=shape) for one in all_arrays]
    changed = (all_arrays, *([shake(one, seed) for one in all_arrays] for seed in range(2)))
    references = [ReferenceEnsemble([Reference(one, shape=shape) for one in arrays]) for arrays in changed]
    for name in ("greedy", "beam_search"):
        for found, source, limit in zip(run(first, name, *problem[2:], others=others), sources, limits, strict=True):
            TOGETHER[0] += 1
            TOGETHER[1] += not same(found, references, name, source, limit, options, rules)


TOGETHER = [0, 0]


def test_close_calls_of_several_networks_were_few():
    if not TOGETHER[0]:  # another process has drawn them
        test_networks_that_write_together_average_their_probabilities()
    assert TOGETHER[0] > 20
    assert TOGETHER[1] < 0.2 * TOGETHER[0]


@given(problems(), st.integers(2, 4))
def test_outcomes_of_several_networks_do_not_depend_on_company(problem, threads):
    arrays, shape, sources, limits, options, rules = problem
    first, *others = [Transformer(one, shape=shape) for one in ensemble_of(arrays, range(3))]
    for name in ("greedy", "beam_search"):
        together = run(first, name, *problem[2:], others=others)
        assert run(first, name, *problem[2:], threads=threads, others=others) == together
        for source, limit, outcome in zip(sources, limits, together, strict=True):
            assert run(first, name, [source], [limit], options, rules, others=others) == [outcome]


def test_words_that_every_network_holds_for_all_but_impossible_are_scored_all_the_same():
    """Probabilities far below the smallest float32, where EOS is the only word that may be written."""
    arrays = arrays_for(SHAPE, 0)
    arrays["decoder.norm.weight"][:], arrays["decoder.norm.bias"][:] = 0.0, 1.0
    arrays["target_embedding"][:], arrays["target_embedding"][4] = 0.0, 100.0
    transformer, other = Transformer(arrays, shape=SHAPE), Transformer(arrays, shape=SHAPE)
    rules = SlotRules(banned=tuple(token for token in range(11) if token != EOS), min_tokens=0)
    options = BeamOptions(beam_size=1, length_penalty=0.0)
    for name in ("greedy", "beam_search"):
        (found,) = run(transformer, name, [[3, 4]], [4], options, rules, others=[other])
        assert found.hypotheses[0][1] == []
        assert found.hypotheses[0][0] == pytest.approx(-600.0, rel=1e-5)


def test_networks_that_do_not_go_together_are_refused():
    transformer = Transformer(arrays_for(SHAPE, 0), shape=SHAPE)
    for changes, message in (
        ({"vocabulary": 12}, "same vocabularies"),
        ({"slots": 12}, "same numbers of position codes and slots"),
    ):
        other = Transformer(arrays_for(SHAPE, 1, **changes), shape=SHAPE)
        with pytest.raises(ValueError, match=message):
            run(transformer, "greedy", [[3]], [5], BeamOptions(beam_size=1), SlotRules(), others=[other])
