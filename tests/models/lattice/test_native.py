"""Native decoding agrees with decoding in torch."""

import json
import random
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.families.lattice.batches import Slots, select_slots, select_sources
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.lattice.paths import Lattice, confidences, path_hypotheses
from models.lattice.decode import LatticeDecoder
from models.lattice.run import TorchDecoder
from models.lattice.tables import bigram_tables
from tests.models.lattice.made import SIZE, all_paths, counted, network, random_lattice, usual_pairs

frozen = partial(LatticeDecoder, frozen=True)
"""A decoder of finished networks."""

SOURCES = [[7, 8, 9], [12], [], [16, 15, 14, 13, 12, 11], [9, 9], [10, 7, 12, 8]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return counted(tmp_path_factory.mktemp("tables") / "tables.bin", usual_pairs())


def outputs(decoder, search, sources=SOURCES):
    return decoder.decode(decoder.prepare(sources, search), search)


SEARCHES = [
    LatticeSearch(candidates=4),
    LatticeSearch(candidates=SIZE, length_window=1),
    LatticeSearch(candidates=4, normalizer="union"),
    LatticeSearch(candidates=4, normalizer="local"),
    LatticeSearch(candidates=4, normalizer="selfnorm"),
    LatticeSearch(candidates=4, count_weight=0.3, token_bonus=0.4),
    LatticeSearch(candidates=4, normalizer="local", candidate_threshold=1.5),
    LatticeSearch(candidates=6, candidate_threshold=2.0, count_weight=0.3),
    LatticeSearch(candidates=4, n_best=3),
    LatticeSearch(candidates=4, confidences=True),
    LatticeSearch(candidates=6, candidate_threshold=2.0, n_best=3, confidences=True),
    LatticeSearch(strategy="lookup"),
]


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "post"}, {"decoder_layers": 2, "positions": "learned"}, {"decoder_layers": 2, "norm": "post", "heads": 4}],
)
def test_native_hypotheses_are_those_of_torch(tables, changes):
    model = network(word_dropout=0.1, normalizer_penalty=0.1, **changes)
    torchs, native = LatticeDecoder(model, tables), frozen(model, tables, bigram_tables(model))
    for search in SEARCHES:
        for one, other in zip(outputs(torchs, search), outputs(native, search), strict=True):
            assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in other]
            assert [hypothesis.score for hypothesis in one] == pytest.approx([h.score for h in other], abs=1e-4)
            assert one[0].steps == other[0].steps
            if search.confidences and one[0].ids:
                assert one[0].statistics["confidences"] == pytest.approx(other[0].statistics["confidences"], abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES[:8])
def test_native_scores_are_those_of_torch(tables, search):
    model = network(word_dropout=0.1, normalizer_penalty=0.1)
    torchs, native = LatticeDecoder(model, tables), frozen(model, tables)
    prepared = torchs.prepare([source for source in SOURCES if source], search)
    rows = np.arange(len(prepared.ids))
    mine = select_slots(prepared.slots, rows, search)
    one, other = (decoder.lattice(*select_sources(prepared, rows), mine, search) for decoder in (torchs, native))
    for row, most in enumerate(mine.max_lengths.tolist()):
        np.testing.assert_allclose(one.start[row], other.start[row], atol=1e-4, rtol=0)
        np.testing.assert_allclose(one.exits[row, :most], other.exits[row, :most], atol=1e-4, rtol=0)
        reached = (mine.token_ids[row, : most - 1] >= 0)[..., None] & (mine.token_ids[row, 1:most] >= 0)[:, None]
        np.testing.assert_allclose(one.edges[row, : most - 1][reached], other.edges[row, : most - 1][reached], atol=1e-4, rtol=0)


def test_native_outcomes_are_the_same_in_any_company_to_the_last_bit(tables):
    decoder = frozen(network(word_dropout=0.1, normalizer_penalty=0.1), tables)
    for search in (SEARCHES[0], *SEARCHES[2:5], *SEARCHES[6:8]):
        together = outputs(decoder, search)
        assert together == [outputs(decoder, search, [source])[0] for source in SOURCES]
        assert together == outputs(decoder, search, SOURCES[::-1])[::-1]
        assert all("margin" not in json.dumps(ranked[0].statistics) for ranked in together)


