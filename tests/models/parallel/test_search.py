"""Slots that are ranked and filled in buffers of fixed shapes: the same tokens in rounded ones, without waiting for the host."""

import dataclasses

import numpy as np
import pytest
import torch

from fewstep.config.options import Shortlist
from fewstep.families.parallel.config import ParallelSearch
from models.common.buffers import Size
from models.common.precision import Precisions
from models.parallel.decode import ParallelDecoder
from models.parallel.search import FillingRunner, RankingRunner, TorchDecoder
from tests.models.aggressive.test_decode import links
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu
from tests.models.parallel.networks import PAIRS, network

SOURCES = [source for source, _ in PAIRS]
GREEDY = ParallelSearch(engine="torch")
MASK_PREDICT = dataclasses.replace(GREEDY, strategy="mask-predict", iterations=4)
LENGTHS = dataclasses.replace(MASK_PREDICT, length_candidates=3, length_choice="around")
BEAM = dataclasses.replace(GREEDY, strategy="prefix-beam", candidates=4, allow_unknown=True)


@pytest.mark.parametrize("search", [GREEDY, BEAM])
@pytest.mark.parametrize("options", [{}, {"slot_input": "gaussian", "upsampling": 2.5}, {"norm": "post", "positions": "learned"}])
def test_rounded_buffers_rank_the_tokens_of_exact_ones(search, options):
    """They serve batches of several sizes and forget the one before."""
    model = network(objective="ctc", **options)
    decoder, exact = ParallelDecoder(model), TorchDecoder(model, None, None)
    with buffers_of_a_gpu():
        rounded = TorchDecoder(model, None, None)
    for rows in (SOURCES, SOURCES[:1], SOURCES[1:]):
        prepared = decoder.prepare(rows)
        with buffers_of_a_gpu():
            found = rounded.ranked(prepared, search)
        expected = exact.ranked(prepared, search)
        assert found.lengths.tolist() == expected.lengths.tolist()
        real = np.arange(found.ids.shape[1]) < found.lengths[:, None]
        assert (found.ids == expected.ids)[real].all()
        np.testing.assert_allclose(found.scores[real], expected.scores[real], atol=1e-4)
        np.testing.assert_allclose(found.blanks[real], expected.blanks[real], atol=1e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("objective", ["ctc", "nat", "cmlm"])
def test_half_precision_is_near_float32(precision, objective, monkeypatch):
    model = network(objective=objective)
    monkeypatch.setattr(Precisions, "problems", lambda self, precision: [])  # this device has no half precision
    decoder = ParallelDecoder(model)
    prepared = decoder.prepare(SOURCES)
    search = dataclasses.replace(GREEDY, strategy="mask-predict" if objective == "cmlm" else "greedy")
    whole, half = (decoder.decode(prepared, dataclasses.replace(search, precision=name)) for name in ("float32", precision))
    equal = [(one, other) for (one,), (other,) in zip(half, whole, strict=True) if one.ids == other.ids]
    assert len(equal) >= len(SOURCES) / 2
    assert [one.score for one, _ in equal] == pytest.approx([other.score for _, other in equal], abs=0.3)
    assert [one.score for one, _ in equal] != [other.score for _, other in equal]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("search", [GREEDY, BEAM])
def test_ranking_does_not_wait_for_the_host(search, listed):
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9) if listed else None)
    model = network(objective="ctc").to("meta")
    with torch.no_grad():
        runner = RankingRunner(model, search, Size(sentences=4, source=16, slots=32))
        with DeviceAlone() as calls:
            runner.rank()
    assert runner.found is not None
    assert runner.found[1].shape == (4, 32, 4 if search.strategy == "prefix-beam" else 1)
    assert calls.calls < 400


@pytest.mark.parametrize(
    ("search", "options"),
    [
        (GREEDY, {}),
        (GREEDY, {"objective": "glat", "slot_input": "soft", "norm": "post", "positions": "learned"}),
        (dataclasses.replace(GREEDY, length_candidates=5, allow_unknown=True), {"length_prediction": "absolute"}),
        (MASK_PREDICT, {"objective": "cmlm"}),
        (LENGTHS, {"objective": "cmlm"}),
        (dataclasses.replace(LENGTHS, shortlist=Shortlist(tokens=5, links=2)), {"objective": "cmlm"}),
    ],
)
def test_rounded_buffers_fill_the_slots_of_exact_ones(search, options):
    """Tokens, certainties and margins, for the same lengths. They serve batches of several sizes and numbers of slots."""
    model = network(**options)
    lexicon = links(model.sizes.target) if search.shortlist else None
    decoder, exact = ParallelDecoder(model, lexicon=lexicon), TorchDecoder(model, None, lexicon)
    with buffers_of_a_gpu():
        rounded = TorchDecoder(model, None, lexicon)
    for rows in (SOURCES, SOURCES[:1], [*SOURCES, [7] * 33], SOURCES[1:]):
        prepared = decoder.prepare(rows)
        with buffers_of_a_gpu():
            found = rounded.filled(prepared, search)
        expected = exact.filled(prepared, search)
        assert found.sentences.tolist() == expected.sentences.tolist()
        assert found.lengths.tolist() == expected.lengths.tolist()
        size = expected.ids.shape[1]
        real = np.arange(size) < found.lengths[:, None]
        assert (found.ids[:, :size] == expected.ids)[real].all()
        np.testing.assert_allclose(found.log_probs[:, :size][real], expected.log_probs[real], atol=1e-4)
        np.testing.assert_allclose(found.margins, expected.margins, atol=1e-4)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(("search", "objective"), [(GREEDY, "nat"), (GREEDY, "cmlm"), (MASK_PREDICT, "cmlm"), (LENGTHS, "cmlm")])
def test_filling_waits_for_the_lengths_alone(search, objective, listed):
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9) if listed else None)
    model = network(objective=objective).to("meta")
    with torch.no_grad():
        runner = FillingRunner(model, search, Size(sentences=4, source=16, slots=1))
        with DeviceAlone() as reading:
            runner.read()
        with DeviceAlone() as writing:
            runner.fill(32)
    assert runner.filled[32].ids.shape == (4 * search.length_candidates, 32)
    assert reading.calls < 150
    assert writing.calls < 350 * (search.iterations if search.strategy == "mask-predict" else 1)
