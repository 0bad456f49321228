"""Time and extra memory of the sum over all paths of a graph, value and gradients, compared with implementations in torch.

All sides run in turns in one process on the same float32 scores. The table has their largest differences from the log-space
recurrence in float64 (`--spread 30` shows where the scaled torch forms fail).

    log space       the recurrence with logsumexp, differentiated by autograd: kernels.reference.dag
    scaled          exponentiated transitions, a bmm a step, each step divided by its sum; differentiated by autograd
    scaled by hand  the same with its analytic gradients: a bmm a step back, and one for the gradient of all transitions

Extra memory is how far a process of its own grows during one forward and backward pass, results included (Linux). The floor is the
time to read all scores and write all gradients once, as copies go. On a GPU "native" is Triton, and memory what torch allocates.

    python -m benchmarks.training.dag_log_likelihood --threads 2 --json dag_kernels.json
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import kernels
from benchmarks.record import publish, spread
from kernels.reference import dag as reference

Sides = dict[str, Callable[["Scores"], Tensor]]


class Scores(NamedTuple):
    """The arguments of the kernels."""

    tokens: Tensor
    transitions: Tensor
    target_lengths: Tensor
    graph_lengths: Tensor


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=32, help="Sentences (B).")
    parser.add_argument("--tokens", type=int, default=20, help="Target tokens (M).")
    parser.add_argument("--vertices", type=int, default=160, help="Vertices (L).")
    parser.add_argument(
        "--spread", type=float, default=2.0, help="The standard deviation of the scores before they are normalised."
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="The device, cpu or cuda.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


def drawn(arguments: argparse.Namespace) -> Scores:
    """Return normalised transitions, and token scores as of a vocabulary of 1,000."""
    size, generator = arguments.vertices, torch.Generator().manual_seed(1)
    tokens = torch.randn(arguments.sentences, arguments.tokens, size, generator=generator) * arguments.spread - 6.9
    transitions = torch.randn(arguments.sentences, size, size - 1, generator=generator) * arguments.spread
    beyond = torch.arange(size)[:, None] + 1 + torch.arange(size - 1) >= size
    transitions = transitions.masked_fill(beyond, -torch.inf)[:, :-1].log_softmax(2)
    transitions = torch.cat((transitions, torch.full((arguments.sentences, 1, size - 1), -torch.inf)), 1)
    lengths = [torch.full((arguments.sentences,), length) for length in (arguments.tokens, size)]
    return to(Scores(tokens.clamp_max(0.0), transitions, *lengths), device=arguments.device)


def to(scores: Scores, **options: Any) -> Scores:
    """Return the scores as leaves of another type or on another device."""
    values = [x.detach().to(**options).requires_grad_() for x in scores[:2]]
    return Scores(*values, *(x.to(values[0].device) for x in scores[2:]))


def scaled(scores: Scores) -> Tensor:
    """Return the sums [B]; a step is a product with exp(transitions), and all sentences have equal lengths."""
    edges, top = kernels.dense_transitions(scores.transitions).exp(), scores.tokens.amax(2).detach()
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
        """Return the gradients.

        beta[t] is divided by the scales of alpha[t+1..] and by the last value of alpha, so that posteriors are plain products.
        """
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
    "scaled by hand": lambda scores: _ByHand.apply(scores.tokens, kernels.dense_transitions(scores.transitions)),  # type: ignore[no-untyped-call]
    "native": lambda scores: kernels.dag_log_likelihood(*scores),
}


def passes(side: str, scores: Scores) -> tuple[Tensor, ...]:
    """Return likelihoods and gradients."""
    found = SIDES[side](scores)
    return (found.detach(), *torch.autograd.grad(found.sum(), scores[:2]))


def grown(arguments: argparse.Namespace, side: str, answer: Any) -> None:
    """Send the number of bytes by which this process grows at most during both passes."""
    torch.set_num_threads(arguments.threads)
    passes(side, drawn(argparse.Namespace(**{**vars(arguments), "sentences": 2})))  # loads libraries and starts threads
    scores = drawn(arguments)
    ctypes.CDLL(None).malloc_trim(0)  # free memory is no longer counted
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before = resident("VmRSS")
    kept = passes(side, scores)
    answer.put(resident("VmHWM") - before)
    del kept


def allocated(arguments: argparse.Namespace, side: str) -> int:
    """Return the bytes that both passes allocate at most on a GPU."""
    scores = drawn(arguments)
    passes(side, scores)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    passes(side, scores)
    return torch.cuda.max_memory_allocated() - before


def resident(what: str) -> int:
    """Return resident bytes, now or at most."""
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
            "rounds": taken,
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
    }


def rows(result: dict[str, Any]) -> list[list[str]]:
    native = result["sides"]["native"]["median_ms"]
    found = [
        [
            side,
            f"{one['median_ms']:.2f}",
            f"{one['median_ms'] / native:.1f}x",
            f"{one['extra_bytes'] / result['input_bytes']:.2f}",
            ", ".join(f"{error:.1e}" for error in one["error"]),
        ]
        for side, one in result["sides"].items()
    ]
    extra = {"native, value alone": result["native_forward_ms"], "floor": result["floor_ms"]}
    return found + [[name, f"{one['median']:.2f}", f"{one['median'] / native:.1f}x", "-", "-"] for name, one in extra.items()]


def main() -> None:
    arguments = parse()
    result = measure(arguments)
    publish(
        arguments,
        section="Graphs",
        explanation=(
            f"Sum over all paths with gradients: {arguments.sentences} sentences, {arguments.tokens} target tokens, "
            f"{arguments.vertices} vertices, float32, {arguments.device}, {arguments.threads} threads."
        ),
        columns=[
            "implementation",
            "ms (median)",
            "native is faster by",
            "extra memory, times the input",
            "errors: log Z, gradients",
        ],
        rows=rows(result),
        seed=1,
        rounds=arguments.rounds,
        spread=spread([one["rounds"] for one in result["sides"].values()]),
        figures=result,
    )


if __name__ == "__main__":
    main()
