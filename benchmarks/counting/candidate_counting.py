"""Time, memory and size of candidate tables of a large corpus, built from synthetic links.

Sentences of 10 to 46 pieces (28 on average); source pieces follow Zipf's law, each has translations that follow a steeper one, and
links lie about the diagonal, the wider the longer the sentence.

    python -m benchmarks.counting.candidate_counting --pairs 4500000 --json build/candidate_tables.json
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.record import publish
from fewstep import CandidateTables
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates

MB = 1e6
SHARD = 131_072
"""Pairs that are counted together."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4_500_000)
    parser.add_argument("--vocabulary", type=int, default=40_000)
    parser.add_argument("--backoff", type=float, default=0.0)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


def zipf(draw: np.random.Generator, size: int, exponent: float, count: int) -> np.ndarray:
    """Return ranks from 0 to size - 1, by inversion of the continuous law."""
    share, power = draw.random(count), 1.0 - exponent
    found = np.exp(share * np.log(size)) if power == 0.0 else (share * (size**power - 1.0) + 1.0) ** (1.0 / power)
    ranks: np.ndarray = np.clip(found.astype(np.int64) - 1, 0, size - 1)
    return ranks


def shard(draw: np.random.Generator, pairs: int, vocabulary: int) -> tuple[Sentences, Sentences, np.ndarray]:
    """Return sources, targets of the same lengths, and links."""
    lengths = draw.integers(10, 47, pairs)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    slots = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    longest = np.repeat(lengths, lengths)
    source = 7 + zipf(draw, vocabulary - 7, 1.0, len(slots))
    positions = np.clip(slots + np.rint(draw.laplace(0.0, 0.08 * longest)).astype(np.int64), 0, longest - 1)
    meant = source[positions + np.repeat(starts[:-1], lengths)]
    target = 7 + (meant * 31 + zipf(draw, vocabulary - 7, 1.6, len(slots))) % (vocabulary - 7)
    return Sentences(source, starts), Sentences(target, starts), positions


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB


def build(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    draw, runs, counting = np.random.default_rng(1), [], 0.0
    options = CountOptions(source_size=arguments.vocabulary, target_size=arguments.vocabulary)
    for first in range(0, arguments.pairs, SHARD):
        source, target, links = shard(draw, min(SHARD, arguments.pairs - first), arguments.vocabulary)
        runs.append(folder / f"{first}.run")
        began = time.perf_counter()
        count_candidates(source, target, links, runs[-1], options=options)
        counting += time.perf_counter() - began
    counted, began = peak(), time.perf_counter()
    summary = merge_candidates(runs, folder / "tables.bin", options=TableOptions(backoff=arguments.backoff))
    merging = time.perf_counter() - began
    began = time.perf_counter()
    CandidateTables.load(folder / "tables.bin")
    return {
        "links": summary.linked,
        "counting_seconds": counting,
        "runs_mb": sum(run.stat().st_size for run in runs) / MB,
        "peak_counting_mb": counted,
        "merging_seconds": merging,
        "peak_mb": peak(),
        "rows": summary.rows,
        "entries": summary.entries,
        "table_mb": summary.file_bytes / MB,
        "cut_percent": 100 * (1 - summary.kept / summary.linked),
        "loading_ms": 1000 * (time.perf_counter() - began),
    }


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        found = build(arguments, Path(folder))
    publish(
        arguments,
        section="Candidate tables",
        explanation=f"A build from {arguments.pairs:,} synthetic pairs of {arguments.vocabulary:,} pieces on one thread.",
        columns=["figure", "value"],
        rows=[[name.replace("_", " "), f"{value:,.1f}"] for name, value in found.items()],
        seed=1,
        rounds=1,
        spread=None,
        note="A single run has no spread.",
        figures=found,
    )


if __name__ == "__main__":
    main()
