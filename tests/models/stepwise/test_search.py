"""Searches of torch in buffers of fixed shapes: native code finds the same, and no step waits for the host."""

import dataclasses
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.options import NucleusSampling, OutputLimits, Shortlist
from fewstep.decoding import decode_batch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.orders import ORDERS
from fewstep.sources import max_output_lengths
from models.common.buffers import Size, empty_inputs
from models.common.precision import Precisions
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.search.beam import Beam
from models.stepwise.search.greedy import Greedy
from models.stepwise.search.run import TorchDecoder, with_numbers
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu
from tests.models.stepwise.test_decode import beams, network, sources

NEAR = 1e-4
SHORT = {"output_limits": OutputLimits(max_extra_tokens=9)}
SAMPLES = StepwiseSearch(strategy="sample", n_best=3, sampling=NucleusSampling(top_p=0.9), **SHORT)
GREEDY = StepwiseSearch(**SHORT)
SEARCHES = [
    GREEDY,
    dataclasses.replace(GREEDY, output_limits=OutputLimits(min_tokens=4, max_extra_tokens=3)),
    beams(1, **SHORT),
    beams(4, n_best=3, **SHORT),
    beams(3, n_best=2, length_penalty=0.6, length_penalty_form="gnmt", **SHORT),
    beams(4, beam_threshold=1.0, **SHORT),
    beams(3, output_limits=OutputLimits(max_extra_tokens=0, allow_unknown=True)),
    beams(3, n_best=2, selection="outer", **SHORT),
    beams(3, n_best=2, selection="double-top-k", **SHORT),
]


def compare(model, rows, search, ngram=None):
    """Compare torch, with the buffers of a GPU, with native code."""
    slow, fast = StepwiseDecoder(model, ngram), StepwiseDecoder(model, ngram, frozen=True)
    with buffers_of_a_gpu():
        found = slow.decode(slow.prepare(rows), search)
    for one, other in zip(found, fast.decode(fast.prepare(rows), search), strict=True):
        if min(ranked[0].statistics["margin"] for ranked in (one, other)) < NEAR:
            continue
        assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in other]
        assert [hypothesis.steps for hypothesis in one] == [hypothesis.steps for hypothesis in other]
        assert [hypothesis.score for hypothesis in one] == pytest.approx([hypothesis.score for hypothesis in other], abs=1e-4)
        if ngram is None:
            margins = [[hypothesis.statistics["margin"] for hypothesis in ranked] for ranked in (one, other)]
            assert margins[0] == pytest.approx(margins[1], abs=1e-3)


@pytest.mark.parametrize("order", ORDERS)
@given(seed=st.integers(0, 1000), search=st.sampled_from(SEARCHES), count=st.integers(1, 5))
def test_buffers_of_rounded_sizes_find_what_native_code_finds(order, seed, search, count):
    if search.selection == "double-top-k" and ORDERS[order].step_size > 2:
        search = dataclasses.replace(search, selection="outer")
    compare(network(ORDERS[order], seed=seed), sources(count, seed=seed), search)


@pytest.mark.parametrize("search", [GREEDY, beams(3, n_best=2, **SHORT), SAMPLES])
def test_buffers_serve_batches_of_other_sizes_and_forget_the_last_one(search):
    model = network(ORDERS["interleaved"], seed=2)
    exact = StepwiseDecoder(model)
    with buffers_of_a_gpu():
        rounded = StepwiseDecoder(model)
    for count in (4, 3, 4, 1):
        rows = sources(count, seed=count)
        expected = exact.decode(exact.prepare(rows), search)
        with buffers_of_a_gpu():
            found = rounded.decode(rounded.prepare(rows), search)
        assert [[one.ids for one in ranked] for ranked in found] == [[one.ids for one in ranked] for ranked in expected]


def test_start_vectors_that_training_changes_are_read_again():
    model = network(dataclasses.replace(ORDERS["interleaved"], start="shared"), seed=2, start="shared")
    with buffers_of_a_gpu():
        kept = StepwiseDecoder(model)
        before = kept.decode(kept.prepare([[7, 8]]), GREEDY)
        with torch.no_grad():
            model.start.table.weight.add_(3.0)
        fresh = StepwiseDecoder(model)
        after = kept.decode(kept.prepare([[7, 8]]), GREEDY)
        assert after == fresh.decode(fresh.prepare([[7, 8]]), GREEDY)
    assert after != before


