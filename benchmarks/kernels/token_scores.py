"""Time of token scores and their gradients in training a Directed Acyclic Transformer, by the kernel and by torch.

    python -m benchmarks.kernels.token_scores [--rows 16000] [--vocabulary 2000] [--width 128] [--tokens 16] [--precision bfloat16]
        [--rounds 5] [--json FILE]

Both sides run the same products part by part; they take turns. Seconds are CPU time of forward and backward, the median and the
least of all rounds. One thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.record import publish, spread
from models.common.losses import cross_entropy
from models.common.losses.token_scores import token_scores

GRAPH = 64
"""Vertices of each graph."""


def seconds(states: Tensor, weight: Tensor, targets: Tensor, precision: str) -> float:
    """Return CPU seconds of one forward and backward pass."""
    started = time.process_time()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        found = token_scores(states, weight, targets, smoothing=0.1).log_probs
    torch.autograd.grad(found.sum(), (states, weight))
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16000)
    parser.add_argument("--vocabulary", type=int, default=2000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    batch = max(1, arguments.rows // GRAPH)
    states = torch.randn(batch, GRAPH, arguments.width, requires_grad=True)
    weight = torch.randn(arguments.vocabulary, arguments.width, requires_grad=True)
    targets = torch.randint(arguments.vocabulary, (batch, arguments.tokens))
    times: dict[str, list[float]] = {"kernel": [], "torch": []}
    for turn in range(arguments.rounds + 1):
        for side, native in (("kernel", True), ("torch", False)):
            with patch.object(cross_entropy, "is_native", lambda x, native=native: native):
                taken = seconds(states, weight, targets, arguments.precision)
            if turn:
                times[side].append(taken)
    result = {side: {"median": statistics.median(taken), "least": min(taken)} for side, taken in times.items()}
    slowest = result["torch"]["median"]
    publish(
        arguments,
        section="Graphs",
        explanation=(
            f"Scores and gradients: {arguments.rows} rows of {arguments.vocabulary} logits, {arguments.precision}, one thread."
        ),
        columns=["side", "seconds (median)", "seconds (least)", "times faster than torch"],
        rows=[
            [side, f"{found['median']:.3f}", f"{found['least']:.3f}", f"{slowest / found['median']:.2f}x"]
            for side, found in result.items()
        ],
        seed=1,
        rounds=arguments.rounds,
        spread=spread(times.values()),
        figures=times,
    )


if __name__ == "__main__":
    main()
