"""A sentence through the graph of a Directed Acyclic Transformer against greedy autoregressive decoding, both native, on a CPU.

    python benchmarks/graph_decoding.py [--vocabularies 2000 8000] [--factors 4 8] [--threads 1 2] [--batches 1 32] [--rounds 30]

Networks of the size `tiny` with random weights; the autoregressive one writes as many tokens as its source has. A decode is
everything from lists of ids to lists of ids. All take turns, five decodes a turn, round by round. Milliseconds are wall time of
one batch, the median and the least of all rounds; "gain" is how many times faster than the autoregressive network, by the
least. Random weights make paths of no particular length; a graph is made whole either way, and greedy search ranks words on its
path alone. Searches come in all precisions; the autoregressive network is in fp32.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import random
import statistics
import time
from pathlib import Path
from typing import Any, Literal

import torch

from models.common.network import SIZES
from models.dag.config import DagConfig, DagSearch
from models.dag.decode import NativeDecoder as GraphDecoder
from models.dag.model import build as build_graphs
from models.family import Sizes
from models.stepwise.config import StepwiseConfig, StepwiseSearch
from models.stepwise.decode import NativeDecoder
from models.stepwise.model import build

STRATEGIES = ("greedy", "lookahead", "joint-viterbi", "beam")
IN_A_ROW = 5
"""Batches of a turn, one after the other as in a text."""
PRECISIONS: tuple[Literal["fp32", "bf16", "int8"], ...] = ("fp32", "bf16", "int8")


def decoders(vocabulary: int, factors: list[float], tokens: int) -> dict[str, tuple[Any, Any]]:
    """Decoders with their searches, by name; the first is the autoregressive one."""
    sizes = Sizes(vocabulary, vocabulary, True)
    torch.manual_seed(1)
    config = StepwiseConfig(size="tiny", **SIZES["tiny"])
    greedy = StepwiseSearch(min_tokens=tokens, max_tokens=tokens)
    found: dict[str, tuple[Any, Any]] = {"autoregressive": (NativeDecoder(build(config, sizes).eval()), greedy)}
    for factor in factors:
        torch.manual_seed(1)
        graphs = DagConfig(size="tiny", graph_factor=factor, **SIZES["tiny"])
        decoder = GraphDecoder(build_graphs(graphs, sizes).eval())
        for strategy, precision in itertools.product(STRATEGIES, PRECISIONS):
            search = DagSearch(strategy=strategy, precision=precision)  # type: ignore[arg-type]
            found[f"graph {factor:g} {search.name}"] = decoder, search
    return found


def measure(sides: dict[str, tuple[Any, Any]], sources: list[list[int]], rounds: int) -> dict[str, dict[str, float]]:
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, (decoder, search) in sides.items():
            started = time.perf_counter()
            for _ in range(IN_A_ROW):
                decoder.decode(decoder.prepare(sources), search)
            if turn:
                times[name].append(1000 * (time.perf_counter() - started) / IN_A_ROW)
    return {name: {"median": statistics.median(taken), "least": min(taken)} for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabularies", nargs="+", type=int, default=[2000, 8000])
    parser.add_argument("--factors", nargs="+", type=float, default=[4.0, 8.0])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--tokens", type=int, default=13, help="tokens of each source")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="where to write the result")
    arguments = parser.parse_args()
    results = []
    print(f"{'vocabulary':>10s} {'threads':>7s} {'batch':>5s} {'':24s} {'ms':>8s} {'least':>8s} {'gain':>6s}")
    for vocabulary in arguments.vocabularies:
        sides = decoders(vocabulary, arguments.factors, arguments.tokens)
        for threads, batch in itertools.product(arguments.threads, arguments.batches):
            torch.set_num_threads(threads)
            draw = random.Random(batch)
            sources = [[draw.randrange(7, vocabulary) for _ in range(arguments.tokens)] for _ in range(batch)]
            found = measure(sides, sources, arguments.rounds)
            for name, taken in found.items():
                gain = found["autoregressive"]["least"] / taken["least"]
                results.append({"vocabulary": vocabulary, "threads": threads, "batch": batch, "name": name, **taken, "gain": gain})
                figures = f"{taken['median']:8.2f} {taken['least']:8.2f} {gain:6.2f}"
                print(f"{vocabulary:10d} {threads:7d} {batch:5d} {name:24s} {figures}", flush=True)
    if arguments.json:
        conditions = {name: value for name, value in vars(arguments).items() if name != "json"}
        versions = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.processor()}
        whole = {"results": results, "conditions": conditions, "versions": versions}
        arguments.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
