import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fewstep import Candidates, CandidateTables, LatticeOptions, LatticeTransformer, TransformerShape, lattice_candidates
from fewstep.candidates import CandidateOptions
from kernels import lattice_n_best, lattice_viterbi
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from kernels.reference import lattice as search
from kernels.reference.lattice_transformer import Reference
from tests.fewstep.networks.test_transformer import arrays_for

BOS, EOS = 1, 2
NORMALISERS = ("full", "union", "local", "selfnorm")


def shape_of(heads, size, *, encoder_layers=1, decoder_layers=1, feed_forward=5, norm="pre"):
    return TransformerShape(
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        width=heads * size,
        feed_forward=feed_forward,
        heads=heads,
        norm=norm,
    )


shapes = st.builds(
    shape_of,
    st.sampled_from([1, 2, 3]),
    st.sampled_from([6, 19, 32]),  # norms of fewer units divide by next to nothing now and then
    encoder_layers=st.integers(0, 2),
    decoder_layers=st.integers(1, 3),
    feed_forward=st.sampled_from([1, 33]),
    norm=st.sampled_from(["pre", "post"]),
)
options = st.builds(
    LatticeOptions,
    normaliser=st.sampled_from(NORMALISERS),
    count_weight=st.sampled_from([0.0, 0.3]),
    token_bonus=st.sampled_from([0.0, 0.7]),
)
pruned = st.builds(dataclasses.replace, options, candidate_threshold=st.sampled_from([0.0, 0.5, 2.0, math.inf]))


