"""Latency and throughput of every family on a device, with random weights."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.decoding.networks import (
    AGREED,
    ORDERS,
    VOCABULARY,
    biased,
    candidates_for,
    drafter_of,
    network,
    sentences,
    sizes,
)
from fewstep.config.network import SIZES
from fewstep.config.options import OutputLimits, Precision
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.stepwise.config import StepwiseSearch
from models.aggressive.decode import AggressiveDecoder
from models.dag.decode import DagDecoder
from models.dag.model import build as build_graph
from models.lattice.decode import LatticeDecoder
from models.lattice.model import build as build_lattice
from models.lattice.tables import bigram_tables
from models.stepwise.decode import StepwiseDecoder

Decode = Callable[[list[list[int]]], object]
MIN_SECONDS = 0.2
"""Decoding is repeated for at least this time in a round."""


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def calls(decoder: Any, search: Any) -> Decode:
    return lambda sources: decoder.decode(decoder.prepare(sources, search), search)


def stepwise(size: str, layers: tuple[int, int], order: str, search: StepwiseSearch, device: str) -> Decode:
    return calls(StepwiseDecoder(network(size, layers, order).to(device), frozen=True), search)


def graph(size: str, search: DagSearch, device: str) -> Decode:
    torch.manual_seed(1)
    model = build_graph(DagConfig(size=size, **SIZES[size]), sizes(size)).eval()  # type: ignore[arg-type]
    return calls(DagDecoder(model.to(device), frozen=True), search)


def lattice(size: str, sources: list[list[int]], search: LatticeSearch, device: str) -> Decode:
    torch.manual_seed(1)
    model = build_lattice(LatticeModelConfig(size=size, **SIZES[size]), sizes(size)).eval().to(device)  # type: ignore[arg-type]
    tables = candidates_for(sources, VOCABULARY[size])
    return calls(LatticeDecoder(model, tables, bigram_tables(model), frozen=True), search)


def drafts(size: str, layers: tuple[int, int], kept: bool, search: AggressiveSearch, device: str) -> Decode:
    verifier = network(size, layers)
    biased(verifier, AGREED)
    drafter = drafter_of(verifier, size, "k15 separate", kept=kept).to(device)
    return calls(AggressiveDecoder(drafter, verifier.to(device), frozen=True), search)


def ctranslate2(size: str, layers: tuple[int, int], search: StepwiseSearch, device: str, precision: str) -> Decode:
    """Return CTranslate2 on the device. Raises ImportError without it, and RuntimeError if it was built without CUDA."""
    from models.stepwise.engines.ctranslate2 import CTranslate2Search

    found = CTranslate2Search(network(size, layers), precision=precision, device=device)
    return lambda sources: found(sources, search, [search.output_limits.max_tokens or 1] * len(sources))


def entries(size: str, tokens: int, precision: Precision, device: str, batches: Sequence[int]) -> dict[str, Callable[[], Decode]]:
    """Return makers of decoders by name. A new family adds its decoders here."""
    limits: dict[str, Any] = {"output_limits": OutputLimits(min_tokens=tokens, max_tokens=tokens)}
    depth = SIZES[size]["encoder_layers"]
    deep, shallow = (depth, depth), (depth, min(2, depth))
    greedy = StepwiseSearch(engine="torch", precision=precision, **limits)
    beam = replace(greedy, strategy="beam")
    found: dict[str, Callable[[], Decode]] = {}
    for name, search in (("greedy", greedy), ("beam5", beam)):
        for layers in (deep, (depth, 1)):
            shape = f"{layers[0]}-{layers[1]}"
            theirs = replace(search, engine="ctranslate2")
            found[f"ctranslate2 {shape} {name}"] = partial(ctranslate2, size, layers, theirs, device, precision)
            found[f"autoregressive {shape} {name}"] = partial(stepwise, size, layers, ORDERS[0], search, device)
        for order in ORDERS[1:]:
            shape = f"{shallow[0]}-{shallow[1]}"
            found[f"{order} {shape} {name}"] = partial(stepwise, size, shallow, order, search, device)
    for strategy in ("greedy", "lookahead", "viterbi", "joint-viterbi"):
        found[f"graph {strategy}"] = partial(graph, size, DagSearch(strategy=strategy, engine="torch", precision=precision), device)
    sources = [source for batch in batches for source in sentences(batch, tokens, VOCABULARY[size])]
    found["lattice 16 candidates"] = partial(lattice, size, sources, LatticeSearch(candidates=16, normalizer="local"), device)
    for kept in (True, False):
        name = f"aggressive k15, {'all' if kept else 'none'} kept"
        found[name] = partial(drafts, size, deep, kept, AggressiveSearch(**limits), device)
    found["aggressive k15, tree of 16"] = partial(drafts, size, deep, True, AggressiveSearch(tree_nodes=16, **limits), device)
    return found


def milliseconds(decode: Decode, sources: list[list[int]], device: str) -> float:
    """Return the mean time of a batch, from lists of ids to lists of ids."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < MIN_SECONDS or not count:
        decode(sources)
        synchronize(device)
        count += 1
    return 1000 * (time.perf_counter() - began) / count


def measure(
    size: str, tokens: int, precision: Precision, device: str, batches: Sequence[int], rounds: int, deadline: float
) -> list[dict[str, Any]]:
    """Return the times of each entry by batch size; those that fail, or come after `deadline` (monotonic), say why."""
    results: list[dict[str, Any]] = []
    for name, make in entries(size, tokens, precision, device, batches).items():
        row: dict[str, Any] = {"entry": name}
        try:
            if time.monotonic() > deadline:
                raise TimeoutError("no time was left")
            decode = make()
            for batch in batches:
                sources = sentences(batch, tokens, VOCABULARY[size])
                if device != "cpu":
                    torch.cuda.reset_peak_memory_stats()
                for _ in range(3):  # captures programs
                    decode(sources)
                taken = [milliseconds(decode, sources, device) for _ in range(rounds)]
                row[f"batch {batch}"] = {"ms": statistics.median(taken), "rounds": taken, "memory_mib": peak_mib(device)}
        except (ImportError, RuntimeError, ValueError, TimeoutError, torch.OutOfMemoryError) as error:
            row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        results.append(row)
    return results


def peak_mib(device: str) -> float | None:
    return None if device == "cpu" else torch.cuda.max_memory_allocated() / 2**20
