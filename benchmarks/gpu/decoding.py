"""Latency and throughput of every family on a device, with random weights."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from benchmarks.decoding import roofline
from benchmarks.decoding.networks import (
    AGREED,
    VOCABULARY,
    Layers,
    biased,
    candidates_for,
    drafter_of,
    network,
    sentences,
    sizes,
    slot_network,
)
from benchmarks.decoding.roofline import Network, Phase
from benchmarks.gpu import rivals
from benchmarks.gpu.limits import out_of_time, synchronize
from benchmarks.gpu.rivals import Decode
from fewstep.config.network import SIZES
from fewstep.config.options import OutputLimits, Precision
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from models.aggressive.decode import AggressiveDecoder
from models.dag.decode import DagDecoder
from models.dag.model import DagModel
from models.dag.model import build as build_graph
from models.lattice.decode import LatticeDecoder
from models.lattice.model import build as build_lattice
from models.lattice.tables import bigram_tables
from models.parallel.decode import ParallelDecoder
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.model import StepwiseModel

MIN_SECONDS = 0.2
"""Decoding is repeated for at least this time in a round."""
WARM_UP_CALLS = 3
"""Calls before the first round; they capture programs."""
BYTES: dict[Precision, int] = {"float32": 4, "float16": 2, "bfloat16": 2}


class Entry(NamedTuple):
    """A system with a search."""

    make: Callable[[], Decode]
    """Returns the decoder."""
    phases: list[Phase] | None
    """The cost of a sentence; None: not known."""


def calls(decoder: Any, search: Any) -> Decode:
    return lambda sources: decoder.decode(decoder.prepare(sources, search), search)


@cache
def stepwise_network(size: str, layers: Layers, order: str, device: str) -> StepwiseModel:
    return network(size, layers, order).to(device)


def stepwise(size: str, layers: Layers, order: str, search: StepwiseSearch, device: str) -> Decode:
    return calls(StepwiseDecoder(stepwise_network(size, layers, order, device), frozen=True), search)


@cache
def graph_network(size: str, device: str) -> DagModel:
    torch.manual_seed(1)
    return build_graph(DagConfig(size=size, **SIZES[size]), sizes(size)).eval().to(device)  # type: ignore[arg-type]


def graph(size: str, search: DagSearch, device: str) -> Decode:
    return calls(DagDecoder(graph_network(size, device), frozen=True), search)


def lattice(size: str, tokens: int, batches: Sequence[int], search: LatticeSearch, device: str) -> Decode:
    torch.manual_seed(1)
    model = build_lattice(LatticeModelConfig(size=size, **SIZES[size]), sizes(size)).eval().to(device)  # type: ignore[arg-type]
    sources = [source for batch in batches for source in sentences(batch, tokens, VOCABULARY[size])]
    tables = candidates_for(sources, VOCABULARY[size])
    return calls(LatticeDecoder(model, tables, bigram_tables(model), frozen=True), search)


def slots(size: str, objective: str, search: ParallelSearch, device: str) -> Decode:
    return calls(ParallelDecoder(slot_network(size, objective).to(device), frozen=True), search)


def drafts(size: str, layers: Layers, accepted: bool, search: AggressiveSearch, device: str) -> Decode:
    verifier = network(size, layers)
    biased(verifier, AGREED)
    drafter = drafter_of(verifier, size, "k15 separate", accepted=accepted).to(device)
    return calls(AggressiveDecoder(drafter, verifier.to(device), frozen=True), search)


@dataclass(frozen=True)
class Setting:
    """The sizes and options that all entries share. The methods return an entry and its name."""

    size: str
    tokens: int
    """The length of sources and outputs."""
    precision: Precision
    device: str
    batches: Sequence[int]

    @property
    def deep(self) -> Layers:
        return SIZES[self.size]["encoder_layers"], SIZES[self.size]["decoder_layers"]

    def layers(self, decoder_layers: int) -> Layers:
        return self.deep[0], min(decoder_layers, self.deep[1])

    @property
    def limits(self) -> dict[str, Any]:
        return {"output_limits": OutputLimits(min_tokens=self.tokens, max_tokens=self.tokens)}

    @property
    def net(self) -> Network:
        shape = SIZES[self.size]
        vocabulary = VOCABULARY[self.size]
        wide = BYTES[self.precision]
        return Network(shape["width"], shape["feed_forward"], self.tokens + 1, vocabulary, vocabulary, wide, wide)

    def written(self, order: str, layers: Layers, strategy: Any) -> tuple[str, Entry]:
        search = StepwiseSearch(strategy=strategy, engine="torch", precision=self.precision, **self.limits)
        step = StepwiseConfig(order=order).generation().step_size  # type: ignore[arg-type]
        made = partial(stepwise, self.size, layers, order, search, self.device)
        return f"{order} {_named(layers, search)}", Entry(made, self._steps(layers, search, step))

    def rival(self, make: Callable[..., Decode], layers: Layers, strategy: Any) -> tuple[str, Entry]:
        search = StepwiseSearch(strategy=strategy, precision=self.precision, rescore=False, **self.limits)
        made = partial(make, self.size, layers, search, self.device)
        return f"{make.__name__} {_named(layers, search)}", Entry(made, self._steps(layers, search, 1))

    def _steps(self, layers: Layers, search: StepwiseSearch, step: int) -> list[Phase] | None:
        greedy = search.strategy == "greedy"
        return roofline.stepwise(self.net, layers, self.tokens, step) if greedy else None

    def graph(self, strategy: Any) -> tuple[str, Entry]:
        search = DagSearch(strategy=strategy, engine="torch", precision=self.precision)
        cost = roofline.graph(self.net, self.deep, DagConfig.graph_factor)
        return f"graph {strategy}", Entry(partial(graph, self.size, search, self.device), cost)

    def lattice(self, candidates: int) -> tuple[str, Entry]:
        search = LatticeSearch(candidates=candidates, normalizer="local", engine="torch", precision=self.precision)
        cost = roofline.lattice(self.net, self.deep, candidates, self.tokens + search.length_window)
        made = partial(lattice, self.size, self.tokens, self.batches, search, self.device)
        return f"lattice {candidates} candidates", Entry(made, cost)

    def drafts(self, name: str, *, accepted: bool, nodes: int = 0) -> tuple[str, Entry]:
        precisions: dict[str, Any] = {"draft_precision": self.precision, "verifier_precision": self.precision}
        search = AggressiveSearch(tree_nodes=nodes, engine="torch", **precisions, **self.limits)
        made = partial(drafts, self.size, self.deep, accepted, search, self.device)
        cost = roofline.drafts(self.net, self.deep, self.tokens, 15, self.deep, accepted=accepted, one_by_one=False)
        return f"aggressive k15, {name}", Entry(made, None if nodes else cost)

    def slots(self, name: str, objective: str, passes: int = 1) -> tuple[str, Entry]:
        strategy: Any = "mask-predict" if objective == "cmlm" else "greedy"
        search = ParallelSearch(strategy=strategy, iterations=passes, engine="torch", precision=self.precision)
        cost = roofline.slots(self.net, self.deep, 2 if objective == "ctc-glat" else 1, passes)
        return name, Entry(partial(slots, self.size, objective, search, self.device), cost)


def entries(setting: Setting) -> dict[str, Entry]:
    """Return the entries by name, those that matter most first. A new family adds its decoders here."""
    deep = setting.deep
    shallow = setting.layers(2)
    one = setting.layers(1)
    return dict(
        [
            setting.written("autoregressive", deep, "greedy"),
            setting.rival(rivals.transformers, deep, "greedy"),
            setting.rival(rivals.ctranslate2, deep, "greedy"),
            setting.written("autoregressive", one, "greedy"),
            setting.graph("greedy"),
            setting.graph("lookahead"),
            setting.written("interleaved-sa", shallow, "greedy"),
            setting.lattice(16),
            setting.drafts("all accepted", accepted=True),
            setting.drafts("none accepted", accepted=False),
            setting.drafts("tree of 16", accepted=True, nodes=16),
            setting.slots("ctc greedy", "ctc-glat"),
            setting.slots("one-shot greedy", "glat"),
            setting.slots("mask-predict 4", "cmlm", 4),
            setting.written("autoregressive", deep, "beam"),
            setting.rival(rivals.transformers, deep, "beam"),
            setting.rival(rivals.ctranslate2, deep, "beam"),
            setting.written("autoregressive", one, "beam"),
            setting.written("interleaved", shallow, "greedy"),
            setting.graph("viterbi"),
            setting.graph("joint-viterbi"),
            setting.slots("mask-predict 10", "cmlm", 10),
            setting.written("interleaved-sa", shallow, "beam"),
            setting.written("interleaved", shallow, "beam"),
        ]
    )


def _named(layers: Layers, search: StepwiseSearch) -> str:
    return f"{layers[0]}-{layers[1]} {f'beam{search.beam_size}' if search.strategy == 'beam' else search.strategy}"


def milliseconds(decode: Decode, sources: list[list[int]], device: str) -> float:
    """Return the mean time of a batch, from lists of ids to lists of ids."""
    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < MIN_SECONDS or not count:
        decode(sources)
        synchronize(device)
        count += 1
    return 1000 * (time.perf_counter() - began) / count


def measure(
    make: Callable[[], Decode], size: str, tokens: int, device: str, batches: Sequence[int], rounds: int, deadline: float
) -> dict[str, Any]:
    """Return the times of an entry by batch size, and the memory that programs and the batch add to weights and earlier programs.
    Batches that would begin after `deadline` are left out."""
    decode = make()
    row = dict[str, Any]()
    for batch in batches:
        if row and out_of_time(deadline):
            return {**row, "error": f"TimeoutError: no time was left for batch {batch}"}
        sources = sentences(batch, tokens, VOCABULARY[size])
        weights = allocated_mib(device)
        for _ in range(WARM_UP_CALLS):
            decode(sources)
        taken = [milliseconds(decode, sources, device) for _ in range(rounds)]
        row[f"batch {batch}"] = {"ms": statistics.median(taken), "rounds": taken, "memory_mib": peak_mib(device) - weights}
    return row


def allocated_mib(device: str) -> float:
    """Return the memory that is in use, from which the next peak begins; 0 on a CPU."""
    if device == "cpu":
        return 0.0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated() / 2**20


def peak_mib(device: str) -> float:
    return 0.0 if device == "cpu" else torch.cuda.max_memory_allocated() / 2**20
