"""Scores of tokens and their gradients, as trainings of Directed Acyclic Transformers ask for them, by the kernel and by torch.

    python benchmarks/token_scores.py [--rows 16000] [--vocabulary 2000] [--width 128] [--tokens 16] [--precision bf16] [--rounds 5]

Both sides run the same products part by part; they take turns. Seconds are CPU time of forward and backward, the median and the
least of all rounds. One thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from models.common.losses import cross_entropy
from models.common.losses.token_scores import token_scores

GRAPH = 64
"""Vertices of each graph."""


def seconds(states: Tensor, weight: Tensor, targets: Tensor, precision: str) -> float:
    """CPU seconds of one forward and backward."""
    started = time.process_time()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        found = token_scores(states, weight, targets, smoothing=0.1).log_probs
    torch.autograd.grad(found.sum(), (states, weight))
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16000)
    parser.add_argument("--vocabulary", type=int, default=2000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write the result")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
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
    for side, found in result.items():
        print(f"{side:8s} {found['median']:8.3f} s   least {found['least']:8.3f} s")
    print(f"ratio    {result['torch']['median'] / result['kernel']['median']:8.2f}")
    if arguments.json:
        conditions = {name: value for name, value in vars(arguments).items() if name != "json"}
        whole = {"seconds": result, "conditions": conditions, "versions": {"torch": torch.__version__}}
        arguments.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
