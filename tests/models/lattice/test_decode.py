"""Decoding end to end: candidates, the path found, and bad input."""

import dataclasses
import itertools
import shutil
from functools import partial

import numpy as np
import pytest
import torch

from fewstep import CandidateOptions, CandidateTables, lattice_candidates
from fewstep.families.lattice.config import LatticeSearch
from fewstep.system.format import BundleError
from fewstep.system.parts import check_tables
from fewstep.translation import Hypothesis
from fewstep.vocabulary import UNK
from models.common.buffers import Size
from models.lattice.decode import LatticeDecoder
from models.lattice.run import MAX_ROWS, LatticeRunner, Shape, TorchDecoder
from models.lattice.tables import Scorers, bigram_tables
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu
from tests.models.lattice.made import SIZE, counted, network, usual_pairs

frozen = partial(LatticeDecoder, frozen=True)
"""A decoder of finished networks."""

SOURCES = [[7, 8, 9], [12], [16, 15, 14, 13, 12, 11], [9, 9], [10, 7, 12, 8]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return counted(tmp_path_factory.mktemp("tables") / "tables.bin", usual_pairs())


def outputs(decoder, sources=SOURCES, **search):
    chosen = LatticeSearch(**{"candidates": 4, **search})
    return decoder.decode(decoder.prepare(sources, chosen), chosen)


def bigram_score(model, source, words):
    (score,) = LatticeDecoder(model).score([source], [words])
    return score


def test_the_best_path_is_the_likeliest_text_that_candidates_and_window_allow(tables):
    model = network()
    search = LatticeSearch(candidates=3, length_window=1)
    for source, (best,) in zip(SOURCES, outputs(LatticeDecoder(model, tables), candidates=3, length_window=1), strict=True):
        if len(source) > 4:
            continue
        least, most = tables.length_range(len(source), search.length_window)
        ids = lattice_candidates(tables, [source], [len(source)], options=CandidateOptions(candidates=3, length_window=1)).token_ids
        columns = [[int(word) for word in slot if word >= 0] for slot in ids[0]]
        texts = [text for length in range(least, most + 1) for text in itertools.product(*columns[:length])]
        decoder = LatticeDecoder(model)
        scores = decoder.score([source] * len(texts), texts)
        assert best.score == pytest.approx(max(scores), abs=1e-4)
        assert bigram_score(model, source, best.ids) == pytest.approx(best.score, abs=1e-4)
        assert (best.steps, least <= len(best.ids) <= most) == (1, True)


@pytest.mark.parametrize("search", [{}, {"normalizer": "local"}, {"normalizer": "union", "n_best": 3}, {"strategy": "lookup"}])
def test_a_sentence_is_decoded_alike_in_any_company(tables, search, monkeypatch):
    decoder = LatticeDecoder(network(), tables)
    together = outputs(decoder, **search)
    monkeypatch.setattr("models.lattice.run.CPU_ROWS", 40)
    parts = outputs(decoder, **search)
    alone = [outputs(decoder, [source], **search)[0] for source in SOURCES]
    for one, other, third in zip(together, parts, alone, strict=True):
        assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in other]
        assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in third]
        assert [h.score for h in one] == pytest.approx([h.score for h in third], abs=1e-4)


def test_tables_of_bigrams_change_nothing(tables):
    model = network(decoder_layers=2)
    plain, loaded = LatticeDecoder(model, tables), LatticeDecoder(model, tables, bigram_tables(model))
    for one, other in zip(outputs(plain, n_best=2), outputs(loaded, n_best=2), strict=True):
        assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in other]


def test_what_was_looked_up_for_another_search_is_looked_up_again(tables):
    decoder = LatticeDecoder(network(), tables)
    wide = LatticeSearch(candidates=8)
    expected = decoder.decode(decoder.prepare(SOURCES, wide), wide)
    for other in (None, LatticeSearch(candidates=1, length_window=0), LatticeSearch(strategy="lookup")):
        assert decoder.decode(decoder.prepare(SOURCES, other), wide) == expected


def test_one_candidate_without_the_network_is_the_first_of_each_slot(tables):
    found = outputs(LatticeDecoder(network(), tables), strategy="lookup")
    for source, (one,) in zip(SOURCES, found, strict=True):
        words, _ = tables.length_range(len(source), 0)
        single = outputs(LatticeDecoder(network(), tables), [source], candidates=1, length_window=0)[0][0]
        assert (one.ids, one.steps) == (single.ids, 0)
        assert len(one.ids) == words


def test_margins_are_those_of_the_two_best(tables):
    for ranked in outputs(LatticeDecoder(network(), tables), n_best=2, confidences=True):
        assert ranked[0].statistics["margin"] == pytest.approx(ranked[0].score - ranked[1].score, abs=1e-4)
        assert len(ranked[0].statistics["confidences"]) == len(ranked[0].ids)
        assert min(ranked[0].statistics["confidences"]) >= ranked[0].statistics["margin"] - 1e-4


