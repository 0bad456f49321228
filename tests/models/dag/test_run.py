"""Graphs that are searched in buffers of rounded sizes: the results of exact ones, without waiting for the host."""

import dataclasses
from contextlib import nullcontext

import pytest
import torch

from fewstep.config.options import Shortlist
from fewstep.families.dag.config import DagSearch
from models.common.buffers import Size
from models.dag.run import GraphRunner, TorchDecoder, finds_best_path
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu
from tests.models.dag.test_decode import decoder, outputs, sources

SEARCHES = [
    DagSearch(strategy="greedy", deduplicate=False),
    DagSearch(strategy="lookahead", token_weight=0.7, deduplicate=False),
    DagSearch(strategy="viterbi", length_penalty=1.2, deduplicate=False),
    DagSearch(strategy="joint-viterbi", token_weight=0.6, deduplicate=False),
]


@pytest.mark.parametrize("search", [*SEARCHES, DagSearch(strategy="beam", beam_size=3)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"graph_size": "fixed", "graph_factor": 9.0},
        {"norm": "post", "positions": "learned"},
        {"graph_size": "predicted", "graph_factor": 4.0},
    ],
)
def test_rounded_buffers_find_the_hypotheses_of_exact_ones(search, options):
    """Best paths are those of the runtime's kernel, which searches those of exact buffers."""
    one = decoder(**options)
    with buffers_of_a_gpu():
        rounded = TorchDecoder(one.model, None, None)
    for count in (9, 3, 1):
        rows = sources(count)
        with buffers_of_a_gpu():
            found = rounded.search(one.prepare(rows), search, 1)
        for (hypothesis,), (expected,) in zip(found, outputs(one, rows, dataclasses.replace(search, engine="torch")), strict=True):
            assert hypothesis.ids == expected.ids
            assert hypothesis.score == pytest.approx(expected.score, abs=1e-4)
            assert hypothesis.steps == expected.steps
            assert list(hypothesis.statistics) == list(expected.statistics)
            assert list(hypothesis.statistics.values()) == pytest.approx(list(expected.statistics.values()), abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES)
def test_best_paths_of_a_band_are_searched_on_the_host(search):
    """The device would hold all pairs of vertices in float64, where the host holds the band."""
    whole, band = (decoder(**changes).model.config for changes in ({}, {"max_transition_length": 6}))
    assert finds_best_path(search, whole, torch.device("cuda")) == ("viterbi" in search.strategy)
    assert not finds_best_path(search, band, torch.device("cuda"))
    assert not finds_best_path(search, whole, torch.device("cpu"))


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("listed", [False, True])
def test_a_search_does_not_wait_for_the_host(search, listed, monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # the device meta has no automatic precision
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9) if listed else None)
    with torch.device("meta"):
        model = decoder().model.eval()
    with torch.no_grad():
        runner = GraphRunner(model, search, Size(sentences=4, source=16, slots=1), 0, False)
        runner._powers[32] = torch.empty(30, dtype=torch.float64, device="meta")
        with DeviceAlone() as calls:
            runner.encode()
            runner.search(32)
    assert runner.found[32].ids.shape == (4, 30 if "viterbi" in search.strategy else 32)
    assert calls.calls < (900 if "viterbi" in search.strategy else 500)
