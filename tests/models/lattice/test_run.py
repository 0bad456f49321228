"""Lattices that are scored in buffers of rounded sizes: the paths of exact ones, without waiting for the host."""

import dataclasses

import numpy as np
import pytest
import torch

from fewstep.families.lattice.config import LatticeSearch
from models.common.buffers import Size
from models.lattice.decode import LatticeDecoder
from models.lattice.run import MAX_ROWS, LatticeRunner, Shape, TorchDecoder
from models.lattice.tables import Scorers, bigram_tables
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu
from tests.models.lattice.made import counted, network, usual_pairs

CPU = torch.device("cpu")
SEARCHES = [
    LatticeSearch(candidates=5),
    LatticeSearch(candidates=5, normalizer="local", count_weight=0.4, token_bonus=0.2),
    LatticeSearch(candidates=3, normalizer="selfnorm", length_window=0),
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return counted(tmp_path_factory.mktemp("tables") / "counts", usual_pairs())


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
