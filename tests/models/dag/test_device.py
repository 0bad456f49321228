"""Graphs that are searched on their device: the same results as on the CPU, without waiting for the host."""

import dataclasses
from contextlib import nullcontext

import pytest
import torch

from fewstep.config.options import Shortlist
from fewstep.families.dag.config import DagSearch
from models.common.device_batch import Size
from models.common.inference import inference_mode
from models.common.precision import Precisions
from models.dag.device import DeviceSearch, _Program
from tests.models.common.device_alone import DeviceAlone
from tests.models.dag.test_decode import decoder, outputs, sources

SEARCHES = [
    DagSearch(strategy="greedy", deduplicate=False),
    DagSearch(strategy="lookahead", token_weight=0.7, deduplicate=False),
    DagSearch(strategy="viterbi", length_penalty=1.2, deduplicate=False),
    DagSearch(strategy="joint-viterbi", token_weight=0.6, deduplicate=False),
]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("options", [{}, {"graph_size": "fixed", "graph_factor": 9.0}, {"norm": "post", "positions": "learned"}])
def test_programs_find_the_hypotheses_of_the_cpu(search, options):
    one = decoder(**options)
    device = DeviceSearch(Precisions(one.model, frozen=True), None)
    for count in (9, 3, 1):
        rows = sources(count)
        with inference_mode(one.model):
            found = device.decode(one.prepare(rows), search).hypotheses()
        for (hypothesis,), (expected,) in zip(found, outputs(one, rows, dataclasses.replace(search, engine="torch")), strict=True):
            assert hypothesis.ids == expected.ids
            assert hypothesis.score == pytest.approx(expected.score, abs=1e-4)
            assert hypothesis.steps == expected.steps
            assert list(hypothesis.statistics) == list(expected.statistics)
            assert list(hypothesis.statistics.values()) == pytest.approx(list(expected.statistics.values()), abs=1e-4)


def test_predicted_sizes_have_no_program():
    predicted = decoder(graph_size="predicted", graph_factor=4.0)
    device = DeviceSearch(Precisions(predicted.model, frozen=True), None)
    assert not device.supports(SEARCHES[0], predicted.model.config)
    assert all(device.supports(search, decoder().model.config) for search in SEARCHES)
    assert not device.supports(DagSearch(strategy="beam"), decoder().model.config)


@pytest.mark.parametrize("search", SEARCHES)
def test_best_paths_of_a_band_are_searched_on_the_host(search):
    """A program would hold all pairs of vertices in float64, where the host holds the band."""
    model = decoder(max_transition_length=6).model
    device = DeviceSearch(Precisions(model, frozen=True), None)
    assert device.supports(search, model.config) == ("viterbi" not in search.strategy)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("listed", [False, True])
def test_a_search_does_not_wait_for_the_host(search, listed, monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # the device meta has no automatic precision
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9) if listed else None)
    with torch.device("meta"):
        model = decoder().model.eval()
    with torch.no_grad():
        program = _Program(model, search, Size(sentences=4, source=16, slots=32))
        with DeviceAlone() as calls:
            program.search()
    assert program.found is not None
    assert program.found.ids.shape == (4, 30 if "viterbi" in search.strategy else 32)
    assert calls.calls < (900 if "viterbi" in search.strategy else 500)
