"""Correctness and speed on a GPU, in one command that needs neither Ray, MLflow nor a network.

    python -m benchmarks.gpu [--device cuda] [--size base] [--precision float16] [--minutes 10] [--json FILE]

It checks kernels and engines against references on the CPU, times the loss of graphs (native and the recurrence in torch) beside
the time of one pass over its memory, decodes with every family at batch 1, 32 and 128 beside CTranslate2 where that has the device,
and trains beside a bare loop. Networks have random weights and read and write 27 tokens. An entry that fails says why. The exit
code is 1 if a check failed. `--device cpu --size tiny --precision float32` tries the program without a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

import kernels
from benchmarks.gpu import agreement, decoding, training
from benchmarks.origin import command, commit, machine, versions
from kernels.reference import dag as reference


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="base", choices=["tiny", "base"])
    parser.add_argument(
        "--precision", default="float16", choices=["float32", "float16", "bfloat16"], help="The precision of decoding."
    )
    parser.add_argument("--training-precision", default="bfloat16", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32, 128])
    parser.add_argument("--tokens", type=int, default=27)
    parser.add_argument("--batch-tokens", type=int, default=8192, help="Target tokens of an update.")
    parser.add_argument("--updates", type=int, default=20, help="Updates of a side in a round.")
    parser.add_argument("--graphs", nargs=3, type=int, default=[32, 40, 320], metavar=("B", "M", "L"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=10.0, help="Entries that begin later are left out.")
    parser.add_argument("--json", type=Path, help="Write the results to this file.")
    return parser.parse_args()


def graph_loss(device: str, shape: list[int], rounds: int) -> dict[str, Any]:
    """Return the milliseconds of value and gradients, and of a copy of as many bytes as they read and write at least."""
    given = agreement.graph_scores(device, *shape)
    sides = {"native": kernels.dag_log_likelihood, "torch": reference.dag_log_likelihood}
    copies = [(part.detach(), torch.empty_like(part)) for part in given[:2]]
    times: dict[str, list[float]] = {name: [] for name in (*sides, "copy")}
    for turn in range(rounds + 1):
        for name in times:
            began = time.perf_counter()
            if name == "copy":
                for source, target in copies:
                    target.copy_(source)
            else:
                torch.autograd.grad(sides[name](*given).sum(), given[:2])
            decoding.synchronize(device)
            if turn:
                times[name].append(1000 * (time.perf_counter() - began))
    return {"shape": shape, "ms": {name: statistics.median(taken) for name, taken in times.items()}, "rounds": times}


def card(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else machine()


def show(result: dict[str, Any], batches: list[int]) -> None:
    """Print the results as text."""
    print(f"{result['card']}, torch {torch.__version__}")
    for row in result["checks"]:
        print(f"{'ok' if row['passed'] else 'FAILED':8}{row['check']:32}{row.get('error', row['difference'])}")
    print("graph loss, ms:", ", ".join(f"{name} {value:.2f}" for name, value in result["graph_loss"]["ms"].items()))
    for row in result["training"]:
        print(f"{row['family']:12}bare {row['bare']:12,.0f} tokens/s   ours {row['ours']:12,.0f} tokens/s")
    print(f"{'entry':36}" + "".join(f"{f'batch {batch}: ms':>16}{'sentences/s':>14}" for batch in batches))
    for row in result["decoding"]:
        measured = [(batch, row[f"batch {batch}"]["ms"]) for batch in batches if f"batch {batch}" in row]
        text = "".join(f"{taken:16.2f}{1000 * batch / taken:14.0f}" for batch, taken in measured)
        print(f"{row['entry']:36}{text}{row.get('error', '')}")


def main() -> int:
    arguments = parse()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("device: expected a CUDA GPU that torch can use, found none; try --device cpu --size tiny --precision float32")
        return 2
    deadline = time.monotonic() + 60 * arguments.minutes
    device, size = arguments.device, arguments.size
    result: dict[str, Any] = {
        "card": card(device),
        "command": command(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "checks": agreement.check(device, size),
        "graph_loss": graph_loss(device, arguments.graphs, arguments.rounds),
        "training": training.measure(
            size,
            ("stepwise", "dag"),
            arguments.training_precision,
            device,
            arguments.batch_tokens,
            arguments.updates,
            arguments.rounds,
        ),
    }
    result["decoding"] = decoding.measure(
        size, arguments.tokens, arguments.precision, device, arguments.batches, arguments.rounds, deadline
    )
    show(result, arguments.batches)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0 if all(row["passed"] for row in result["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