def test_an_empty_source_has_an_empty_output(tables):
    decoder = LatticeDecoder(network(), tables)
    for search in ({}, {"normalizer": "local"}, {"strategy": "lookup"}):
        found = outputs(decoder, [[], [7, 8], []], **search)
        assert [found[row][0].ids for row in (0, 2)] == [[], []]
        assert len(found[1][0].ids) > 0
    assert outputs(decoder, [[]]) == [[Hypothesis([], 0.0, 0)]]
    assert outputs(decoder, []) == []


def test_words_that_were_never_linked_end_the_path_before_them(tmp_path):
    """Word 9 was never linked: its slots have no candidate. The path ends before them, where one does."""
    tables = counted(tmp_path / "tables.bin", [([7, 8], [7, 8], [0, 1]), ([8, 7], [8, 7], [0, 1])] * 5)
    decoder = LatticeDecoder(network(), tables)
    (first,), (prefix,), (whole,) = outputs(decoder, [[9, 9], [7, 9], [7, 8]], length_window=0)
    assert (first.ids, first.score) == ([], float("-inf"))
    assert prefix.ids == [7]
    assert len(whole.ids) == 2
    assert prefix.score == pytest.approx(bigram_score(decoder.model, [7, 9], [7]), abs=1e-4)
    assert [one.ids for (one,) in outputs(decoder, [[9, 9], [7, 9]], strategy="lookup")] == [[], [7]]


def test_fewer_candidates_than_were_asked_for_change_nothing(tables):
    decoder = LatticeDecoder(network(), tables)
    every = [one.ids for (one,) in outputs(decoder, candidates=SIZE)]
    assert [one.ids for (one,) in outputs(decoder, candidates=500)] == every


def test_a_source_longer_than_any_that_was_counted_is_translated(tables):
    source = [7 + place % 10 for place in range(25)]
    ((found,),) = outputs(LatticeDecoder(network(), tables), [source])
    least, most = tables.length_range(25, 3)
    assert least <= len(found.ids) <= most


@pytest.mark.parametrize("kind", [LatticeDecoder, frozen])
@pytest.mark.parametrize("normalizer", ["full", "union", "local", "selfnorm"])
def test_no_output_is_longer_than_there_are_positions_for(tmp_path, kind, normalizer):
    """The line predicts 62 words for the longest source; the network writes at most 31, and ends no other sentence with it."""
    pairs = [([7, 8], [7, 7, 8, 8], [0, 0, 1, 1]), ([8], [8, 8], [0, 0])] * 9
    decoder = kind(network(normalizer_penalty=0.1), counted(tmp_path / "tables.bin", pairs))
    sources = [[7 + place % 2 for place in range(31)], [7, 8]]
    long, short = outputs(decoder, sources, normalizer=normalizer, token_bonus=20.0)
    assert len(long[0].ids) == 31
    assert long[0].score > float("-inf")
    assert [one.ids for one in short] == [
        one.ids for one in outputs(decoder, sources[1:], normalizer=normalizer, token_bonus=20.0)[0]
    ]
    assert len(outputs(decoder, sources, length_window=200, normalizer=normalizer)[1][0].ids) <= 31
    assert len(outputs(decoder, sources, strategy="lookup")[0][0].ids) == 31


def test_outputs_hold_no_reserved_token(tables):
    model = network()
    with torch.no_grad():
        model.target_embedding.weight[:7] *= 5
    assert all(token > UNK for (one,) in outputs(LatticeDecoder(model, tables)) for token in one.ids)


@pytest.mark.parametrize(
    ("sources", "search", "problem"),
    [
        ([[7] * 32], {}, "expected at most 31 tokens, got 32"),
        ([[7]], {"strategy": "lookup", "n_best": 2}, "n_best: expected 1 with lookup"),
    ],
)
def test_what_cannot_be_decoded_is_named(tables, sources, search, problem):
    with pytest.raises(ValueError, match=problem):
        outputs(LatticeDecoder(network(), tables), sources, **search)


def test_a_decoder_without_tables_scores_but_does_not_decode():
    decoder = LatticeDecoder(network())
    assert len(decoder.score([[7]], [[8]])) == 1
    with pytest.raises(ValueError, match="expected candidate tables to decode with, got none"):
        outputs(decoder)


def test_tables_of_other_vocabularies_and_alignments_are_refused(tables, tmp_path):
    check_tables(tables, SIZE, SIZE, tables.summary.links.hex())
    with pytest.raises(BundleError, match="expected candidate tables of 17 source and 18 target pieces"):
        check_tables(tables, SIZE, SIZE + 1)
    other = counted(tmp_path / "other.bin", usual_pairs(seed=2))
    with pytest.raises(BundleError, match="expected candidate tables of the links"):
        check_tables(other, SIZE, SIZE, tables.summary.links.hex())
    shutil.copy(tables.path, tmp_path / "cut.bin")
    with (tmp_path / "cut.bin").open("r+b") as file:
        file.truncate(tables.path.stat().st_size - 9)
    with pytest.raises(ValueError, match=r"cut\.bin"):
        CandidateTables.load(tmp_path / "cut.bin")


