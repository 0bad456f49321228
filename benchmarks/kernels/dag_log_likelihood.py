"""Milliseconds and extra memory of the sum over all paths of a graph, value and gradients, beside what torch can do.

All sides run in turn in one process on the same float32 scores, some rounds over. Their largest differences from the log-space
recurrence in float64 stand beside (--spread 30 shows where the scaled torch forms break).

    log space       the recurrence with logsumexp, differentiated by autograd: kernels.reference.dag
    scaled          exponentiated transitions, a bmm a step, each step divided by its sum; differentiated by autograd
    scaled by hand  the same with its analytic gradients: a bmm a step back, and one for the gradient of all transitions

Extra memory is how far a process of its own grows during one forward and backward pass, results included (Linux). The floor is the
time to read all scores and write all gradients once, as copies go. On a GPU "native" is Triton, and memory what torch allocates.

    python benchmarks/dag_kernels.py --threads 2 --json dag_kernels.json
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import kernels
from kernels.reference import dag as reference

Sides = dict[str, Callable[["Scores"], Tensor]]


class Scores(NamedTuple):
    """What the kernels take."""

    tokens: Tensor
    transitions: Tensor
    target_lengths: Tensor
    graph_lengths: Tensor


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=32, help="B")
    parser.add_argument("--tokens", type=int, default=20, help="M")
    parser.add_argument("--vertices", type=int, default=160, help="L")
    parser.add_argument("--spread", type=float, default=2.0, help="standard deviation of the scores before they are normalised")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="where to write the result")
    return parser.parse_args()


def drawn(arguments: argparse.Namespace) -> Scores:
    """Normalised transitions; token scores as of a vocabulary of 1000."""
    size, generator = arguments.vertices, torch.Generator().manual_seed(1)
    tokens = torch.randn(arguments.sentences, arguments.tokens, size, generator=generator) * arguments.spread - 6.9
    transitions = torch.randn(arguments.sentences, size, size, generator=generator) * arguments.spread
    transitions = transitions.masked_fill(torch.ones(size, size).tril() > 0, -torch.inf)[:, :-1].log_softmax(2)
    transitions = torch.cat((transitions, torch.full((arguments.sentences, 1, size), -torch.inf)), 1)
    lengths = [torch.full((arguments.sentences,), length) for length in (arguments.tokens, size)]
    return to(Scores(tokens.clamp_max(0.0), transitions, *lengths), device=arguments.device)


def to(scores: Scores, **options: Any) -> Scores:
    """The scores as leaves of another type or on another device."""
    values = [x.detach().to(**options).requires_grad_() for x in scores[:2]]
    return Scores(*values, *(x.to(values[0].device) for x in scores[2:]))


def scaled(scores: Scores) -> Tensor:
    """A step is a product with exp(transitions); sentences of equal lengths."""
    edges, top = scores.transitions.exp(), scores.tokens.amax(2).detach()
    weights = (scores.tokens - top[:, :, None]).exp()
    cells = torch.zeros_like(weights[:, 0])
    cells[:, 0] = 1.0
    cells, total = cells * weights[:, 0], top.sum(1)
    for t in range(1, weights.size(1)):
        cells = torch.bmm(cells[:, None], edges)[:, 0] * weights[:, t]
        scale = cells.sum(1, keepdim=True)
        cells, total = cells / scale, total + scale[:, 0].log()
    return total + cells[:, -1].log()


class _ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, transitions: Tensor) -> Tensor:
        edges, top = transitions.exp(), tokens.amax(2, keepdim=True)
        weights = (tokens - top).exp()
        alpha = torch.zeros_like(weights)
        alpha[:, 0, 0] = weights[:, 0, 0]
        logs = torch.zeros_like(top)
        for t in range(1, tokens.size(1)):
            cells = torch.bmm(alpha[:, t - 1 : t], edges) * weights[:, t : t + 1]
            scale = cells.sum(2, keepdim=True)
            torch.div(cells, scale, out=alpha[:, t : t + 1])
            logs[:, t : t + 1] = scale.log()
        ctx.save_for_backward(edges, weights, alpha, logs)
        return (top + logs).sum((1, 2)) + alpha[:, -1, -1].log()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor]:
        """beta[t] is divided by the scales of alpha[t+1..] and by what alpha ends with, so that posteriors are plain products."""
        edges, weights, alpha, logs = ctx.saved_tensors
        beta, posterior, scales = torch.zeros_like(weights), torch.zeros_like(weights), logs.exp()
        beta[:, -1, -1] = weights[:, -1, -1] / scales[:, -1, 0] / alpha[:, -1, -1]
        posterior[:, -1, -1] = 1.0
        for t in range(weights.size(1) - 2, -1, -1):
            rest = torch.bmm(edges, beta[:, t + 1, :, None])[:, :, 0]
            torch.mul(alpha[:, t], rest, out=posterior[:, t])
            torch.div(rest * weights[:, t], scales[:, t], out=beta[:, t])
        alpha = alpha * upstream[0][:, None, None]
        gradient = torch.bmm(alpha[:, :-1].transpose(1, 2), beta[:, 1:]).mul_(edges)
        return posterior * upstream[0][:, None, None], gradient


SIDES: Sides = {
    "log space": lambda scores: reference.dag_log_likelihood(*scores),
    "scaled": scaled,
    "scaled by hand": lambda scores: _ByHand.apply(scores.tokens, scores.transitions),  # type: ignore[no-untyped-call]
    "native": lambda scores: kernels.dag_log_likelihood(*scores),
}


def passes(side: str, scores: Scores) -> tuple[Tensor, ...]:
    """Likelihoods and gradients."""
    found = SIDES[side](scores)
    return (found.detach(), *torch.autograd.grad(found.sum(), scores[:2]))


def grown(arguments: argparse.Namespace, side: str, answer: Any) -> None:
    """Sends by how many bytes this process grows at most while it does both passes."""
    torch.set_num_threads(arguments.threads)
    passes(side, drawn(argparse.Namespace(**{**vars(arguments), "sentences": 2})))  # loads libraries and starts threads
    scores = drawn(arguments)
    ctypes.CDLL(None).malloc_trim(0)  # what is free is no longer counted
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    before = resident("VmRSS")
    kept = passes(side, scores)
    answer.put(resident("VmHWM") - before)
    del kept


def allocated(arguments: argparse.Namespace, side: str) -> int:
    """The same on a GPU."""
    scores = drawn(arguments)
    passes(side, scores)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    passes(side, scores)
    return torch.cuda.max_memory_allocated() - before


def resident(what: str) -> int:
    """Bytes, now or at most."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))