def lattices_for(seed, sentences, slots, candidates, vocabulary, *, empty=False):
    """Sources, candidates (some slots with fewer, all distinct; some in the slot behind the last word) and windows."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 7, sentences)
    sources = draw.integers(3, vocabulary, (sentences, 7))
    sources[np.arange(sentences), lengths - 1] = EOS
    token_ids = np.full((sentences, slots, candidates), -1)
    most = draw.integers(0 if empty else 1, slots + 1, sentences)
    for b, slot in np.ndindex(sentences, slots):
        count = draw.integers(0 if empty else 1, min(candidates, vocabulary - 3) + 1) if slot <= most[b] else 0
        token_ids[b, slot, :count] = draw.permutation(np.arange(3, vocabulary))[:count]
    log_probs = np.where(token_ids >= 0, -5 * draw.random(token_ids.shape), -np.inf)
    least = np.array([draw.integers(min(1, words), words + 1) for words in most])
    return sources, lengths, Candidates(token_ids, log_probs, most), least, most


def column(values, ids):
    """Return lists of the candidates of each slot."""
    return [values[slot][row >= 0].tolist() for slot, row in enumerate(ids)]


@given(
    shapes,
    options,
    st.integers(0, 2**32),
    st.sampled_from([(1, 1, 1), (2, 3, 4), (3, 5, 3), (2, 2, 20)]),
    st.integers(1, 3),
    st.booleans(),
)
def test_scores_and_paths_are_those_of_rows_that_an_ordinary_decoder_runs(shape, chosen, seed, sizes, threads, own_source):
    """Tables in the place of self-attention, folded cross-attention, streams of logits: nothing of it changes a score."""
    sentences, slots, candidates = sizes
    arrays = arrays_for(shape, seed, vocabulary=23, sources=23 if own_source else None, slots=slots + 1)
    sources, lengths, given_, least, most = lattices_for(seed, sentences, slots, candidates, 23)
    network = LatticeTransformer(arrays, shape=shape)
    reference = Reference(arrays, shape=shape)
    found = network.score(sources, lengths, given_, options=chosen, threads=threads)
    outcomes = network.decode_candidates(sources, lengths, given_, least, most, options=chosen, threads=threads)
    paths = lattice_viterbi(*found, least, most)
    for b in range(sentences):
        ids, words = given_.token_ids[b, : most[b]], int(most[b])
        columns = column(ids, ids)
        behind = column(given_.token_ids[b], given_.token_ids[b])[words] if words < slots else []
        source = sources[b, : lengths[b]].tolist()
        wanted = reference.scores(source, columns, column(given_.log_probs[b, :words], ids), chosen, behind)
        width = max(len(one) for one in columns)
        for one, other in zip(found, wanted, strict=True):
            part = one[b][: other.shape[0]] if one.ndim > 2 else one[b]
            part = part[tuple(slice(size) for size in other.shape)]
            np.testing.assert_allclose(part, other, atol=1e-3, rtol=1e-4)
        assert (found.exits[b, words:] == -np.inf).all()
        assert (found.edges[b, max(words - 1, 0) :] == -np.inf).all()
        assert (found.start[b, width:] == -np.inf).all()
        chosen_path = paths.path[b, : paths.lengths[b]]
        assert outcomes[b].ids == [int(given_.token_ids[b, slot, k]) for slot, k in enumerate(chosen_path)]
        assert outcomes[b].score == paths.scores[b]
        best, _ = search.viterbi(*wanted, int(least[b]), words)
        assert outcomes[b].score == pytest.approx(best, abs=5e-3, rel=1e-4)


@given(shapes, pruned, st.integers(0, 2**32), st.integers(1, 3), st.booleans())
def test_pruned_lattices_are_those_of_the_candidates_that_unigrams_leave(shape, chosen, seed, threads, empty):
    """Pruning by unigrams agrees with the reference; the result equals that without the pruned candidates to the last bit."""
    sentences, slots, candidates = 3, 4, 6
    arrays = arrays_for(shape, seed, vocabulary=23, slots=slots + 1)
    sources, lengths, given_, least, most = lattices_for(seed, sentences, slots, candidates, 23, empty=empty)
    network = LatticeTransformer(arrays, shape=shape)
    reference = Reference(arrays, shape=shape)
    token_ids, log_probs = np.full_like(given_.token_ids, -1), np.full_like(given_.log_probs, -np.inf)
    places = {}
    for b, slot in np.ndindex(sentences, slots):
        there = given_.token_ids[b, slot] >= 0
        if not there.any():
            continue
        encoded = reference.encode(sources[b, : lengths[b]].tolist())
        scores = reference.logits(encoded, [BOS], slot)[0, given_.token_ids[b, slot, there]]
        scores = scores + given_.log_probs[b, slot, there]
        below = scores.max() - scores
        assume(np.abs(below - chosen.candidate_threshold)[below > 0].min(initial=1.0) > 1e-3 * (1 + np.abs(scores).max()))
        kept = np.flatnonzero(below <= chosen.candidate_threshold)
        places[b, slot] = kept
        token_ids[b, slot, : len(kept)] = given_.token_ids[b, slot, kept]
        log_probs[b, slot, : len(kept)] = given_.log_probs[b, slot, kept]
    fewer, all_ = Candidates(token_ids, log_probs, most), dataclasses.replace(chosen, candidate_threshold=math.inf)
    one = network.decode_candidates(sources, lengths, given_, least, most, options=chosen, threads=threads)
    assert one == network.decode_candidates(sources, lengths, fewer, least, most, options=all_)
    found = network.score(sources, lengths, given_, options=chosen, threads=threads)
    wanted = network.score(sources, lengths, fewer, options=all_)
    spread = [np.full_like(part, -np.inf) for part in found]
    for (b, slot), kept in places.items():
        if slot >= most[b]:
            continue
        count = len(kept)
        spread[2][b, slot, kept] = wanted.exits[b, slot, :count]
        if slot == 0:
            spread[0][b, kept] = wanted.start[b, :count]
        if slot + 1 < most[b] and (b, slot + 1) in places:
            behind = places[b, slot + 1]
            spread[1][b, slot][np.ix_(kept, behind)] = wanted.edges[b, slot, :count, : len(behind)]
    assert all(one.tobytes() == other.tobytes() for one, other in zip(found, spread, strict=True))


@given(shapes, pruned, st.integers(0, 2**32), st.integers(2, 4))
def test_company_and_threads_change_no_bit(shape, chosen, seed, threads):
    sources, lengths, given_, least, most = lattices_for(seed, 9, 4, 5, 40, empty=True)
    network = LatticeTransformer(arrays_for(shape, seed, vocabulary=40, slots=5), shape=shape)
    whole = network.decode_candidates(sources, lengths, given_, least, most, options=chosen)
    assert network.decode_candidates(sources, lengths, given_, least, most, options=chosen, threads=threads) == whole
    scores = [network.score(sources, lengths, given_, options=chosen, threads=count) for count in (1, threads)]
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*scores, strict=True))
    for b, outcome in enumerate(whole):
        one = slice(b, b + 1)
        alone = Candidates(*(x[one] for x in given_))
        cut = np.ascontiguousarray(sources[one, : lengths[b]])
        assert network.decode_candidates(cut, lengths[one], alone, least[one], most[one], options=chosen) == [outcome]
        assert outcome.found == (most[b] == 0 or outcome.score > -np.inf)
        assert bool(outcome.ids) == (outcome.found and most[b] > 0)


@given(shapes, options, st.integers(0, 2**32), st.sampled_from([("bfloat16", 0.1), ("int8", 0.4)]))
def test_fewer_bits(shape, chosen, seed, how):
    """Close to float32 (weights and inputs keep 8 bits, each by itself or by row), and as independent of company and threads."""
    precision, near = how
    sources, lengths, given_, least, most = lattices_for(seed, 5, 4, 6, 40)
    arrays = {
        name: values / 4 if name.startswith("target_embedding") else values
        for name, values in arrays_for(shape, seed, vocabulary=40, slots=5).items()
    }
    network, narrow = (LatticeTransformer(arrays, shape=shape, precision=name) for name in ("float32", precision))
    wide, found = (x.score(sources, lengths, given_, options=chosen) for x in (network, narrow))
    for one, other in zip(found, wide, strict=True):
        assert ((one == -np.inf) == (other == -np.inf)).all()
        there = other > -np.inf
        error = np.abs(one[there] - other[there])
        assert error.size == 0 or np.median(error) < near
    outcomes = narrow.decode_candidates(sources, lengths, given_, least, most, options=chosen, threads=3)
    for b in range(5):
        one = slice(b, b + 1)
        alone = Candidates(*(x[one] for x in given_))
        assert narrow.decode_candidates(sources[one], lengths[one], alone, least[one], most[one], options=chosen) == [outcomes[b]]


@pytest.fixture
def tables(tmp_path):
    """Tables of pairs that repeat themselves: source piece x next to target piece x."""
    draw = np.random.default_rng(0)
    pairs = [draw.integers(7, 30, draw.integers(1, 9)).tolist() for _ in range(60)]
    links = [position for pair in pairs for position in range(len(pair))]
    targets = [[int((word - 7 + draw.integers(0, 3)) % 23 + 7) for word in pair] for pair in pairs]
    limits = CountOptions(source_size=30, target_size=30)
    count_candidates(Sentences.of(pairs), Sentences.of(targets), links, tmp_path / "run", options=limits)
    merge_candidates([tmp_path / "run"], tmp_path / "tables.bin", options=TableOptions())
    return CandidateTables.load(tmp_path / "tables.bin")


@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_decoding_with_tables_is_looking_up_and_searching(tables, normaliser):
    shape = shape_of(2, 8)
    network = LatticeTransformer(arrays_for(shape, 1, vocabulary=30, positions=12, slots=20), shape=shape)
    sources = np.array([[7, 9, 11, EOS, 0], [EOS, 0, 0, 0, 0], [8, 8, 29, 13, EOS]])
    lengths = np.array([4, 1, 5])
    chosen = LatticeOptions(normaliser=normaliser, candidates=4, length_window=2, count_weight=0.1)
    found, seconds = network.timed_decode(sources, lengths, tables, options=chosen)
    least, most = np.array([tables.length_range(int(length) - 1, 2) for length in lengths]).T
    windows = np.ascontiguousarray(least), np.ascontiguousarray(most)
    read = most + (most > 0) * (normaliser == "local")
    given_ = lattice_candidates(tables, sources, lengths - 1, num_slots=read, options=CandidateOptions(candidates=4))
    given_ = given_._replace(num_slots=windows[1])
    assert found == network.decode_candidates(sources, lengths, given_, *windows, options=chosen)
    assert found == network.decode(sources, lengths, tables, options=chosen, threads=3)
    assert found[1] == ([], 0.0)
    assert all(7 <= word < 30 for outcome in found for word in outcome.ids)
    assert min(seconds) > 0
    some = [0, 2]
    scores = network.score(sources[some], lengths[some], Candidates(*(x[some] for x in given_)), options=chosen)
    best = lattice_n_best(*scores, windows[0][some], windows[1][some], n_best=2)
    assert best.scores[:, 0].tolist() == [found[row].score for row in some]
    assert (best.scores[:, 1] <= best.scores[:, 0]).all()


@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_a_window_ends_where_the_codes_of_slots_do(tables, normaliser):
    """Three of four position codes belong to words, for any prediction of the length line."""
    shape = shape_of(2, 8)
    network = LatticeTransformer(arrays_for(shape, 1, vocabulary=30, positions=12, slots=4), shape=shape)
    sources, lengths = np.array([[7, 9, 11, 8, 9, 13, EOS], [8, EOS, 0, 0, 0, 0, 0]]), np.array([7, 2])
    assert tables.length_range(6, 2)[0] > 3
    chosen = LatticeOptions(normaliser=normaliser, candidates=4, length_window=2)
    found = network.decode(sources, lengths, tables, options=chosen)
    assert len(found[0].ids) == 3
    read = np.array([4, 4]) if normaliser == "local" else np.array([3, 3])
    given_ = lattice_candidates(tables, sources, lengths - 1, num_slots=read, options=CandidateOptions(candidates=4))
    windows = np.array([3, tables.length_range(1, 2)[0]]), np.array([3, 3])
    assert found == network.decode_candidates(sources, lengths, given_, *windows, options=chosen)
    four = Candidates(np.full((1, 4, 1), 7), np.zeros((1, 4, 1)), np.array([4]))
    with pytest.raises(ValueError, match="source 0: expected a lattice of fewer slots than the 4 position codes, got 4"):
        network.decode_candidates(sources[:1], lengths[:1], four, np.array([1]), np.array([4]))


def test_an_output_may_end_before_a_slot_without_candidates(tmp_path):
    """Pieces 8 were never linked, and 7 alone at its own place: slots beyond it have no candidates."""
    pairs = [[7], [7], [8, 8, 8, 8]]
    links = [0, 0, -1, -1, -1, -1]
    limits = CountOptions(source_size=30, target_size=30)
    count_candidates(Sentences.of(pairs), Sentences.of(pairs), links, tmp_path / "run", options=limits)
    merge_candidates([tmp_path / "run"], tmp_path / "tables.bin", options=TableOptions())
    tables = CandidateTables.load(tmp_path / "tables.bin")
    shape = shape_of(2, 8)
    network = LatticeTransformer(arrays_for(shape, 1, vocabulary=30, slots=20), shape=shape)
    assert tables.length_range(4, 0)[0] > 1
    sources = np.array([[7, 8, 8, 8, EOS], [8, 8, 8, 8, EOS]])
    found = network.decode(sources, np.array([5, 5]), tables, options=LatticeOptions(length_window=0))
    assert found[0].ids == [7]
    assert found[1] == ([], -np.inf)
    assert [one.found for one in found] == [True, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": np.array([[7, 8, 30, EOS]])}, r"sources\[0\]: expected ids below 30, got 30"),
        ({"sources": np.array([[7, 8, 9, 10]])}, r"sources\[0\]: expected EOS \(2\) as the last id"),
        ({"lengths": np.array([5])}, r"lengths\[0\]: expected 1 to 4, got 5"),
        ({"lengths": np.array([0])}, r"lengths\[0\]: expected 1 to 4, got 0"),
        ({"options": LatticeOptions(candidates=0)}, "candidates: expected 1 to 4096, got 0"),
        ({"options": LatticeOptions(normaliser="none")}, "expected full, union, local or selfnorm, got none"),
        ({"options": LatticeOptions(candidate_threshold=-1.0)}, "candidate_threshold: expected at least 0, got -1"),
        ({"options": LatticeOptions(eos=30)}, "bos, eos: expected ids below 30, got 30"),
        ({"threads": 0}, "threads: expected at least 1, got 0"),
    ],
)
def test_bad_arguments(tables, change, message):
    shape = shape_of(1, 4)
    network = LatticeTransformer(arrays_for(shape, 1, vocabulary=30, slots=9), shape=shape)
    given_ = {
        "sources": np.array([[7, 8, 9, EOS]]),
        "lengths": np.array([4]),
        "tables": tables,
        "options": LatticeOptions(),
    } | change
    with pytest.raises(ValueError, match=message):
        network.decode(**given_)


def test_tables_of_another_vocabulary_are_refused(tables):
    shape = shape_of(1, 4)
    network = LatticeTransformer(arrays_for(shape, 1, vocabulary=31), shape=shape)
    with pytest.raises(ValueError, match="tables: expected those of a network of 31 source and 31 target tokens, got 30 and 30"):
        network.decode(np.array([[7, EOS]]), np.array([2]), tables)


def test_bad_candidates_and_arrays():
    shape = shape_of(1, 4)
    arrays = arrays_for(shape, 1, vocabulary=30, slots=4)
    network = LatticeTransformer(arrays, shape=shape)
    sources, lengths, given_, least, most = lattices_for(1, 2, 3, 2, 30)
    with pytest.raises(
        ValueError, match=r"max_lengths\[0\]: expected 1 <= min_length <= max_length <= 3 slots, or 0 and 0, got 1 and 4"
    ):
        network.decode_candidates(sources, lengths, given_, np.array([1, 1]), np.array([4, 3]))
    with pytest.raises(ValueError, match=r"expected token_ids and log_probs \[B,N,K\]"):
        network.decode_candidates(sources, lengths, given_._replace(log_probs=given_.log_probs[:, :2].copy()), least, most)
    given_.token_ids[0, 0, 0] = 30
    with pytest.raises(ValueError, match="token_ids: expected ids below 30, got 30"):
        network.decode_candidates(sources, lengths, given_, least, most)
    arrays.pop("slot_codes")
    with pytest.raises(ValueError, match="arrays: missing slot_codes"):
        LatticeTransformer(arrays, shape=shape)
    with pytest.raises(ValueError, match="at least one decoder layer, got 0"):
        LatticeTransformer(arrays, shape=dataclasses.replace(shape, decoder_layers=0))
