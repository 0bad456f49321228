"""All families and CTranslate2 at Transformer-base size, where arithmetic and not Python dominates, in turns in one run.

    python -m benchmarks.decoding.base_size [--size base] [--batches 1 8 32] [--threads 1 2] [--rounds 3] [--only greedy]
        [--json FILE]

Networks have random weights and read 27 tokens. Base has 6-6 layers of 512 units and a vocabulary of 32,000; `6-1` has one decoder
layer; `--size tiny` has 4-4 layers of 128 units and a vocabulary of 8,000, as for Multi30k. Stepwise networks, verifiers of drafts
and CTranslate2 write 27 tokens. The length of a graph's output is random and does not affect its cost. The length of a lattice is
that of its tables, which are counted from random pairs. The cost of drafting depends on the number of accepted drafts, so both ends
are measured: all accepted (verifier and drafter are biased towards the same token) and none (towards different tokens).

A decode starts with lists of ids and ends with lists of ids, without rescoring. Entries take turns (A B C A B C). A cell is the
median of the rounds in milliseconds a sentence, by the better number of threads (`2t`: two). The table is Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.decoding.dag import PRECISIONS
from benchmarks.decoding.networks import (
    AGREED,
    DRAFTERS,
    ORDERS,
    VOCABULARY,
    Layers,
    biased,
    candidates_for,
    drafter_of,
    network,
    sentences,
    sizes,
)
from benchmarks.record import publish, spread
from fewstep.config.network import SIZES
from fewstep.config.options import OutputLimits, Shortlist
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.decoder import NativeDecoder
from fewstep.sources import gather
from models.aggressive.decode import AggressiveDecoder
from models.common.layers.linear import pack
from models.dag.decode import DagDecoder
from models.dag.model import build as build_graph
from models.lattice.decode import LatticeDecoder
from models.lattice.model import build as build_lattice
from models.lattice.tables import bigram_tables
from models.stepwise.engines.ctranslate2 import CTranslate2Search
from models.stepwise.engines.native import native_decoder

Decode = Callable[[list[list[int]]], object]


@cache
def native_search(size: str, layers: Layers, order: str) -> NativeDecoder:
    return native_decoder(network(size, layers, order), None, None)


@cache
def ctranslate2_search(size: str, layers: Layers, precision: str) -> CTranslate2Search:
    return CTranslate2Search(network(size, layers), precision=precision)


def natively(size: str, layers: Layers, order: str, search: StepwiseSearch) -> Decode:
    found = native_search(size, layers, order)

    def decode(sources: list[list[int]]) -> object:
        prepared = gather(sources, len(sources[0]))
        limits = np.full_like(prepared.lengths, search.output_limits.max_tokens or 1)
        return found.search(prepared, search, limits, torch.get_num_threads())

    return decode


def by_ctranslate2(size: str, layers: Layers, search: StepwiseSearch, precision: str) -> Decode:
    found = ctranslate2_search(size, layers, precision)
    return lambda sources: found(sources, search, [search.output_limits.max_tokens or 1] * len(sources))


@cache
def graph_decoder(size: str) -> DagDecoder:
    torch.manual_seed(1)
    return DagDecoder(build_graph(DagConfig(size=size, **SIZES[size]), sizes(size)).eval(), frozen=True)  # type: ignore[arg-type]


def by_graph(size: str, search: DagSearch) -> Decode:
    decoder = graph_decoder(size)
    return lambda sources: decoder.decode(decoder.prepare(sources), search)


@cache
def lattice_decoder(size: str, batches: tuple[int, ...], tokens: int) -> LatticeDecoder:
    torch.manual_seed(1)
    model = build_lattice(LatticeModelConfig(size=size, **SIZES[size]), sizes(size)).eval()  # type: ignore[arg-type]
    pack(model)
    sources = [source for batch in batches for source in sentences(batch, tokens, VOCABULARY[size])]
    return LatticeDecoder(model, candidates_for(sources, VOCABULARY[size]), bigram_tables(model), frozen=True)


def by_lattice(size: str, batches: tuple[int, ...], tokens: int, search: LatticeSearch) -> Decode:
    decoder = lattice_decoder(size, batches, tokens)
    return lambda sources: decoder.decode(decoder.prepare(sources, search), search)


def by_drafts(size: str, drafter: str, kept: bool, search: AggressiveSearch) -> Decode:
    """Return a drafter whose drafts are all accepted, or all rejected."""
    verifier = network(size, (SIZES[size]["encoder_layers"], SIZES[size]["decoder_layers"]))
    biased(verifier, AGREED)
    decoder = AggressiveDecoder(drafter_of(verifier, size, drafter, kept=kept), verifier, frozen=True)

    def decode(sources: list[list[int]]) -> object:
        found = decoder.decode(decoder.prepare(sources), search)
        accepted = found[0][0].statistics["accepted"]
        assert (accepted > 0) == kept, f"expected {'drafts to be kept' if kept else 'none to be kept'}, got {accepted}"
        return found

    return decode


def entries(size: str, tokens: int, batches: tuple[int, ...], only: Sequence[str]) -> dict[str, Decode]:
    """Return the decoders by name. A new family adds its decoders here."""
    fixed: dict[str, Any] = {"output_limits": OutputLimits(min_tokens=tokens, max_tokens=tokens)}
    searches = {"greedy": StepwiseSearch(rescore=False, **fixed), "beam5": StepwiseSearch(strategy="beam", rescore=False, **fixed)}
    depth = SIZES[size]["encoder_layers"]
    found: dict[str, Callable[[], Decode]] = {}
    for name, search in searches.items():
        for layers in ((depth, depth), (depth, 1)):
            shape = f"{layers[0]}-{layers[1]}"
            for precision in ("int8", "float32"):
                found[f"ctranslate2 {precision} {shape} {name}"] = partial(by_ctranslate2, size, layers, search, precision)
            found[f"autoregressive {shape} {name}"] = partial(natively, size, layers, ORDERS[0], search)
        for order in ORDERS[1:]:
            found[f"{order} {name}"] = partial(natively, size, (depth, depth), order, search)
    for precision in PRECISIONS["native"]:
        for strategy in ("greedy", "lookahead", "beam"):
            graph = DagSearch(strategy=strategy, precision=precision)
            found[f"graph {graph.label}"] = partial(by_graph, size, graph)
    for lattice in (LatticeSearch(normalizer="local"), LatticeSearch(normalizer="local", precision="bfloat16")):
        for candidates in (16, 64):
            chosen = replace(lattice, candidates=candidates)
            found[f"lattice {chosen.label}"] = partial(by_lattice, size, batches, tokens, chosen)
    found["lattice viterbi64"] = partial(by_lattice, size, batches, tokens, LatticeSearch(candidates=64))
    *short, paper = DRAFTERS
    few = AggressiveSearch(draft_shortlist=Shortlist(tokens=2000, links=0), **fixed)
    narrow = replace(few, draft_precision="int8")
    for drafter in short:
        found[f"aggressive {drafter}, all kept"] = partial(by_drafts, size, drafter, True, few)
        found[f"aggressive {drafter} int8, all kept"] = partial(by_drafts, size, drafter, True, narrow)
        found[f"aggressive {drafter}, none kept"] = partial(by_drafts, size, drafter, False, few)
    found[f"aggressive {paper}, all kept"] = partial(by_drafts, size, paper, True, AggressiveSearch(**fixed))
    return {name: make() for name, make in found.items() if any(part in name for part in only)}


def measure(
    decoders: dict[str, Decode], batches: Sequence[int], threads: list[int], tokens: int, vocabulary: int, rounds: int
) -> list[dict[str, Any]]:
    """Return the times of each entry by number of threads and size of batch. The first round warms up and is not counted."""
    results = []
    for count in threads:
        torch.set_num_threads(count)
        for batch in batches:
            began_all, sources = time.perf_counter(), sentences(batch, tokens, vocabulary)
            times: dict[str, list[float]] = {name: [] for name in decoders}
            for turn in range(rounds + 1):
                for name, decode in decoders.items():
                    began = time.perf_counter()
                    decode(sources)
                    if turn:
                        times[name].append(1000 * (time.perf_counter() - began) / batch)
            results += [
                {"entry": name, "threads": count, "batch": batch, "median": statistics.median(taken), "rounds": taken}
                for name, taken in times.items()
            ]
            print(f"{count} threads, batch {batch}: {time.perf_counter() - began_all:.0f} s", file=sys.stderr, flush=True)
    return results


def rows(results: list[dict[str, Any]], batches: Sequence[int]) -> list[list[str]]:
    """Return milliseconds a sentence by the better number of threads, and how many times faster that is than the first row."""
    names = list(dict.fromkeys(row["entry"] for row in results))
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for row in sorted(results, key=lambda row: -row["median"]):
        best[row["entry"], row["batch"]] = row
    lines = []
    for name in names:
        found = [best[name, batch] for batch in batches]
        cells = [f"{one['median']:.2f} {one['threads']}t" for one in found]
        ratios = [f"{best[names[0], batch]['median'] / one['median']:.2f}x" for batch, one in zip(batches, found, strict=True)]
        lines.append([name, *cells, *ratios])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=list(VOCABULARY))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tokens", type=int, default=27, help="Tokens of each source and each output.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[""], help="Only entries whose names contain one of these.")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    began = time.perf_counter()
    decoders = entries(arguments.size, arguments.tokens, tuple(arguments.batches), arguments.only)
    print(f"{len(decoders)} entries made in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    results = measure(
        decoders, arguments.batches, arguments.threads, arguments.tokens, VOCABULARY[arguments.size], arguments.rounds
    )
    publish(
        arguments,
        section="All systems beside CTranslate2",
        explanation=(
            f"Networks of size `{arguments.size}` with random weights, {arguments.tokens} tokens in and out: milliseconds a "
            "sentence by the better number of threads (`1t`, `2t`), and times faster than the first row."
        ),
        columns=[
            "entry",
            *(f"ms, batch {batch}" for batch in arguments.batches),
            *(f"x, batch {batch}" for batch in arguments.batches),
        ],
        rows=rows(results, arguments.batches),
        seed=1,
        rounds=arguments.rounds,
        spread=spread([row["rounds"] for row in results]),
        figures=results,
    )


if __name__ == "__main__":
    main()
