"""Native decoding on a CPU against decoding through torch, with random weights, in turns in one run.

    python -m benchmarks.engines.random_weights [--sizes tiny base] [--batches 1 32] [--threads 1 2] [--rounds 7] [--json FILE]

Networks have random weights (tiny: a vocabulary of 8,000, base: 32,000) and write outputs of a fixed length, so that both do the
same work. A decode is everything from lists of ids to lists of ids. In each round each decodes a few batches one after the other,
as they would come. Milliseconds are wall time of one batch, the median of all rounds; "steps" are decoder calls, "gain" is how
many times faster an order is than autoregressive decoding of the same kind.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import publish, spread
from fewstep.config.network import SIZES, Sizes
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from models.common.layers.linear import pack
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.model import StepwiseModel, build

ORDERS = ("autoregressive", "interleaved", "interleaved-sa")
VOCABULARY = {"tiny": 8000, "base": 32000}
REPEATS = 5
"""Batches of one sentence that are decoded in a row."""


def network(size: str, order: Any) -> StepwiseModel:
    torch.manual_seed(1)
    config = StepwiseConfig(order=order, size=size, **SIZES[size])  # type: ignore[arg-type]
    return build(config, Sizes(VOCABULARY[size], VOCABULARY[size], True)).eval()


def sentences(count: int, tokens: int, vocabulary: int) -> list[list[int]]:
    draw = random.Random(count)
    return [[draw.randrange(7, vocabulary) for _ in range(tokens)] for _ in range(count)]


def clock(decoder: StepwiseDecoder, sources: list[list[int]], search: StepwiseSearch) -> tuple[float, int]:
    """Return milliseconds of a decode, and its steps."""
    repeats = REPEATS if len(sources) == 1 else 1
    started = time.perf_counter()
    for _ in range(repeats):
        found = decoder.decode(decoder.prepare(sources), search)
    return 1000 * (time.perf_counter() - started) / repeats, found[0][0].steps


def compare(decoders: dict[str, StepwiseDecoder], sources: list[list[int]], search: StepwiseSearch, rounds: int) -> dict[str, Any]:
    """Return milliseconds by decoder; the first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in decoders}
    steps = 0
    for turn in range(rounds + 1):
        for name, decoder in decoders.items():
            taken, steps = clock(decoder, sources, search)
            if turn:
                times[name].append(taken)
    summaries = {name: {"median": statistics.median(taken), "rounds": taken} for name, taken in times.items()}
    return {"steps": steps, **summaries}


def searches(tokens: int) -> list[StepwiseSearch]:
    limits = OutputLimits(min_tokens=tokens, max_tokens=tokens)
    return [StepwiseSearch(output_limits=limits), StepwiseSearch(strategy="beam", beam_size=5, output_limits=limits)]


def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    for size in arguments.sizes:
        decoders = {}
        for order in ORDERS:
            model = network(size, order)
            pack(model)
            decoders[order] = {"torch": StepwiseDecoder(model), "native": StepwiseDecoder(model, frozen=True)}
        for threads, batch, search in itertools.product(arguments.threads, arguments.batches, searches(arguments.tokens)):
            torch.set_num_threads(threads)
            sources = sentences(batch, arguments.tokens, VOCABULARY[size])
            first: dict[str, Any] = {}
            for order in ORDERS:
                found = compare(decoders[order], sources, search, arguments.rounds)
                first = first or found
                found["gain"] = {name: first[name]["median"] / found[name]["median"] for name in ("torch", "native")}
                results.append({"size": size, "threads": threads, "batch": batch, "search": search.label, "order": order, **found})
                print(*line(results[-1]), file=sys.stderr, flush=True)
    return results


KEYS = ("order", "size", "search", "threads", "batch", "steps")
ENGINES = ("torch", "native")


def line(row: dict[str, Any]) -> list[str]:
    times = [f"{row[name]['median']:.2f}" for name in ENGINES]
    gains = [f"{row['gain'][name]:.2f}x" for name in ENGINES]
    return [*(str(row[key]) for key in KEYS), *times, f"{row['torch']['median'] / row['native']['median']:.2f}x", *gains]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["tiny", "base"], choices=list(VOCABULARY))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tokens", type=int, default=15, help="Tokens of each source and each output.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    results = run(arguments)
    publish(
        arguments,
        section="Native decoding",
        explanation=f"Random weights, {arguments.tokens} tokens in and out, no tokenisation: milliseconds a batch.",
        columns=[*KEYS, "torch ms", "native ms", "native is faster by", "gain through torch", "gain natively"],
        rows=[line(row) for row in results],
        seed=1,
        rounds=arguments.rounds,
        spread=spread([row[name]["rounds"] for row in results for name in ENGINES]),
        figures=results,
    )


if __name__ == "__main__":
    main()