def test_a_living_network_is_left_in_its_mode(tables):
    model = network(dropout=0.5).train()
    decoder = LatticeDecoder(model, tables)
    first = outputs(decoder)
    assert first == outputs(decoder)
    assert model.training
    assert not any(parameter.grad is not None for parameter in model.parameters())


# ---- lattices that are scored in buffers of rounded sizes: the paths of exact ones, without waiting for the host


CPU = torch.device("cpu")
SEARCHES = [
    LatticeSearch(candidates=5),
    LatticeSearch(candidates=5, normalizer="local", count_weight=0.4, token_bonus=0.2),
    LatticeSearch(candidates=3, normalizer="selfnorm", length_window=0),
]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("options", [{}, {"decoder_layers": 2, "norm": "post", "positions": "learned"}])
def test_rounded_buffers_find_the_paths_of_exact_ones(search, options, tables):
    """They serve batches of several sizes and forget the one before."""
    model = network(**options)
    decoder, exact = LatticeDecoder(model, tables), TorchDecoder(model, tables, bigram_tables(model))
    with buffers_of_a_gpu():
        rounded = TorchDecoder(model, tables, bigram_tables(model))
    rows = [source for source, _, _ in usual_pairs(seed=5, count=24)]
    for batch in (rows[:7], rows[7:9], rows[9:10], [*rows[10:16], []], rows[17:]):
        prepared = decoder.looked_up(decoder.prepare(batch), search)
        expected = exact.search(prepared, search, 1)
        with buffers_of_a_gpu():
            assert rounded.has_fixed_shape(search, prepared.slots, CPU)
            found = rounded.search(prepared, search, 1)
        for (one, *_), (other, *_) in zip(found, expected, strict=True):
            assert one.ids == other.ids
            assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("options", [{}, {"decoder_layers": 2, "norm": "post", "positions": "learned"}])
def test_half_precision_is_near_float32(precision, options, tables):
    model = network(**options)
    decoder, engine = LatticeDecoder(model, tables), TorchDecoder(model, tables, bigram_tables(model))
    prepared = decoder.looked_up(decoder.prepare([source for source, _, _ in usual_pairs(seed=5, count=16)]), SEARCHES[0])
    half, whole = (
        engine.lattice(prepared.ids, prepared.lengths, prepared.slots, dataclasses.replace(SEARCHES[0], precision=name), 1).scores
        for name in (precision, "float32")
    )
    assert {part.dtype for part in half} == {torch.float32}
    for one, other in zip(half, whole, strict=True):
        real = other > -torch.inf
        assert torch.equal(one > -torch.inf, real)
        assert 0 < (one - other)[real].abs().max() < 0.15


def test_half_precision_needs_a_gpu_and_weights_that_stay():
    model = network()
    assert [problem.got for problem in Scorers(model, bigram_tables(model)).problems("float16")] == ["float16"]
    model = model.to("meta")
    assert not list(Scorers(model, bigram_tables(model)).problems("float16"))
    assert len(list(Scorers(model, bigram_tables(model)).problems("int8"))) == 1
    assert len(list(Scorers(model, None).problems("float16"))) == 1


def test_lattices_whose_shapes_depend_on_values_have_none_that_are_fixed(tables):
    model = network()
    decoder, engine = LatticeDecoder(model, tables), TorchDecoder(model, tables, bigram_tables(model))
    prepared = decoder.looked_up(decoder.prepare([[7, 8, 9]]), SEARCHES[0])
    many = prepared.slots._replace(token_ids=np.zeros((1, 1, MAX_ROWS + 1), dtype=np.int64))
    assert not engine.has_fixed_shape(SEARCHES[0], prepared.slots, CPU)
    with buffers_of_a_gpu():
        assert engine.has_fixed_shape(SEARCHES[0], prepared.slots, CPU)
        assert not engine.has_fixed_shape(LatticeSearch(normalizer="union"), prepared.slots, CPU)
        assert not engine.has_fixed_shape(LatticeSearch(candidate_threshold=1.0), prepared.slots, CPU)
        assert not TorchDecoder(model, tables, None).has_fixed_shape(SEARCHES[0], prepared.slots, CPU)
        assert not engine.has_fixed_shape(SEARCHES[0], many, CPU)


@pytest.mark.parametrize("search", SEARCHES)
def test_scoring_does_not_wait_for_the_host(search):
    model = network(decoder_layers=2).to("meta")
    with torch.no_grad():
        runner = LatticeRunner(model, bigram_tables(model), search, Shape(Size(sentences=4, source=16, slots=8), 5))
        with DeviceAlone() as calls:
            runner.score()
    assert runner.scores is not None
    assert runner.scores.edges.shape == (4, 7, 5, 5)
    assert calls.calls < 320