def test_paths_that_no_window_admits_end_earlier_in_native_code_too(tmp_path):
    tables = counted(tmp_path / "tables.bin", [([7, 8], [7, 8], [0, 1]), ([8, 7], [8, 7], [0, 1])] * 5)
    model = network()
    sources = [[7, 8], [9, 9], [7, 9], [8, 7]]
    for search in (LatticeSearch(candidates=4, length_window=0), LatticeSearch(candidates=4, length_window=0, normalizer="local")):
        one, other = (outputs(kind(model, tables), search, sources) for kind in (LatticeDecoder, frozen))
        assert [ranked[0].ids for ranked in one] == [ranked[0].ids for ranked in other]
        assert (other[1][0].ids, other[1][0].score) == ([], float("-inf"))
        assert other[2][0].ids == [7]


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_fewer_bits_are_near_and_for_native_decoding_alone(tables, precision):
    model, few = network(), LatticeSearch(candidates=4, precision=precision)
    native = frozen(model, tables)
    with pytest.raises(ValueError, match="precision: expected float32 in torch"):
        outputs(LatticeDecoder(model, tables), few)
    found = outputs(native, few)
    exact = outputs(native, LatticeSearch(candidates=4))
    scores = [[ranked[0].score for ranked in part] for part in (found, exact)]
    assert scores[0] == pytest.approx(scores[1], rel=0.1, abs=0.5)
    assert scores[0] != scores[1]


def test_what_the_parts_take_adds_up(tables):
    moments = iter([0.0, 1.0, 3.0, 6.0, 10.0])
    taken = TorchDecoder(network(), tables, None).timed([7, 8], LatticeSearch(candidates=4), 1, lambda: next(moments))
    assert taken[1:] == (1000.0, 2000.0, 3000.0, 4000.0)
    native = frozen(network(), tables).timed([7, 8], LatticeSearch(candidates=4))
    assert native.tokens == taken.tokens
    assert min(native[1:]) > 0


# ---- paths through lattices and the confidence of their tokens, against brute force and known answers


BY_HAND = Lattice(
    np.array([[-0.5, -1.0]]),
    np.array([[[[-1.2, -0.3], [-0.2, -2.0]], [[-1.2, -0.3], [-0.2, -2.0]]]]),
    np.array([[[-3.0, -0.9], [-0.4, -1.1], [-0.7, -0.5]]]),
)
"""A lattice with candidates a and b in each of three slots."""


def found(lattice, least, most, count=1):
    return lattice.paths(np.array([least]), np.array([most]), count)


def words(paths, row=0, rank=0):
    return [taken for taken in paths.candidates[row, rank].tolist() if taken >= 0]


def test_a_lattice_by_hand():
    """The best path is "b a", the second best "a b a"; "a b a" is the best of three tokens."""
    paths = found(BY_HAND, 1, 3, 2)
    assert [words(paths), words(paths, 0, 1)] == [[1, 0], [0, 1, 0]]
    assert paths.scores[0].tolist() == pytest.approx([-1.6, -1.7])
    assert paths.lengths[0].tolist() == [2, 3]
    three = found(BY_HAND, 3, 3)
    assert words(three) == [0, 1, 0]
    assert three.scores.item() == pytest.approx(-1.7)


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 5),
    width=st.integers(1, 4),
    least=st.integers(1, 5),
    spread=st.integers(0, 4),
)
def test_the_best_path_the_margin_and_what_each_word_is_worth(seed, size, width, least, spread):
    """Confidences agree with the enumeration of all paths."""
    lattice, least = random_lattice(random.Random(seed), 1, size, width), min(least, size)
    most = min(least + spread, size)
    window = np.array([least]), np.array([most])
    every = [one for one in all_paths(lattice, 0, least, most) if one[0] > -np.inf]
    paths = lattice.paths(*window, 2)
    if not every:
        assert paths.lengths.tolist() == [[0, 0]]
        return
    score, best = max(every)
    assert paths.scores[0, 0].item() == pytest.approx(score, abs=1e-12)
    assert words(paths) == list(best)
    assert lattice.paths(*window).scores.item() == pytest.approx(score, abs=1e-12)
    second = max((s for s, p in every if p != best), default=-np.inf)
    assert paths.scores[0, 1].item() == pytest.approx(second, abs=1e-12)
    worth = confidences(lattice, *window, paths)
    for slot, taken in enumerate(best):
        others = max((s for s, p in every if len(p) <= slot or p[slot] != taken), default=-np.inf)
        assert worth[0, slot].item() == pytest.approx(score - others, abs=1e-12)
    assert bool(np.isinf(worth[0, len(best) :]).all())


def test_hypotheses_tell_of_their_words():
    ids = np.array([[[11, 12], [13, 14], [15, 16]]])
    slots = Slots(ids, np.zeros(ids.shape), np.array([1]), np.array([3]))
    search = LatticeSearch(n_best=2, confidences=True)
    (ranked,) = path_hypotheses(BY_HAND, slots, found(BY_HAND, 1, 3, 2), search)
    assert [one.ids for one in ranked] == [[12, 13], [11, 14, 15]]
    assert ranked[0].statistics["margin"] == pytest.approx(0.1)
    # Without b first: "a b a" (-1.7); without a second: "a b a", too.
    assert ranked[0].statistics["confidences"] == pytest.approx([0.1, 0.1])
    nothing = Lattice(*(np.full_like(part, -np.inf) for part in BY_HAND))
    ((one,),) = path_hypotheses(nothing, slots, found(nothing, 1, 3), LatticeSearch())
    assert (one.ids, one.score) == ([], float("-inf"))
