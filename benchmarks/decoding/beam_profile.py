"""Shares of the time of beam search through torch: the network, operations over the vocabulary, and bookkeeping.

    python -m benchmarks.decoding.beam_profile SYSTEM_DIRECTORY SOURCE_TEXT [--sentences 1000] [--batch-size 32] [--beam-size 5]

Bookkeeping is all that is neither the network, with its log-softmax, nor a top-k over the vocabulary: ranking joint continuations,
finishing hypotheses, reordering keys and values, tracing back.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import publish, spread
from fewstep.families.stepwise.config import StepwiseSearch
from models.bundle.directory import load_system
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.search import beam
from models.stepwise.search.incremental import IncrementalDecoder

NETWORK, VOCABULARY = "network", "vocabulary"
PARTS = (
    (IncrementalDecoder, "start", NETWORK),
    (IncrementalDecoder, "log_probs", NETWORK),
    (beam, "slot_candidates", VOCABULARY),
)


@contextmanager
def clocked(seconds: dict[str, float]) -> Iterator[None]:
    """Add up the time of each of `PARTS`; none of them calls another."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in PARTS]

    def clock(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                seconds[part] += time.perf_counter() - started

        return run

    for (owner, name, function), (_, _, part) in zip(originals, PARTS, strict=True):
        setattr(owner, name, clock(function, part))
    try:
        yield
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)


def profile(system: Any, sources: list[list[int]], search: StepwiseSearch, batch_size: int) -> dict[str, float]:
    """Return shares of the wall time of decoding all `sources`, sorted by length and cut into batches."""
    decoder = StepwiseDecoder(system.decoder.model)
    ordered = sorted((source for source in sources if source), key=len)
    seconds: dict[str, float] = defaultdict(float)
    started = time.perf_counter()
    with clocked(seconds):
        for start in range(0, len(ordered), batch_size):
            decoder.decode(decoder.prepare(ordered[start : start + batch_size]), search)
    total = time.perf_counter() - started
    shares = {part: seconds[part] / total for part in (NETWORK, VOCABULARY)}
    return {**shares, "bookkeeping": 1 - sum(shares.values()), "seconds": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--selection", default="exact")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-verify", action="store_true", help="Load systems without comparing checksums.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    system = load_system(arguments.system, verify=not arguments.no_verify)
    lines = arguments.source.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    search = StepwiseSearch(strategy="beam", beam_size=arguments.beam_size, selection=arguments.selection)
    rounds = [profile(system, system.encode(lines), search, arguments.batch_size) for _ in range(arguments.rounds)]
    medians = {part: statistics.median(one[part] for one in rounds) for part in rounds[0]}
    batches = f"batches of {arguments.batch_size}, beam {arguments.beam_size}, {arguments.threads} thread(s)"
    shares = [f"{medians[part]:.1%}" for part in (NETWORK, VOCABULARY, "bookkeeping")]
    publish(
        arguments,
        section="Several tokens a step",
        explanation=f"Shares of the time of beam search through torch, {len(lines)} sentences, {batches}.",
        columns=["system", "network", "vocabulary", "bookkeeping", "seconds"],
        rows=[[system.name, *shares, f"{medians['seconds']:.2f}"]],
        seed=None,
        rounds=arguments.rounds,
        spread=spread([[one["seconds"] for one in rounds]]),
        note="Nothing is random.",
        figures=rounds,
    )


if __name__ == "__main__":
    main()
