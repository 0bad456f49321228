"""Sums and maxima over all paths of a directed acyclic graph (Huang et al. 2022, "Directed Acyclic Transformer", section 3).

A graph has L vertices. A path starts at vertex 0, ends at vertex graph_length - 1, visits strictly ascending vertices, and emits
one token of the target at each, BOS and EOS among them. Its score is

    sum_t token_log_probs[t, v_t] + sum_t transition_log_probs[v_t, v_{t+1}]

All functions take, for B sentences of at most M target tokens and L vertices,

    token_log_probs [B,M,L]       log P(y_t | vertex j)
    transition_log_probs [B,L,D]  log E(i -> i + 1 + d), to the next D < L vertices; not read beyond the graph
    target_lengths [B] int64      tokens with BOS and EOS, 0 to M
    graph_lengths [B] int64       vertices, 0 to L

in natural logarithms, float32 or float64; the sums run in float64. D is the number of vertices that may follow a vertex, L - 1 for
all of them; time and memory are linear in it. Cells that no path of the sentence's own lengths reaches are never read. A sentence
without a path (for example with a target longer than its graph) gives minus infinity and zero gradients; one whose paths meet a NaN
or plus infinity gives NaN and zero gradients; neither affects other sentences. Raises ValueError or TypeError for arrays that do
not fit together. Results do not depend on `threads` (None: as many as torch uses).

Tensors on a GPU are processed there, in their own type (`kernels.gpu.dag`, which needs triton).

`kernels.reference.dag` is the slow reference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewstep.native import fewstep_native


class DagAlignment(NamedTuple):
    """The best path of each sentence."""

    vertices: Tensor
    """[B,M] int64, the vertex of each token; -1 past the target, and everywhere if no path exists."""
    scores: Tensor
    """[B] the score of the path, minus infinity if no path exists."""


def dag_log_likelihood(
    token_log_probs: Tensor,
    transition_log_probs: Tensor,
    target_lengths: Tensor,
    graph_lengths: Tensor,
    *,
    threads: int | None = None,
) -> Tensor:
    """Return [B], the log of the sum over all paths of exp(score) (equation 4 of the paper, by the recurrence of equation 14).

    Differentiable once. The gradient, that is the posteriors of tokens at vertices and of transitions, is computed along with the
    value.
    """
    _check(token_log_probs, transition_log_probs, target_lengths, graph_lengths)
    if token_log_probs.is_cuda:
        from kernels.gpu import dag as gpu

        return gpu.log_likelihood(token_log_probs, transition_log_probs, target_lengths, graph_lengths)
    found: Tensor = _LogLikelihood.apply(  # type: ignore[no-untyped-call]
        token_log_probs,
        transition_log_probs,
        target_lengths,
        graph_lengths,
        threads or torch.get_num_threads(),
        torch.is_grad_enabled() and (token_log_probs.requires_grad or transition_log_probs.requires_grad),
    )
    return found


def dag_best_alignment(
    token_log_probs: Tensor,
    transition_log_probs: Tensor,
    target_lengths: Tensor,
    graph_lengths: Tensor,
    *,
    threads: int | None = None,
) -> DagAlignment:
    """Return the path of the highest score. Among equal paths the one with the lowest vertex where they differ wins, seen from the
    end."""
    _check(token_log_probs, transition_log_probs, target_lengths, graph_lengths)
    if token_log_probs.is_cuda:
        from kernels.gpu import dag as gpu

        return DagAlignment(*gpu.best_alignment(token_log_probs, transition_log_probs, target_lengths, graph_lengths))
    vertices = torch.empty(token_log_probs.shape[:2], dtype=torch.int64)
    scores = torch.empty(len(token_log_probs), dtype=token_log_probs.dtype)
    fewstep_native.dag_best_alignment(
        *_arrays(token_log_probs, transition_log_probs, target_lengths, graph_lengths, vertices, scores),
        threads=threads or torch.get_num_threads(),
    )
    return DagAlignment(vertices, scores)


def dag_max_log_likelihood(
    token_log_probs: Tensor,
    transition_log_probs: Tensor,
    target_lengths: Tensor,
    graph_lengths: Tensor,
    *,
    threads: int | None = None,
) -> Tensor:
    """Return [B], the highest score of a path: the paper's objective without marginalisation. Its gradient is 1 along the best
    path."""
    vertices, scores = dag_best_alignment(
        token_log_probs.detach(), transition_log_probs.detach(), target_lengths, graph_lengths, threads=threads
    )
    on_path = vertices >= 0
    tokens = token_log_probs.gather(2, vertices.clamp_min(0)[:, :, None])[:, :, 0]
    total = tokens.where(on_path, 0.0).sum(1)
    if band := transition_log_probs.size(2):
        start, end = vertices[:, :-1], vertices[:, 1:]
        edges = (start * band + end - start - 1).where(on_path[:, 1:], 0)
        transitions = transition_log_probs.flatten(1).gather(1, edges)
        total = total + transitions.where(on_path[:, 1:], 0.0).sum(1)
    return total.where(on_path.any(1), scores)


def dense_transitions(transition_log_probs: Tensor) -> Tensor:
    """Return [B,L,L], log E(i -> j) in cell (i, j) and minus infinity where there is no transition, for analyses and tests,
    and Viterbi search on a GPU: its size is quadratic in the number of vertices."""
    batch, size, band = transition_log_probs.shape
    vertex = torch.arange(size, device=transition_log_probs.device)
    cells = vertex - vertex[:, None] - 1
    cells = cells.where((cells >= 0) & (cells < band), band)  # a further cell, of minus infinity
    padded = torch.nn.functional.pad(transition_log_probs, (0, 1), value=-torch.inf)
    return padded.gather(2, cells.expand(batch, -1, -1))


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        transitions: Tensor,
        target_lengths: Tensor,
        graph_lengths: Tensor,
        threads: int,
        with_gradient: bool,
    ) -> Tensor:
        scores = tokens, transitions, target_lengths, graph_lengths
        if not with_gradient:
            found = torch.empty(len(tokens), dtype=tokens.dtype)
            fewstep_native.dag_log_likelihood(*_arrays(*scores, found), log_space=False, threads=threads)
            return found
        found, *ctx.posteriors = _posteriors(*scores, threads)
        ctx.save_for_backward(*scores)
        ctx.threads = threads
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        # The posteriors become the gradients in place; a second backward pass computes them again.
        tokens, transitions, target_lengths, graph_lengths = ctx.saved_tensors
        posteriors = ctx.posteriors or _posteriors(tokens, transitions, target_lengths, graph_lengths, ctx.threads)[1:]
        ctx.posteriors = None
        gradients = (posterior.mul_(upstream[0][:, None, None]) for posterior in posteriors)
        return (*gradients, None, None, None, None)


def _posteriors(
    tokens: Tensor, transitions: Tensor, target_lengths: Tensor, graph_lengths: Tensor, threads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-likelihoods [B] and the posteriors [B,M,L] of tokens at vertices and [B,L,D] of transitions."""
    found = torch.empty(len(tokens), dtype=tokens.dtype)
    cells = torch.empty(tokens.shape, dtype=tokens.dtype), torch.empty(transitions.shape, dtype=tokens.dtype)
    arrays = _arrays(tokens, transitions, target_lengths, graph_lengths, found, *cells)
    fewstep_native.dag_posteriors(*arrays, log_space=False, threads=threads)
    return found, *cells


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def _check(tokens: Tensor, transitions: Tensor, target_lengths: Tensor, graph_lengths: Tensor) -> None:
    named = {"token_log_probs": tokens, "transition_log_probs": transitions}
    for name, scores in named.items():
        if scores.dtype not in (torch.float32, torch.float64) or scores.dtype != tokens.dtype:
            raise TypeError(
                f"{name}: expected float32, or float64 like the other scores, got {scores.dtype}; convert it with .float()"
            )
        if scores.ndim != 3:
            raise ValueError(f"{name}: expected three dimensions, got shape {list(scores.shape)}")
    for name, lengths in {"target_lengths": target_lengths, "graph_lengths": graph_lengths}.items():
        if lengths.dtype != torch.int64 or lengths.ndim != 1:
            raise TypeError(f"{name}: expected int64 [B], got {lengths.dtype} {list(lengths.shape)}; convert it with .long()")
    for name, array in {**named, "target_lengths": target_lengths, "graph_lengths": graph_lengths}.items():
        if array.device != tokens.device or array.device.type not in ("cpu", "cuda"):
            raise ValueError(f"{name}: expected all tensors on the CPU, or on one GPU, got {array.device}; move it with .to()")
    batch, size = tokens.size(0), tokens.size(2)
    if transitions.shape[:2] != (batch, size) or transitions.size(2) >= max(size, 1):
        expected = f"[{batch}, {size}, fewer than {size}], the scores of the next vertices"
        raise ValueError(f"transition_log_probs: expected {expected}, got {list(transitions.shape)}")
    for name, lengths in {"target_lengths": target_lengths, "graph_lengths": graph_lengths}.items():
        if len(lengths) != batch:
            raise ValueError(f"{name}: expected [{batch}], got {list(lengths.shape)}")
