"""Searches in buffers of fixed shapes: the same results as those with shrinking batches, and no step that waits for the host."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewstep.config.options import OutputLimits, Shortlist
from fewstep.decoding import decode_batch
from fewstep.families.stepwise.orders import ORDERS
from fewstep.sources import max_output_lengths
from models.common.device_batch import Size, buffers
from models.common.inference import inference_mode
from models.common.precision import Precisions
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.device.beam import Beam
from models.stepwise.device.greedy import Greedy
from models.stepwise.device.run import DeviceSearch
from models.stepwise.ensemble import Ensemble
from tests.models.common.device_alone import DeviceAlone
from tests.models.stepwise.test_decode import GREEDY, beams, network, sources
from tests.models.stepwise.test_native import LEXICON

SEARCHES = [
    GREEDY,
    dataclasses.replace(GREEDY, output_limits=OutputLimits(min_tokens=4, max_extra_tokens=3)),
    beams(1),
    beams(4, n_best=3),
    beams(3, n_best=2, length_penalty=0.6, length_penalty_form="gnmt"),
    beams(4, beam_threshold=1.0),
    beams(3, output_limits=OutputLimits(max_extra_tokens=0, allow_unknown=True)),
]


def compare(model, rows, search, lexicon=None, ngram=None):
    """Compare a program of fixed shapes with the search of shrinking batches."""
    decoder, device = StepwiseDecoder(model, ngram, lexicon=lexicon), DeviceSearch(Precisions(model, frozen=True), lexicon, ngram)
    assert device.supports(search)
    prepared = decoder.prepare(rows)
    limits = max_output_lengths(search.output_limits, prepared.lengths, model.config.max_positions)
    with inference_mode(model):
        found = device.decode(prepared, search, limits)
    expected = decoder.engines["torch"].decode(prepared, search, limits, 1)
    for one, other in zip(found, expected, strict=True):
        assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in other]
        assert [hypothesis.steps for hypothesis in one] == [hypothesis.steps for hypothesis in other]
        assert [hypothesis.score for hypothesis in one] == pytest.approx([hypothesis.score for hypothesis in other], abs=1e-4)


@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), search=st.sampled_from(SEARCHES), count=st.integers(1, 5))
def test_a_search_finds_the_hypotheses_of_shrinking_batches(order, seed, search, count):
    compare(network(ORDERS[order], seed=seed), sources(count, seed=seed), search)


@pytest.mark.parametrize("search", [GREEDY, beams(3, n_best=2)])
def test_an_ensemble_and_shortlists_have_programs_too(search):
    rows = sources(5, vocabulary=19, seed=3)
    listed = dataclasses.replace(search, shortlist=Shortlist(tokens=9, links=2))
    compare(Ensemble([network(seed=seed) for seed in range(2)]), sources(4), search)
    compare(network(ORDERS["interleaved"], vocabulary=19), rows, listed, LEXICON)


def test_greedy_margins_are_those_of_shrinking_batches():
    model, rows = network(seed=5), sources(6)
    decoder = StepwiseDecoder(model)
    prepared = decoder.prepare(rows)
    limits = max_output_lengths(GREEDY.output_limits, prepared.lengths, model.config.max_positions)
    with inference_mode(model):
        found = DeviceSearch(Precisions(model, frozen=True), None).decode(prepared, GREEDY, limits)
    expected = decoder.engines["torch"].decode(prepared, GREEDY, limits, 1)
    margins = [[hypothesis.statistics["margin"] for (hypothesis,) in ranked] for ranked in (found, expected)]
    assert margins[0] == pytest.approx(margins[1], abs=1e-4)


def test_a_program_serves_batches_of_other_sizes_and_forgets_the_last_one():
    model = network(ORDERS["interleaved"], seed=2)
    decoder, device = StepwiseDecoder(model), DeviceSearch(Precisions(model, frozen=True), None)
    for search in (GREEDY, beams(3)):
        for count in (4, 3, 4, 1):
            prepared = decoder.prepare(sources(count, seed=count))
            limits = max_output_lengths(search.output_limits, prepared.lengths, model.config.max_positions)
            with inference_mode(model):
                found = device.decode(prepared, search, limits)
            expected = decoder.engines["torch"].decode(prepared, search, limits, 1)
            assert [ranked[0].ids for ranked in found] == [ranked[0].ids for ranked in expected]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("kind", "search", "operations"), [(Greedy, GREEDY, 330), (Beam, beams(3), 900)])
def test_neither_start_nor_step_waits_for_the_host(order, kind, search, operations):
    listed = dataclasses.replace(search, shortlist=Shortlist(tokens=9))
    with torch.device("meta"):
        model = network(ORDERS[order])
    size, device = Size(sentences=4, source=16, slots=32), torch.device("meta")
    with torch.no_grad():
        program, batch = kind(model, listed, size), buffers(size, model.sizes.target, device, shortlists=True)
        with DeviceAlone():
            program.start(batch)
        with DeviceAlone() as calls:
            program.step()
    assert calls.calls < operations


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("order", ["autoregressive", "interleaved-sa"])
def test_half_precision_is_near_float32(precision, order):
    model, rows = network(ORDERS[order], seed=4), sources(12)
    decoder, device = StepwiseDecoder(model), DeviceSearch(Precisions(model, frozen=True), None)
    prepared = decoder.prepare(rows)
    limits = max_output_lengths(GREEDY.output_limits, prepared.lengths, model.config.max_positions)
    with inference_mode(model):
        half, whole = (
            device.decode(prepared, dataclasses.replace(GREEDY, precision=name), limits) for name in (precision, "float32")
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


def test_a_batch_that_does_not_fit_is_decoded_in_halves(monkeypatch):
    model, rows = network(seed=3), sources(8)
    decoder = StepwiseDecoder(model)
    device, sizes, prepare = DeviceSearch(Precisions(model, frozen=True), None), [], Greedy.start

    def start(program, inputs):
        sizes.append(len(inputs.source))
        if len(inputs.source) > 2:
            raise torch.OutOfMemoryError("no memory")
        prepare(program, inputs)

    def decode(prepared, search, threads=None):
        limits = max_output_lengths(search.output_limits, prepared.lengths, model.config.max_positions)
        with inference_mode(model):
            return device.decode(prepared, search, limits)

    expected = decode(decoder.prepare(rows), GREEDY)
    monkeypatch.setattr(Greedy, "start", start)
    monkeypatch.setattr(decoder, "decode", decode)
    found = decode_batch(decoder, rows, GREEDY)
    assert [ranked[0].ids for ranked in found] == [ranked[0].ids for ranked in expected]
    assert sizes == [8, 4, 2, 2, 4, 2, 2]
