"""Equality of verified drafts with the verifier's greedy output, and their gain, by search and size of batch.

    python -m benchmarks.decoding.drafts SYSTEM SOURCE [--searches gad "{gad: {tree_nodes: 8}}"] [--batches 1 32]
        [--sentences 1000] [--rounds 3] [--threads 2] [--json FILE]

SYSTEM is the directory of a system of the family `aggressive`, SOURCE a file of text. The verifier, as a system of its own, decodes
the sentences greedily in batches as they come; so do the searches, which a config could hold and which verify exactly, turn by turn
with it. The outputs must be the same, token for token, and their scores to the last bit; the program fails otherwise. Times are of
decoding alone, without tokenisation: ratios within a round, their median.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from benchmarks.record import publish
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.system import System
from fewstep.translation import Hypothesis
from models.bundle.directory import load_system
from pipeline.config.load import parse_search


@dataclass(frozen=True)
class Pass:
    """The outcome of one pass over all sentences."""

    found: list[Hypothesis]
    seconds: float

    @property
    def tokens_a_pass(self) -> float:
        """Return target tokens for each pass of the verifier, EOS included."""
        return sum(len(one.ids) + 1 for one in self.found) / sum(one.steps for one in self.found)


def decoded(system: System, sources: Sequence[Sequence[int]], search: Any, size: int) -> Pass:
    start = time.perf_counter()
    found = [
        ranked[0]
        for first in range(0, len(sources), size)
        for ranked in system.decoder.decode(system.decoder.prepare(sources[first : first + size], search), search)
    ]
    return Pass(found, time.perf_counter() - start)


def same(expected: Pass, found: Pass) -> int:
    """Return the number of outputs with equal tokens and equal scores."""
    pairs = zip(expected.found, found.found, strict=True)
    return sum(list(one.ids) == list(other.ids) and one.score == other.score for one, other in pairs)


def compared(
    system: System, verifier: System, sources: Sequence[Sequence[int]], searches: Sequence[AggressiveSearch], size: int, rounds: int
) -> list[dict[str, Any]]:
    """Return a row for each search, in batches of `size`."""
    gains: list[list[float]] = [[] for _ in searches]
    for _ in range(rounds):
        greedy = decoded(verifier, sources, StepwiseSearch(), size)
        passes = [decoded(system, sources, search, size) for search in searches]
        for gain, one in zip(gains, passes, strict=True):
            gain.append(greedy.seconds / one.seconds)
    return [
        {
            "batch": size,
            "search": search.label,
            "same": same(greedy, one),
            "tokens_a_pass": one.tokens_a_pass,
            "gain": statistics.median(gain),
            "gains": gain,
        }
        for search, one, gain in zip(searches, passes, gains, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--searches", nargs="+", default=["gad"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-verify", action="store_true", help="Load systems without comparing checksums.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    system = load_system(arguments.system, verify=not arguments.no_verify)
    verifier = load_system(arguments.system / "verifier", verify=False)  # compared as a part of the system
    lines = [line for line in arguments.source.read_text(encoding="utf-8").splitlines() if line.strip()]
    sources = system.encode(lines[: arguments.sentences])
    searches = [cast(AggressiveSearch, parse_search(text, "--searches", "aggressive")) for text in arguments.searches]
    results = [row for size in arguments.batches for row in compared(system, verifier, sources, searches, size, arguments.rounds)]
    publish(
        arguments,
        section="Drafts",
        explanation=f"`{system.name}`, {len(sources)} sentences, no tokenisation: times faster than its verifier's greedy search.",
        columns=["batch", "search", "same outputs", "tokens a pass", "times faster", "rounds"],
        rows=[
            [
                *(str(row[key]) for key in ("batch", "search", "same")),
                f"{row['tokens_a_pass']:.2f}",
                f"{row['gain']:.2f}x",
                f"{min(row['gains']):.2f} to {max(row['gains']):.2f}",
            ]
            for row in results
        ],
        seed=None,
        rounds=arguments.rounds,
        spread="column `rounds`",
        note="Nothing is random.",
        figures=results,
    )
    if any(row["same"] != len(sources) for row in results):
        sys.exit("expected the verifier's greedy outputs and scores everywhere; see the column `same`")


if __name__ == "__main__":
    main()
