"""Time of `kernels.lattice_viterbi` by candidates, sentences and threads, on random scores.

    python benchmarks/lattice_viterbi.py [--candidates 8 64] [--batches 1 32] [--threads 1 2] [--rounds 50] [--json FILE]

All lengths of the window (slots - 6 to slots words) are admitted. Milliseconds are wall time of a call from Python, the median and
the least of all rounds; "sentences/s" goes by the median, "gain" is how many times those of one sentence on one thread.
Scores are as large as they are: 34 slots of 64 candidates are 0.5 MB a sentence, and reading them is most of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from kernels import lattice_max_marginals, lattice_n_best, lattice_viterbi


def lattices(sentences: int, slots: int, candidates: int) -> tuple[Any, ...]:
    draw = np.random.default_rng(1)
    shapes = (sentences, candidates), (sentences, slots - 1, candidates, candidates), (sentences, slots, candidates)
    scores = [np.log(draw.random(shape, dtype=np.float32)) for shape in shapes]
    return (*scores, np.full(sentences, max(1, slots - 6)), np.full(sentences, slots))


def clock(search: Any, rounds: int) -> dict[str, float]:
    """Milliseconds of a call; the first two are not counted."""
    times = []
    for _ in range(rounds + 2):
        started = time.perf_counter()
        search()
        times.append(1000 * (time.perf_counter() - started))
    return {"median": statistics.median(times[2:]), "least": min(times[2:])}


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
            print(line(results[-1]), flush=True)
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
            print(line(results[-1]), flush=True)
    return results


def line(row: dict[str, Any]) -> str:
    conditions = f"{row['search']:9s} {row['candidates']:4d} {row['batch']:6d} {row['threads']:8d}"
    return f"{conditions} {row['median']:9.4f} {row['least']:9.4f} {row['sentences_per_second']:12.0f} {row['gain']:6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=34, help="N, words of the longest path")
    parser.add_argument("--candidates", nargs="+", type=int, default=[8, 16, 32, 64, 128])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print("search       K  batch  threads  ms median     least  sentences/s   gain")
    results = run(arguments)
    if arguments.json:
        conditions = {name: value for name, value in vars(arguments).items() if name != "json"}
        versions = {"numpy": np.__version__, "python": platform.python_version(), "machine": platform.processor()}
        whole = {"results": results, "conditions": conditions, "versions": versions}
        arguments.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
