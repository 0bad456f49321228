"""Agreement of kernels and engines on a device with their references on the CPU."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import kernels
from benchmarks.decoding.networks import VOCABULARY, drafter_of, network, sentences, sizes, slot_network
from benchmarks.gpu import data_parallel
from benchmarks.gpu.limits import out_of_time, synchronize
from benchmarks.gpu.training import batch_of, family_loss, train_network
from fewstep.config.network import SIZES
from fewstep.config.options import OutputLimits
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.stepwise.config import StepwiseSearch
from kernels import NgramModel
from kernels.reference import dag as reference
from models.aggressive.decode import AggressiveDecoder
from models.dag.decode import DagDecoder
from models.dag.model import build as build_graph
from models.parallel.decode import ParallelDecoder
from models.stepwise.decode import StepwiseDecoder

NEAR = 1e-3
"""Relative difference that float32 on another device may have."""


def graph_scores(device: str, sentences: int, tokens: int, vertices: int) -> tuple[torch.Tensor, ...]:
    """Return token scores [B,M,L], normalised transitions [B,L,L-1], target lengths and graph lengths [B]."""
    generator = torch.Generator().manual_seed(1)
    scores = (2 * torch.randn(sentences, tokens, vertices, generator=generator) - 6.9).clamp_max(0.0)
    edges = 2 * torch.randn(sentences, vertices, vertices - 1, generator=generator)
    beyond = torch.arange(vertices)[:, None] + 1 + torch.arange(vertices - 1) >= vertices
    edges = edges.masked_fill(beyond, -torch.inf)[:, :-1].log_softmax(2)
    edges = torch.cat((edges, torch.full((sentences, 1, vertices - 1), -torch.inf)), 1)
    lengths = [torch.full((sentences,), length) for length in (tokens, vertices)]
    leaves = [part.to(device).requires_grad_() for part in (scores, edges)]
    return (*leaves, *(part.to(device) for part in lengths))


def graph_loss(device: str, size: str) -> float:
    """Return the largest relative difference of likelihoods and gradients from the recurrence in float64."""
    given = graph_scores(device, 4, 12, 60)
    found = kernels.dag_log_likelihood(*given)
    gradients = torch.autograd.grad(found.sum(), given[:2])
    exact = [part.detach().cpu().double().requires_grad_() for part in given[:2]]
    expected = reference.dag_log_likelihood(*exact, *(part.cpu() for part in given[2:]))
    wanted = torch.autograd.grad(expected.sum(), exact)
    return max(_difference(one, other) for one, other in zip((found, *gradients), (expected, *wanted), strict=True))


def lattice_search(device: str, size: str) -> float:
    """Return the largest relative difference of the scores of best paths; different paths are an error."""
    generator = torch.Generator().manual_seed(1)
    start, edges, exits = (
        torch.randn(shape, generator=generator).log_softmax(-1) for shape in ((5, 16), (5, 11, 16, 16), (5, 12, 16))
    )
    window = torch.full((5,), 3), torch.full((5,), 12)
    expected = kernels.lattice_viterbi(start, edges, exits, *window)
    found = kernels.lattice_viterbi(*(part.to(device) for part in (start, edges, exits, *window)))
    if not torch.equal(found[0].cpu(), expected[0]):
        raise AssertionError("paths: expected those of the CPU, found others")
    return _difference(found[2], expected[2])


def stepwise_search(device: str, size: str) -> float:
    """Return the share of outputs of greedy and beam search that differ from those of the CPU."""
    model = network(size, (1, 1))
    rows = sentences(8, 12, VOCABULARY[size])
    searches = [StepwiseSearch(engine="torch", output_limits=OutputLimits(max_tokens=20))]
    searches.append(replace(searches[0], strategy="beam"))
    expected = [_ids(StepwiseDecoder(model), rows, search) for search in searches]
    decoder = StepwiseDecoder(model.to(device))
    return _different([_ids(decoder, rows, search) for search in searches], expected)


def coupled_slots(device: str, size: str) -> float:
    """Return the share of outputs of searches that couple the slots of a step by bigrams that differ from those of the CPU."""
    model = network(size, (1, 1), "interleaved-sa")
    rows = sentences(8, 12, VOCABULARY[size])
    pieces = [str(piece) for piece in range(VOCABULARY[size])]
    draw = random.Random(1)
    text = [[pieces[int(len(pieces) * draw.random() ** 2)] for _ in range(12)] for _ in range(2000)]
    ngram = NgramModel.estimate(text, order=2, discount_fallback=(0.5, 1.0, 1.5)).for_vocabulary(pieces)
    searches = [StepwiseSearch(engine="torch", ngram_weight=0.5, output_limits=OutputLimits(max_tokens=20))]
    searches.append(replace(searches[0], strategy="beam"))
    expected = [_ids(StepwiseDecoder(model, ngram), rows, search) for search in searches]
    decoder = StepwiseDecoder(model.to(device), ngram)
    return _different([_ids(decoder, rows, search) for search in searches], expected)


def graph_search(device: str, size: str) -> float:
    """Return the share of outputs of searches for one path of a graph that differ from those of the CPU."""
    torch.manual_seed(1)
    shape = {**SIZES[size], "encoder_layers": 1, "decoder_layers": 1}
    model = build_graph(DagConfig(size=size, **shape), sizes(size)).eval()  # type: ignore[arg-type]
    rows = sentences(8, 12, VOCABULARY[size])
    searches = [DagSearch(strategy=name, engine="torch") for name in ("greedy", "lookahead", "viterbi", "joint-viterbi")]
    expected = [_ids(DagDecoder(model), rows, search) for search in searches]
    decoder = DagDecoder(model.to(device))
    return _different([_ids(decoder, rows, search) for search in searches], expected)


def drafts(device: str, size: str) -> float:
    """Return the share of outputs of chains and trees of drafts that differ from those of the CPU."""
    verifier = network(size, (1, 1))
    rows = sentences(8, 12, VOCABULARY[size])
    drafter = drafter_of(verifier, size, "k15 separate", accepted=True)
    limits = OutputLimits(max_tokens=20)
    searches = [AggressiveSearch(tree_nodes=nodes, output_limits=limits) for nodes in (0, 8)]
    expected = [_ids(AggressiveDecoder(drafter, verifier), rows, search) for search in searches]
    decoder = AggressiveDecoder(drafter.to(device), verifier.to(device))
    return _different([_ids(decoder, rows, search) for search in searches], expected)


def slot_search(device: str, size: str) -> float:
    """Return the share of outputs of one-shot decoding, Mask-Predict and CTC that differ from those of the CPU."""
    rows = sentences(8, 12, VOCABULARY[size])
    greedy = ParallelSearch(engine="torch")
    searches = {
        "glat": greedy,
        "cmlm": replace(greedy, strategy="mask-predict", iterations=4, length_candidates=3),
        "ctc-glat": greedy,
    }
    found, expected = [], []
    for objective, search in searches.items():
        model = slot_network(size, objective)
        expected.append(_ids(ParallelDecoder(model), rows, search))
        found.append(_ids(ParallelDecoder(model.to(device)), rows, search))
    return _different(found, expected)


def update(device: str, size: str) -> float:
    """Return the largest relative difference of the gradient of a loss, over families. Nothing is drawn at random, since another
    device would draw other numbers."""
    worst = 0.0
    for family, options in {"stepwise": {}, "dag": {"glancing": "none"}}.items():
        model = train_network(family, size, dropout=0.0, **options)
        batch = batch_of(size, 4, 12)
        expected = _gradient(model, family, batch)
        model.zero_grad(set_to_none=True)
        found = _gradient(model.to(device), family, batch.to(device))
        worst = max(worst, _difference(found, expected))
    return worst


def shared_training(device: str, size: str) -> float:
    """Return the difference of a training on the device from that of two workers on the CPU; the network is tiny."""
    return data_parallel.difference(device)


CHECKS: dict[str, tuple[Callable[[str, str], float], float]] = {
    "graph loss and gradients": (graph_loss, NEAR),
    "lattice search": (lattice_search, NEAR),
    "greedy and beam search": (stepwise_search, 0.15),
    "coupled slots": (coupled_slots, 0.15),
    "graph search": (graph_search, 0.15),
    "draft and verify": (drafts, 0.15),
    "slots": (slot_search, 0.15),
    "gradients of an update": (update, 20 * NEAR),
    "data-parallel training": (shared_training, 20 * NEAR),
}
"""The checks, and the largest difference of each. Random weights have near ties, so that a few outputs may differ."""


def check(name: str, device: str, size: str) -> dict[str, Any]:
    """Return the difference that a check finds, and whether it is small enough."""
    action, most = CHECKS[name]
    difference = action(device, size)
    return {"difference": difference, "passed": difference <= most}


def _gradient(model: torch.nn.Module, family: str, batch: Any) -> torch.Tensor:
    torch.manual_seed(1)
    family_loss(family)(model, batch, 10**9, 0.1).total.backward()
    return torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None])


def _ids(decoder: Any, rows: list[list[int]], search: Any) -> list[list[list[int]]]:
    found = decoder.decode(decoder.prepare(rows), search)
    return [[one.ids for one in ranked] for ranked in found]


def _different(found: list[Any], expected: list[Any]) -> float:
    pairs = [pair for one, other in zip(found, expected, strict=True) for pair in zip(one, other, strict=True)]
    return sum(bool(one != other) for one, other in pairs) / len(pairs)


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    one, other = (part.detach().cpu().double().nan_to_num(neginf=0.0) for part in (found, expected))
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-9))


def loss_times(device: str, shape: tuple[int, int, int], rounds: int, deadline: float) -> dict[str, Any]:
    """Return the milliseconds of value and gradients for [B,M,L], natively and by the recurrence in torch, and of a copy of as many
    bytes as they read and write at least."""
    given = graph_scores(device, *shape)
    sides = {"native": kernels.dag_log_likelihood, "torch": reference.dag_log_likelihood}
    copies = [(part.detach(), torch.empty_like(part)) for part in given[:2]]
    times: dict[str, list[float]] = {name: [] for name in (*sides, "copy")}
    for turn in range(rounds + 1):
        for name in times:
            began = time.perf_counter()
            if name == "copy":
                for source, target in copies:
                    target.copy_(source)
            else:
                torch.autograd.grad(sides[name](*given).sum(), given[:2])
            synchronize(device)
            if turn:
                times[name].append(1000 * (time.perf_counter() - began))
        if turn and out_of_time(deadline):
            break
    return {"shape": shape, "ms": {name: statistics.median(taken) for name, taken in times.items()}, "rounds": times}