BART = {"norm": "post", "embedding_norm": True, "begin_vectors": True, "logits_bias": True, "positions": "learned"}
KINDS = [
    ("greedy", GREEDY, 330),
    ("beam", beams(3), 900),
    ("outer", beams(3, selection="outer"), 900),
    ("double-top-k", beams(3, selection="double-top-k"), 900),
    ("sample", SAMPLES, 340),
]


@pytest.mark.parametrize("order", ["autoregressive", "interleaved-sa", "double-token", "independent-directions", "bart"])
@pytest.mark.parametrize(("name", "search", "operations"), KINDS, ids=[name for name, *_ in KINDS])
def test_neither_start_nor_step_waits_for_the_host(order, name, search, operations):
    if name == "double-top-k" and order != "bart" and ORDERS[order].step_size > 2:
        pytest.skip("double-top-k is for steps of two")
    listed = dataclasses.replace(search, shortlist=Shortlist(tokens=9))
    with torch.device("meta"):
        model = network(**BART) if order == "bart" else network(ORDERS[order])
    size, device = Size(sentences=4, source=16, slots=32), torch.device("meta")
    with torch.no_grad():
        batch = with_numbers(empty_inputs(size, model.sizes.target, device, shortlists=True), size, search.n_best)
        made = Beam(model, listed, size) if search.strategy == "beam" else Greedy(model, listed, size, batch)
        with DeviceAlone():
            made.start(batch)
        with DeviceAlone() as calls:
            made.step()
    assert calls.calls < operations


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("order", ["autoregressive", "interleaved-sa", "bart"])
def test_half_precision_is_near_float32(precision, order):
    model, rows = network(**BART) if order == "bart" else network(ORDERS[order], seed=4), sources(12)
    decoder, engine = StepwiseDecoder(model), TorchDecoder(model, None, None, frozen=True)
    prepared = decoder.prepare(rows)
    limits = max_output_lengths(GREEDY.output_limits, prepared.lengths, model.config.max_positions)
    half, whole = (
        engine.search(prepared, dataclasses.replace(GREEDY, precision=name), limits, 1) for name in (precision, "float32")
    )
    equal = [(one, other) for (one,), (other,) in zip(half, whole, strict=True) if one.ids == other.ids]
    assert len(equal) >= 8
    assert [one.score for one, _ in equal] == pytest.approx([other.score for _, other in equal], abs=0.3)
    assert [one.score for one, _ in equal] != [other.score for _, other in equal]


def test_half_precision_needs_a_gpu_and_weights_that_stay():
    model = network()
    assert [problem.got for problem in Precisions(model, frozen=True).problems("float16")] == ["float16"]
    with torch.device("meta"):
        model = network()
    assert not list(Precisions(model, frozen=True).problems("float16"))
    assert len(list(Precisions(model, frozen=True).problems("int8"))) == 1
    assert len(list(Precisions(model, frozen=False).problems("float16"))) == 1


@pytest.mark.parametrize("shapes", [nullcontext, buffers_of_a_gpu])
def test_a_batch_that_does_not_fit_is_decoded_in_halves(monkeypatch, shapes):
    with shapes():
        decoder = StepwiseDecoder(network(seed=3))
        rows, counts, start = sources(8), [], Greedy.start
        expected = decoder.decode(decoder.prepare(rows), GREEDY)

        def limited(search, inputs):
            counts.append(len(inputs.source))
            if len(inputs.source) > 2:
                raise torch.OutOfMemoryError("no memory")
            start(search, inputs)

        monkeypatch.setattr(Greedy, "start", limited)
        found = decode_batch(decoder, rows, GREEDY)
    assert [ranked[0].ids for ranked in found] == [ranked[0].ids for ranked in expected]
    assert counts == [8, 4, 2, 2, 4, 2, 2]
