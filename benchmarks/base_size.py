"""All families beside CTranslate2 at Transformer-base size, where arithmetic counts and not Python, turn by turn in one run.

    python benchmarks/base_size.py [--size base] [--batches 1 8 32] [--threads 1 2] [--rounds 5] [--only greedy] [--json FILE]

Networks have random weights (base: 6-6 layers of 512 units and a vocabulary of 32,000; `6-1` has one layer of decoder;
`--size tiny`: 4-4 layers of 128 units and 8,000 words, as for Multi30k) and read 27 tokens. Stepwise ones and CTranslate2 write 27
tokens; what a graph of random weights writes is as long as it comes out, and costs the same whatever it is; a lattice is as long as
its tables, counted from random pairs, say. A decode is everything
from lists of ids to lists of ids, without scores computed anew. Entries take turns A B C A B C; a cell is the median of the rounds,
in milliseconds a sentence, by the better number of threads.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from kernels.candidates import CandidateTables, CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from models.batch import pad_rows
from models.common.linear import pack
from models.common.network import SIZES
from models.dag.config import DagConfig, DagSearch
from models.dag.decode import NativeDecoder
from models.dag.model import build as build_graph
from models.family import Sizes
from models.lattice.config import LatticeModelConfig, LatticeSearch
from models.lattice.decode import LatticeDecoder
from models.lattice.model import build as build_lattice
from models.lattice.tables import bigram_tables
from models.stepwise.config import StepwiseConfig, StepwiseSearch
from models.stepwise.ctranslate2_search import CTranslate2Search
from models.stepwise.model import StepwiseModel, build
from models.stepwise.native import NativeSearch

VOCABULARY = {"tiny": 8000, "base": 32000}
ORDERS = ("autoregressive", "interleaved", "interleaved-sa")
Decode = Callable[[list[list[int]]], object]


def sentences(count: int, tokens: int, vocabulary: int) -> list[list[int]]:
    draw = random.Random(count)
    return [[draw.randrange(7, vocabulary) for _ in range(tokens)] for _ in range(count)]


def network(size: str, layers: tuple[int, int], order: Any = "autoregressive") -> StepwiseModel:
    torch.manual_seed(1)
    sizes = {**SIZES[size], "encoder_layers": layers[0], "decoder_layers": layers[1]}
    config = StepwiseConfig(order=order, size=size, **sizes)  # type: ignore[arg-type]
    return build(config, Sizes(VOCABULARY[size], VOCABULARY[size], True)).eval()


def natively(size: str, layers: tuple[int, int], order: str, search: StepwiseSearch) -> Decode:
    found = NativeSearch(network(size, layers, order))

    def decode(sources: list[list[int]]) -> object:
        ids, lengths = pad_rows(sources)
        return found(ids, lengths, search, torch.full_like(lengths, search.max_tokens or 1))

    return decode


def by_ctranslate2(size: str, layers: tuple[int, int], search: StepwiseSearch, precision: str) -> Decode:
    found = CTranslate2Search(network(size, layers), precision=precision)
    return lambda sources: found(sources, search, [search.max_tokens or 1] * len(sources))


def by_graph(size: str, search: DagSearch) -> Decode:
    torch.manual_seed(1)
    config = DagConfig(size=size, **SIZES[size])  # type: ignore[arg-type]
    decoder = NativeDecoder(build_graph(config, Sizes(VOCABULARY[size], VOCABULARY[size], True)).eval())
    return lambda sources: decoder.decode(decoder.prepare(sources), search)


def by_lattice(size: str, search: LatticeSearch, sources: list[list[int]]) -> Decode:
    torch.manual_seed(1)
    config = LatticeModelConfig(size=size, **SIZES[size])  # type: ignore[arg-type]
    model = build_lattice(config, Sizes(VOCABULARY[size], VOCABULARY[size], True)).eval()
    pack(model)
    decoder = LatticeDecoder(model, candidates_for(sources, VOCABULARY[size]), bigram_tables(model))
    return lambda sources: decoder.decode(decoder.prepare(sources, search), search)


def candidates_for(sources: list[list[int]], vocabulary: int) -> CandidateTables:
    """Tables counted from translations of the sources: neighbours swapped at times, each word one of 24."""
    draw, pairs = random.Random(2), []
    for source in sources * 64:
        order = sorted(range(len(source)), key=lambda place: place + 1.6 * draw.random())
        pairs.append((source, [7 + (24 * source[place] + draw.randrange(24)) % (vocabulary - 7) for place in order], order))
    read, written, links = (Sentences.of([pair[side] for pair in pairs]) for side in range(3))
    with TemporaryDirectory() as directory:
        run, path = Path(directory) / "counts.run", Path(directory) / "tables"
        count_candidates(read, written, links.values, run, options=CountOptions(source_size=vocabulary, target_size=vocabulary))
        merge_candidates([run], path, options=TableOptions())
        return CandidateTables.load(path)


def entries(size: str, tokens: int, batches: Sequence[int], only: Sequence[str]) -> dict[str, Decode]:
    """By name. What a family offers is added here."""
    fixed: dict[str, Any] = {"min_tokens": tokens, "max_tokens": tokens, "rescore": False}
    searches = {"greedy": StepwiseSearch(**fixed), "beam5": StepwiseSearch(strategy="beam", **fixed)}
    depth = SIZES[size]["encoder_layers"]
    found: dict[str, Callable[[], Decode]] = {}
    for name, search in searches.items():
        for layers in ((depth, depth), (depth, 1)):
            shape = f"{layers[0]}-{layers[1]}"
            for precision in ("float32", "int8"):
                found[f"ctranslate2 {precision} {shape} {name}"] = partial(by_ctranslate2, size, layers, search, precision)
            found[f"autoregressive {shape} {name}"] = partial(natively, size, layers, ORDERS[0], search)
        for order in ORDERS[1:]:
            found[f"{order} {name}"] = partial(natively, size, (depth, depth), order, search)
    found["graph lookahead"] = partial(by_graph, size, DagSearch())
    found["graph beam200"] = partial(by_graph, size, DagSearch(strategy="beam"))
    given = [source for batch in batches for source in sentences(batch, tokens, VOCABULARY[size])]
    for lattice in (
        LatticeSearch(candidates=16),
        LatticeSearch(candidates=64),
        LatticeSearch(candidates=64, normalizer="selfnorm"),
    ):
        found[f"lattice {lattice.name}"] = partial(by_lattice, size, lattice, given)
    return {name: make() for name, make in found.items() if any(part in name for part in only)}


def measure(
    decoders: dict[str, Decode], batches: list[int], threads: list[int], tokens: int, vocabulary: int, rounds: int
) -> list[dict[str, Any]]:
    results = []
    for count in threads:
        torch.set_num_threads(count)
        for batch in batches:
            sources = sentences(batch, tokens, vocabulary)
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
    return results


def table(results: list[dict[str, Any]], batches: list[int]) -> str:
    """Milliseconds a sentence by the better number of threads."""
    names = list(dict.fromkeys(row["entry"] for row in results))
    best = {
        (name, batch): min((row for row in results if (row["entry"], row["batch"]) == (name, batch)), key=lambda row: row["median"])
        for name in names
        for batch in batches
    }
    lines = ["entry".ljust(36) + "".join(f"{f'batch {batch}':>12} thr" for batch in batches)]
    for name in names:
        cells = [f"{best[name, batch]['median']:12.2f} {best[name, batch]['threads']:3d}" for batch in batches]
        lines.append(name.ljust(36) + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=list(VOCABULARY))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tokens", type=int, default=27, help="of each source and each output")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[""], help="entries whose names hold one of these")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    decoders = entries(arguments.size, arguments.tokens, arguments.batches, arguments.only)
    results = measure(
        decoders, arguments.batches, arguments.threads, arguments.tokens, VOCABULARY[arguments.size], arguments.rounds
    )
    print(table(results, arguments.batches))
    if arguments.json:
        from ctranslate2 import __version__ as version

        conditions = {name: value for name, value in vars(arguments).items() if name != "json"}
        versions = {"torch": torch.__version__, "ctranslate2": version, "python": platform.python_version()}
        machine = {"cpus": os.cpu_count(), "processor": platform.processor(), "load_average": os.getloadavg()}
        whole = {"results": results, "conditions": conditions, "versions": versions, "machine": machine}
        arguments.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
