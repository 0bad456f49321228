"""Slots of CTC that are ranked in buffers of fixed shapes: the same ranks, without waiting for the host."""

import dataclasses

import numpy as np
import pytest
import torch

from fewstep.config.options import Shortlist
from fewstep.families.parallel.config import ParallelSearch
from models.common.device_batch import Size
from models.common.inference import inference_mode
from models.common.precision import Precisions
from models.parallel.decode import ParallelDecoder
from models.parallel.device import DeviceRanking, Program
from tests.models.common.device_alone import DeviceAlone
from tests.models.parallel.networks import PAIRS, network

SOURCES = [source for source, _ in PAIRS]
GREEDY = ParallelSearch(engine="torch")
BEAM = dataclasses.replace(GREEDY, strategy="prefix-beam", candidates=4, allow_unknown=True)


@pytest.mark.parametrize("search", [GREEDY, BEAM])
@pytest.mark.parametrize("options", [{}, {"slot_input": "gaussian", "upsampling": 2.5}, {"norm": "post", "positions": "learned"}])
def test_programs_rank_the_tokens_of_the_host(search, options):
    """One program serves batches of several sizes and forgets the one before."""
    model = network(objective="ctc", **options)
    decoder, device = ParallelDecoder(model), DeviceRanking(Precisions(model, frozen=True), None)
    for rows in (SOURCES, SOURCES[:1], SOURCES[1:]):
        prepared = decoder.prepare(rows)
        with inference_mode(model):
            found = device.ranked(prepared, search)
        expected = decoder.engines["torch"].ranked(prepared, search)
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


def test_predicted_lengths_have_no_program():
    for objective, supported in (("ctc", True), ("ctc-glat", True), ("nat", False), ("cmlm", False)):
        model = network(objective=objective)
        assert DeviceRanking(Precisions(model, frozen=True), None).supports(model.config) == supported


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("search", [GREEDY, BEAM])
def test_ranking_does_not_wait_for_the_host(search, listed):
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9) if listed else None)
    model = network(objective="ctc").to("meta")
    with torch.no_grad():
        program = Program(model, search, Size(sentences=4, source=16, slots=32))
        with DeviceAlone() as calls:
            program.rank()
    assert program.found is not None
    assert program.found[1].shape == (4, 32, 4 if search.strategy == "prefix-beam" else 1)
    assert calls.calls < 400