def extra_memory(arguments: argparse.Namespace, side: str) -> int:
    if arguments.device != "cpu":
        return allocated(arguments, side)
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=grown, args=(arguments, side, answer))
    process.start()
    found = int(answer.get(timeout=600))
    process.join()
    return found


def milliseconds(action: Callable[[], Any], device: str) -> float:
    began = time.perf_counter()
    action()
    if device != "cpu":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(arguments.threads)
    scores, device = drawn(arguments), arguments.device
    exact = passes("log space", to(scores, dtype=torch.float64))
    errors = {side: [float((x - y).abs().max()) for x, y in zip(passes(side, scores), exact, strict=True)] for side in SIDES}
    del exact
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    forward, floor = [], []
    copies = [(x.detach(), torch.empty_like(x)) for x in scores[:2]]
    for _ in range(arguments.rounds):
        for side, taken in times.items():
            taken.append(milliseconds(lambda side=side: passes(side, scores), device))  # type: ignore[misc]
        with torch.no_grad():
            forward.append(milliseconds(lambda: SIDES["native"](scores), device))
        floor.append(milliseconds(lambda: [to.copy_(x) for x, to in copies], device))
    size = sum(x.nbytes for x in scores[:2])
    sides = {
        side: {
            "median_ms": statistics.median(taken),
            "best_ms": min(taken),
            "error": errors[side],
            "extra_bytes": extra_memory(arguments, side),
        }
        for side, taken in times.items()
    }
    return {
        "sides": sides,
        "native_forward_ms": {"median": statistics.median(forward), "best": min(forward)},
        "floor_ms": {"median": statistics.median(floor), "best": min(floor)},
        "input_bytes": size,
        "conditions": {name: value for name, value in vars(arguments).items() if name != "json"},
        "versions": {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.processor() or platform.machine(),
        },
    }


def show(result: dict[str, Any]) -> None:
    conditions, sides = result["conditions"], result["sides"]
    print(
        f"forward + backward, B={conditions['sentences']} M={conditions['tokens']} L={conditions['vertices']}, float32, "
        f"{conditions['device']}, {conditions['threads']} threads, {conditions['rounds']} rounds; "
        f"scores take {result['input_bytes'] / 1e6:.2f} MB"
    )
    columns = "".join(f"{name:>10s}" for name in ("median ms", "best ms", "x native", "extra MB", "x input"))
    print(f"{'':16s}{columns}   largest errors: log Z, gradients")
    for side, found in sides.items():
        print(
            f"{side:16s}{found['median_ms']:10.2f}{found['best_ms']:10.2f}{found['median_ms'] / sides['native']['median_ms']:10.1f}"
            f"{found['extra_bytes'] / 1e6:10.2f}{found['extra_bytes'] / result['input_bytes']:10.2f}   "
            + " ".join(f"{error:.1e}" for error in found["error"])
        )
    forward = result["native_forward_ms"]
    print(f"{'native, value':16s}{forward['median']:10.2f}{forward['best']:10.2f}")
    print(f"{'floor':16s}{result['floor_ms']['median']:10.2f}{result['floor_ms']['best']:10.2f}")


def main() -> None:
    arguments = parse()
    result = measure(arguments)
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
