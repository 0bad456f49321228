"""Native lattice decoding against native autoregressive decoding, turn by turn in one run, with random weights.

    python -m benchmarks.decoding.lattice [--candidates 8 64] [--precisions float32 bfloat16] [--threads 1 2] [--json FILE]

Networks are of the tiny size (4 encoder layers, width 128) with a vocabulary of 8,000; the lattice's decoder has one layer.
Candidate tables are counted on random pairs, so that every slot has the requested number of candidates. Outputs of the
autoregressive decoder have the length that the tables predict; lattices take 3 words more. One sentence at a time, from arrays of
ids to lists of ids.

Milliseconds are wall time, the median and the least of all rounds; "gain" is how many times faster than greedy decoding. The parts
(encoder, look-up, scoring, search) are medians of the time of all threads together: more than the wall time where threads work side
by side. With `--by-length` sources of 5 to 50 tokens are decoded instead (Deng and Rush 2021, figure 4).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import publish, spread
from fewstep import BeamOptions, CandidateTables, LatticeOptions, LatticeTransformer, SlotRules, Transformer, TransformerShape
from fewstep.networks.arrays import expected_arrays
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates

VOCABULARY, LONGEST = 8000, 80
NORMALISERS = ("selfnorm", "local", "union", "full")
PARTS = ("encoding", "lookup", "scoring", "search")
Numbers = dict[str, float]


def shape(decoder_layers: int) -> TransformerShape:
    return TransformerShape(encoder_layers=4, decoder_layers=decoder_layers, width=128, feed_forward=256, heads=4, norm="pre")


def weights(of: TransformerShape) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    rows = {"target_embedding": VOCABULARY, "source_positions": LONGEST, "slot_codes": LONGEST}
    found = {}
    for name, size in expected_arrays(of, False).items():
        size = (rows[name], size[1]) if name in rows else size
        values = draw.standard_normal(size, dtype=np.float32) * size[-1] ** -0.5
        found[name] = values + 1.0 if name.endswith("norm.weight") else values
    return found


def candidate_tables(directory: Path) -> CandidateTables:
    """Return tables of random pairs of equal lengths, linked to positions nearby. The few source tokens have full rows."""
    draw = np.random.default_rng(2)
    lengths = draw.integers(3, 55, 12000)
    pairs = [draw.integers(7, 107, length) for length in lengths]
    targets = [draw.integers(7, VOCABULARY, length) for length in lengths]
    links = np.concatenate([np.clip(np.arange(length) + draw.integers(-2, 3, length), 0, length - 1) for length in lengths])
    options = CountOptions(source_size=VOCABULARY, target_size=VOCABULARY)
    count_candidates(Sentences.of(pairs), Sentences.of(targets), links, directory / "run", options=options)
    merge_candidates([directory / "run"], directory / "tables.bin", options=TableOptions())
    return CandidateTables.load(directory / "tables.bin")


def sources(tokens: int) -> tuple[Any, Any]:
    """Return one source of `tokens` tokens and EOS."""
    ids = np.random.default_rng(tokens).integers(7, 107, (1, tokens + 1))
    ids[0, -1] = 2
    return ids, np.array([tokens + 1])


class Turns:
    """The networks of the comparison, each decoded in turn."""

    def __init__(self, tables: CandidateTables, precisions: list[Any]) -> None:
        self.tables, arrays = tables, weights(shape(1))
        self.networks = {name: LatticeTransformer(arrays, shape=shape(1), precision=name) for name in precisions}
        self.autoregressive = Transformer(weights(shape(4)), shape=shape(4))

    def greedy(self, tokens: int, threads: int) -> Callable[[], dict[str, float]]:
        ids, lengths = sources(tokens)
        limits = np.array([self.tables.length(tokens)])
        rules = SlotRules(banned=(0, 2), min_tokens=LONGEST)
        options = BeamOptions(beam_size=1, step_size=1)

        def run() -> Numbers:
            found = self.autoregressive.greedy(ids, lengths, limits, options=options, rules=rules, threads=threads)
            return {"words": len(found[0].hypotheses[0][1])}

        return run

    def lattices(self, tokens: int, threads: int, candidates: int, normaliser: Any, precision: str) -> Callable[[], Numbers]:
        (ids, lengths), network = sources(tokens), self.networks[precision]
        options = LatticeOptions(candidates=candidates, normaliser=normaliser)

        def run() -> Numbers:
            found, seconds = network.timed_decode(ids, lengths, self.tables, options=options, threads=threads)
            parts = {name: 1000 * value for name, value in seconds._asdict().items()}
            return {"words": len(found[0].ids), **parts}

        return run


def compare(runs: dict[str, Callable[[], Numbers]], rounds: int) -> dict[str, dict[str, Any]]:
    """Decode with each in turn, some times in a row; the first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    parts: dict[str, list[Numbers]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            for again in range(4):
                started = time.perf_counter()
                found = run()
                taken = 1000 * (time.perf_counter() - started)
                if turn and again:
                    times[name].append(taken)
                    parts[name].append(found)
    medians = {name: {part: statistics.median(one[part] for one in every) for part in every[0]} for name, every in parts.items()}
    return {
        name: {"median": statistics.median(taken), "least": min(taken), "rounds": taken, **medians[name]}
        for name, taken in times.items()
    }


KEYS = ("system", "precision", "candidates", "tokens", "threads")


def line(row: dict[str, Any]) -> list[str]:
    parts = [f"{row[part]:.3f}" if part in row else "-" for part in PARTS]
    return [*(str(row[key]) for key in KEYS), f"{row['median']:.3f}", f"{row['least']:.3f}", f"{row['gain']:.2f}x", *parts]


def run(arguments: argparse.Namespace, turns: Turns) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for threads in arguments.threads:
        for tokens in range(5, 51, 5) if arguments.by_length else [arguments.tokens]:
            runs = {"greedy": turns.greedy(tokens, threads)}
            chosen = {"greedy": ("greedy", "float32", 0)}
            for options in itertools.product(arguments.normalisers, arguments.precisions, arguments.candidates):
                normaliser, precision, candidates = chosen[str(options)] = options
                runs[str(options)] = turns.lattices(tokens, threads, candidates, normaliser, precision)
            for name, found in (measured := compare(runs, arguments.rounds)).items():
                system, precision, candidates = chosen[name]
                row = {
                    "tokens": tokens,
                    "threads": threads,
                    "system": system,
                    "precision": precision,
                    "candidates": candidates,
                    **found,
                }
                results.append(row | {"gain": measured["greedy"]["median"] / found["median"]})
                print(*line(results[-1]), file=sys.stderr, flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", nargs="+", type=int, default=[8, 16, 32, 64, 128])
    parser.add_argument("--normalisers", nargs="+", default=list(NORMALISERS), choices=NORMALISERS)
    parser.add_argument("--precisions", nargs="+", default=["float32"], choices=["float32", "bfloat16", "int8"])
    parser.add_argument("--tokens", type=int, default=13, help="Tokens of the source, without EOS.")
    parser.add_argument("--by-length", action="store_true")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        turns = Turns(candidate_tables(Path(directory)), arguments.precisions)
        results = run(arguments, turns)
    publish(
        arguments,
        section="Lattices",
        explanation="Networks with random weights, without tokenisation: times faster than greedy autoregressive decoding.",
        columns=[*KEYS, "ms (median)", "ms (least)", "gain", *PARTS],
        rows=[line(row) for row in results],
        seed=1,
        rounds=arguments.rounds,
        spread=spread([row["rounds"] for row in results]),
        figures=results,
    )


if __name__ == "__main__":
    main()
