"""Native draft and verify against native greedy decoding, and its drafts against slow reference implementations."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep import AggressiveTransformer, BeamOptions, Drafter, DraftOptions, Lexicon, SlotRules, Transformer, TransformerShape
from fewstep.networks.arrays import expected_arrays
from kernels.reference.aggressive import aggressive, lookup
from kernels.reference.transformer import Reference
from tests.fewstep.networks.test_transformer import shake

EOS = 2
VOCABULARY = 23


def arrays_for(shape, seed, *, vocabulary=VOCABULARY, sources=None, positions=12, slots=32):
    """Return a random network with sharp outputs."""
    draw = np.random.default_rng(seed)
    found = {}
    for name, size in expected_arrays(shape, sources is not None).items():
        rows = {"target_embedding": vocabulary, "source_embedding": sources, "source_positions": positions, "slot_codes": slots}
        size = (rows[name], size[1]) if name in rows else size
        values = draw.standard_normal(size, dtype=np.float32) * (1.5 if len(size) == 1 or name in rows else size[-1] ** -0.5)
        found[name] = values + 1.0 if name.endswith("norm.weight") else values
    return found


@st.composite
def shapes(draw, width=None, heads=None):
    heads = heads or draw(st.sampled_from([1, 2, 3]))
    return TransformerShape(
        encoder_layers=draw(st.integers(0, 2)),
        decoder_layers=draw(st.integers(1, 3)),
        width=width or heads * draw(st.sampled_from([2, 5, 19, 32, 40])),
        feed_forward=draw(st.sampled_from([1, 5, 33])),
        heads=heads,
        norm=draw(st.sampled_from(["pre", "post"])),
    )


@st.composite
def problems(draw):
    shape = draw(shapes())
    sources = 13 if draw(st.booleans()) else None
    seed = draw(st.integers(0, 2**32))
    shares = draw(st.booleans())
    drafter_shape = draw(shapes(width=shape.width, heads=shape.heads) if shares else shapes())
    arrays = arrays_for(shape, seed, sources=sources)
    own = arrays_for(drafter_shape, seed + 1, sources=sources)
    same_words = shares and draw(st.booleans())
    sight = draw(st.sampled_from(["all", "prefix", "causal", "causal"]))
    proposals = draw(st.sampled_from(["network", "network", "network", "lookup", "jacobi", "nothing"]))
    tree_nodes = draw(st.sampled_from([0, 1, 5, 12])) if proposals == "network" else 0
    drafter = Drafter(
        arrays={**own, "target_embedding": arrays["target_embedding"]} if same_words else own,
        shape=drafter_shape,
        shares_encoder=shares,
        shares_words=same_words,
        lexicon=Lexicon(np.array([EOS, *np.random.default_rng(seed).permutation(np.arange(7, VOCABULARY))[:9]]))
        if draw(st.booleans())
        else None,
        features=np.random.default_rng(seed).standard_normal((shape.width, shape.width)).astype(np.float32)
        if sight == "causal" and shares and draw(st.booleans())
        else None,
        sight=sight,
        codes_in_layers=draw(st.booleans()),
        copy_queries=np.random.default_rng(seed).standard_normal((32, drafter_shape.width)).astype(np.float32)
        if draw(st.booleans())
        else None,
    )
    count = draw(st.integers(1, 5))
    rows = [[draw(st.integers(0, 12)) for _ in range(draw(st.integers(1, 12)))] for _ in range(count)]
    limits = np.array([draw(st.integers(1, 31)) for _ in rows])
    rules = SlotRules(banned=draw(st.sampled_from([(0,), (0, 1, 3, 4, 5, 6)])), min_tokens=draw(st.integers(0, 5)))
    drafts = DraftOptions(
        proposals=proposals,
        width=draw(st.sampled_from([1, 2, 3, 8, 25])),
        adaptive=not tree_nodes and draw(st.booleans()),
        tree_nodes=tree_nodes,
        tree_branches=draw(st.sampled_from([1, 3, 30])),
        shortlist_tokens=draw(st.sampled_from([0, 9, 23, 50])),
        confidence=draw(st.sampled_from([0.0, 0.2, 0.9])),
        precision=draw(st.sampled_from(["float32", "int8"])),
        min_tokens_per_pass=draw(st.sampled_from([0.0, 1.5, 100.0])),
    )
    return arrays, shape, drafter, rows, limits, rules, drafts


def padded(sources):
    lengths = np.array([len(source) for source in sources])
    table = np.full((len(sources), int(lengths.max(initial=1))), -1)
    for row, source in zip(table, sources, strict=True):
        row[: len(source)] = source
    return table, lengths


OPTIONS = BeamOptions(beam_size=1, length_penalty=0.6)


def run(transformer, sources, limits, rules, drafts, hints=None, threads=1, options=OPTIONS):
    hints = [list(reversed(source)) for source in sources] if hints is None else hints
    return transformer(*padded(sources), limits, options=options, rules=rules, drafts=drafts, hints=hints, threads=threads).outcomes


PRECISIONS = st.sampled_from(["float32", "float32", "bfloat16", "int8"])


@given(problems(), PRECISIONS)
def test_whatever_is_drafted_greedy_decoding_stays_as_it_is_to_the_last_bit(problem, precision):
    arrays, shape, drafter, rows, limits, rules, drafts = problem
    expected = Transformer(arrays, shape=shape, precision=precision).greedy(*padded(rows), limits, options=OPTIONS, rules=rules)
    found = run(AggressiveTransformer(arrays, shape=shape, precision=precision, drafter=drafter), rows, limits, rules, drafts)
    for one, greedy in zip(found, expected, strict=True):
        assert [(one.score, one.tokens)] == greedy.hypotheses
        assert one.margin == greedy.margin
        assert one.steps <= greedy.steps
        assert one.accepted <= one.drafted
        assert sum(one.accepted_at) == one.accepted
        assert all(accepted <= proposed for accepted, proposed in zip(one.accepted_at, one.proposed_at, strict=True))
        if drafts.proposals == "nothing":
            assert (one.steps, one.drafted) == (greedy.steps, 0)


@given(problems(), st.sampled_from([1, 3, 22]), st.sampled_from([0.0, 1.0, 50.0]), st.booleans(), st.integers(2, 4), PRECISIONS)
def test_an_outcome_is_the_same_to_the_last_bit_alone_in_a_batch_and_with_threads(problem, top_k, gap, verify, threads, precision):
    arrays, shape, drafter, rows, limits, rules, drafts = problem
    if not drafts.tree_nodes:
        drafts = dataclasses.replace(drafts, top_k=top_k, max_logprob_gap=gap, verify=verify)
    transformer = AggressiveTransformer(arrays, shape=shape, precision=precision, drafter=drafter)
    together = run(transformer, rows, limits, rules, drafts)
    assert run(transformer, rows, limits, rules, drafts, threads=threads) == together
    assert run(transformer, rows[::-1], limits[::-1].copy(), rules, drafts)[::-1] == together
    for source, limit, outcome in zip(rows, limits, together, strict=True):
        assert run(transformer, [source], np.array([limit]), rules, drafts) == [outcome]


WIDE = TransformerShape(encoder_layers=2, decoder_layers=2, width=64, feed_forward=512, heads=2, norm="pre")
"""A network large enough for threads to share its products."""


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("shares", [False, True])
def test_threads_share_out_the_passes_of_a_single_sentence(shares, verify, threads, precision):
    drafter = Drafter(arrays=arrays_for(WIDE, 1, vocabulary=3000), shape=WIDE, shares_encoder=shares)
    transformer = AggressiveTransformer(arrays_for(WIDE, 0, vocabulary=3000), shape=WIDE, precision=precision, drafter=drafter)
    drafts, rules = DraftOptions(width=4, top_k=3000, max_logprob_gap=5.0, verify=verify), SlotRules(min_tokens=8)
    alone, helped = (run(transformer, [[5, 3, 7, 1] * 2], np.array([14]), rules, drafts, threads=count) for count in (1, threads))
    assert helped == alone


SHAPE = TransformerShape(encoder_layers=1, decoder_layers=1, width=6, feed_forward=5, heads=3, norm="pre")


def small(**changes):
    arrays = arrays_for(SHAPE, 0)
    given = {"arrays": arrays_for(SHAPE, 1), "shape": SHAPE, "shares_encoder": False, **changes}
    return AggressiveTransformer(arrays, shape=SHAPE, drafter=Drafter(**given))


PLAIN = SlotRules(banned=(0,))


def traced(written, hints, width, rules=PLAIN, **options):
    """Passes of a verifier that writes `written`, of drafts that are looked up in `hints`."""
    # Its states follow the slot alone, and each slot's code points at the embedding of its token.
    slots = 16
    shape = dataclasses.replace(SHAPE, width=24, heads=3)
    arrays = arrays_for(shape, 0)
    for name in arrays:
        if name.startswith("decoder.layers") and name.endswith(
            (".output.weight", ".output.bias", ".narrow.weight", ".narrow.bias")
        ):
            arrays[name] = np.zeros_like(arrays[name])
    embedding = np.zeros((VOCABULARY, 24), dtype=np.float32)
    embedding[np.arange(VOCABULARY), np.arange(VOCABULARY)] = 0.1
    codes = np.zeros((slots, 24), dtype=np.float32)
    for slot in range(slots):
        codes[slot, written[slot] if slot < len(written) else EOS] = 100.0
    arrays |= {"target_embedding": embedding, "slot_codes": codes}
    arrays["decoder.norm.weight"] = np.ones(24, dtype=np.float32)
    arrays["decoder.norm.bias"] = np.zeros(24, dtype=np.float32)
    transformer = AggressiveTransformer(arrays, shape=shape)
    drafts = DraftOptions(**{"proposals": "lookup", "width": width, "ngram": 1, **options})
    return run(transformer, [[3]], np.array([12]), rules, drafts, [hints])[0]


A, B, C, D, E, X = 10, 11, 12, 13, 14, 15


def test_the_trace_of_the_specification():
    """Greedy writes A B C D E; the first draft is A B X, the second D E EOS."""
    one = traced([A, B, C, D, E], [A, B, X, C, D, E, EOS], 3)
    assert one.tokens == [A, B, C, D, E]
    assert (one.steps, one.drafted, one.accepted) == (2, 6, 5)
    assert (one.proposed_at, one.accepted_at) == ([2, 2, 2], [2, 2, 1])


def test_the_trace_of_jacobi_decoding():
    """The verifier's tokens follow the slot alone, so that a pass corrects all guesses. It writes A; B, with the draft A A and the
    guesses C D; C D E; and EOS, with the draft E E."""
    one = traced([A, B, C, D, E], [], 2, proposals="jacobi")
    assert one.tokens == [A, B, C, D, E]
    assert (one.steps, one.drafted, one.accepted) == (4, 6, 2)
    assert (one.proposed_at, one.accepted_at) == ([3, 1], [1, 1])


def test_what_does_not_fit_is_refused():
    options = {"options": OPTIONS, "rules": SlotRules(), "drafts": DraftOptions()}
    one, length, limit = np.array([[3]]), np.array([1]), np.array([4])
    bare = AggressiveTransformer(arrays_for(SHAPE, 0), shape=SHAPE)
    with pytest.raises(ValueError, match="lookup, jacobi or nothing without a drafter"):
        bare(one, length, limit, **options)
    with pytest.raises(ValueError, match="verify: expected true without a drafter"):
        bare(one, length, limit, **{**options, "drafts": DraftOptions(proposals="nothing", verify=False)})
    with pytest.raises(ValueError, match="hints: expected one for each row"):
        bare(one, length, limit, **{**options, "drafts": DraftOptions(proposals="lookup")})
    with pytest.raises(ValueError, match="hints: expected ids"):
        bare(one, length, limit, **{**options, "drafts": DraftOptions(proposals="lookup")}, hints=[[99]])
    with pytest.raises(ValueError, match=r"limits\[0\]: expected at most 32 slots with codes, got 33"):
        small()(one, length, np.array([33]), **options)
    with pytest.raises(ValueError, match=r"sources\[0\]: expected ids below 23, got 23"):
        small()(np.array([[23]]), length, limit, **options)
    with pytest.raises(ValueError, match="proposals: expected network, lookup, jacobi or nothing, got copies"):
        small()(one, length, limit, **{**options, "drafts": DraftOptions(proposals="copies")})
    with pytest.raises(ValueError, match="sight: expected all, prefix or causal, got none"):
        small(sight="none")
    with pytest.raises(ValueError, match="features: expected sight causal"):
        small(features=np.zeros((6, 6), dtype=np.float32))
    for proposals in ("lookup", "jacobi"):
        with pytest.raises(ValueError, match="tree_nodes: expected 0 without a drafting network"):
            small()(one, length, limit, **{**options, "drafts": DraftOptions(proposals=proposals, tree_nodes=2)})
    with pytest.raises(ValueError, match="width with tree_nodes and tree_branches: expected 1 to 4, got 5"):
        small(sight="causal")(one, length, limit, **{**options, "drafts": DraftOptions(tree_nodes=9, tree_branches=4096)})
    with pytest.raises(ValueError, match="top_k: expected at most the vocabulary's 23, got 24"):
        small()(one, length, limit, **{**options, "drafts": DraftOptions(top_k=24)})
    with pytest.raises(ValueError, match="width: expected 1 to 4096, got 0"):
        small()(one, length, limit, **{**options, "drafts": DraftOptions(width=0)})
    with pytest.raises(ValueError, match=r"features: expected \[6,6\].*got \[3, 6\] and 6"):
        small(features=np.zeros((3, 6), dtype=np.float32))
    with pytest.raises(ValueError, match="common_tokens: expected ids below 23, got 23"):
        small(lexicon=Lexicon(np.array([EOS, 23])))
    with pytest.raises(ValueError, match="copy_queries: expected"):
        small(copy_queries=np.zeros((3, 6), dtype=np.float32))
    shape = dataclasses.replace(SHAPE, width=12)
    with pytest.raises(ValueError, match="to share its encoder"):
        small(shape=shape, arrays=arrays_for(shape, 1), shares_encoder=True)
    arrays = arrays_for(SHAPE, 1)
    arrays["target_embedding"] = arrays["target_embedding"][:20].copy()
    with pytest.raises(ValueError, match="expected the verifier's 23 target tokens, got 20"):
        small(arrays=arrays)
    del arrays["decoder.norm.bias"]
    with pytest.raises(ValueError, match=r"drafter: arrays: missing decoder\.norm\.bias"):
        small(arrays=arrays)
    assert run(small(), [], np.array([], dtype=np.int64), SlotRules(), DraftOptions()) == []


def fewer_layers(arrays, shape):
    """Return the arrays of the first layers of a network."""
    names = set(expected_arrays(shape, "source_embedding" in arrays))
    return {name: array for name, array in arrays.items() if name in names}


AGREED, UNCLEAR = [0], [0]


@given(
    problems(),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.booleans(),
    st.sampled_from(["lookup", "network", "jacobi", "nothing"]),
)
def test_drafts_are_accepted_as_the_reference_accepts_them(problem, top_k, gap, require_top1_eos, proposals):
    """The reference starts every pass from the beginning. Where its result changes with the last bits of weights, it is unclear."""
    arrays, shape, _, rows, limits, rules, drafts = problem
    limits = np.minimum(limits, 9)
    options = {"proposals": proposals, "top_k": top_k, "max_logprob_gap": gap, "require_top1_eos": require_top1_eos}
    drafts = dataclasses.replace(drafts, **options, tree_nodes=0, shortlist_tokens=0, precision="float32")
    # The draft model is the verifier without its last layer, or the verifier itself if that has one layer.
    model_shape = dataclasses.replace(shape, decoder_layers=max(1, shape.decoder_layers - 1))
    model = Drafter(arrays=fewer_layers(arrays, model_shape), shape=model_shape, shares_encoder=False, sight="causal")
    found = run(AggressiveTransformer(arrays, shape=shape, drafter=model), rows, limits, rules, drafts)
    weights = arrays, shake(arrays, 0), shake(arrays, 1)
    references = [(Reference(one, shape=shape), Reference(fewer_layers(one, model_shape), shape=model_shape)) for one in weights]
    given = {"options": OPTIONS, "rules": rules, "drafts": drafts}
    for one, source, limit in zip(found, rows, limits.tolist(), strict=True):
        expected, *shaken = [
            aggressive(whole, source, limit, hint=source[::-1], draft_model=small if proposals == "network" else None, **given)
            for whole, small in references
        ]
        AGREED[0] += 1
        if expected.margin < 1e-3 or any(counts_of(other) != counts_of(expected) for other in shaken):
            UNCLEAR[0] += 1
            continue
        assert one.score == pytest.approx(expected.score, abs=1e-3)
        assert one.margin == pytest.approx(expected.margin, abs=2e-3)
        assert counts_of(one) == counts_of(expected)


def counts_of(outcome):
    """Return everything but the real numbers."""
    return outcome._replace(score=0, margin=0)


def test_few_results_were_unclear():
    if not AGREED[0]:  # another process has drawn them
        test_drafts_are_accepted_as_the_reference_accepts_them()
    assert AGREED[0] > 20
    assert UNCLEAR[0] < 0.1 * AGREED[0]


def test_lookup_continues_the_longest_ngram_nearest_to_the_end():
    assert lookup([1, 7, 8, 9], [1, 7, 8], 3) == [9]
    assert lookup([1, 5, 8, 6, 8, 4], [1, 9, 8], 3) == [6, 8, 4]
    assert lookup([1], [1, 7, 8, 7], 3) == [8, 7]
    assert lookup([1, 4, 4], [1, 9], 3) == []
