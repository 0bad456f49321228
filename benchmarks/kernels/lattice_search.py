"""Time of the searches of lattices by candidates, sentences and threads, on random scores.

    python -m benchmarks.kernels.lattice_search [--candidates 8 64] [--batches 1 32] [--threads 1 2] [--rounds 50] [--json FILE]

All lengths of the window (slots - 6 to slots tokens) are admitted. Milliseconds are wall time of a call from Python, the median and
the least of all rounds; "sentences/s" goes by the median, "gain" is how many times those of one sentence on one thread.
Scores of 34 slots of 64 candidates are 0.5 MB a sentence; reading them takes most of the time.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import publish, spread
from kernels import lattice_max_marginals, lattice_n_best, lattice_viterbi


def lattices(sentences: int, slots: int, candidates: int) -> tuple[Any, ...]:
    draw = np.random.default_rng(1)
    shapes = (sentences, candidates), (sentences, slots - 1, candidates, candidates), (sentences, slots, candidates)
    scores = [np.log(draw.random(shape, dtype=np.float32)) for shape in shapes]
    return (*scores, np.full(sentences, max(1, slots - 6)), np.full(sentences, slots))


def clock(search: Any, rounds: int) -> dict[str, Any]:
    """Return milliseconds of a call; the first two are not counted."""
    times = []
    for _ in range(rounds + 2):
        started = time.perf_counter()
        search()
        times.append(1000 * (time.perf_counter() - started))
    return {"median": statistics.median(times[2:]), "least": min(times[2:]), "rounds": times[2:]}


def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for candidates in arguments.candidates:
        first = 0.0
        for batch, threads in itertools.product(arguments.batches, arguments.threads):
            if threads > batch:
                continue
            given = lattices(batch, arguments.slots, candidates)
            found = clock(lambda given=given, threads=threads: lattice_viterbi(*given, threads=threads), arguments.rounds)
            rate = 1000 * batch / found["median"]
            first = first or rate
            row = {
                "search": "viterbi",
                "candidates": candidates,
                "batch": batch,
                "threads": threads,
                **found,
                "sentences_per_second": rate,
            }
            results.append(row | {"gain": rate / first})
            print(*line(results[-1]), file=sys.stderr, flush=True)
        given = lattices(1, arguments.slots, candidates)
        others = {
            "5 best": lambda given=given: lattice_n_best(*given, n_best=5),
            "marginals": lambda given=given: lattice_max_marginals(*given),
        }
        for name, search in others.items():
            found = clock(search, max(1, arguments.rounds // 5))
            rate = 1000 / found["median"]
            row = {"search": name, "candidates": candidates, "batch": 1, "threads": 1, **found, "sentences_per_second": rate}
            results.append(row | {"gain": rate / first})
            print(*line(results[-1]), file=sys.stderr, flush=True)
    return results


KEYS = ("search", "candidates", "batch", "threads")


def line(row: dict[str, Any]) -> list[str]:
    figures = [f"{row['median']:.4f}", f"{row['least']:.4f}", f"{row['sentences_per_second']:,.0f}", f"{row['gain']:.2f}x"]
    return [*(str(row[key]) for key in KEYS), *figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=34, help="Words of the longest path (N).")
    parser.add_argument("--candidates", nargs="+", type=int, default=[8, 16, 32, 64, 128])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    results = run(arguments)
    publish(
        arguments,
        section="Lattices",
        explanation=f"Searches of lattices of {arguments.slots} slots with random scores.",
        columns=[*KEYS, "ms (median)", "ms (least)", "sentences/s", "gain"],
        rows=[line(row) for row in results],
        seed=1,
        rounds=arguments.rounds,
        spread=spread([row["rounds"] for row in results]),
        figures=results,
    )


if __name__ == "__main__":
    main()
