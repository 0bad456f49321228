"""Connectionist temporal classification over the slots of a decoder (Graves et al. 2006; Libovicky and Helcl 2018).

A slot writes a token or a blank. A text is written by all sequences of slots that become it when equal neighbours are merged and
then blanks are removed. Legend: B batch, M target tokens (without EOS), T slots.

Scores are log-probabilities [B,M+1,T] of the blank (row 0) and of each target token, at each slot. States of the lattice are blank,
y_1, blank, ..., y_M, blank; even ones are blanks.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def slots_needed(targets: Tensor, target_lengths: Tensor) -> Tensor:
    """Return the fewest slots [B] that can write targets [B,M] of `target_lengths` [B]: one for each token, and one between equal
    neighbours."""
    inside = torch.arange(1, max(targets.size(1), 1), device=targets.device) < target_lengths[:, None]
    return target_lengths + ((targets[:, 1:] == targets[:, :-1]) & inside).sum(1)


def ctc_log_likelihood(scores: Tensor, targets: Tensor, target_lengths: Tensor, lengths: Tensor) -> Tensor:
    """Return log P(target) [B], the sum over all alignments; minus infinity where the slots do not suffice.

    `scores` are [B,M+1,T], targets [B,M] with `target_lengths` [B] tokens, and `lengths` [B] the numbers of slots. The gradient of
    the scores is the posterior probability of each token at each slot, and 0 where the slots do not suffice.
    """
    possible = lengths >= slots_needed(targets, target_lengths)
    found: Tensor = _LogLikelihood.apply(scores, targets, target_lengths, lengths, possible)  # type: ignore[no-untyped-call]
    return found


class _LogLikelihood(torch.autograd.Function):
    """`torch.nn.functional.ctc_loss` over the scores of a target's own tokens.

    Its gradient is softmax minus posterior, which is the gradient with respect to logits. The scores here are parts of normalised
    rows, so the softmax is added again.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, target_lengths: Tensor, lengths: Tensor, possible: Tensor) -> Tensor:
        trained = ctx.needs_input_grad[0]
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            given = scores.detach().permute(2, 0, 1).contiguous().requires_grad_(trained)
            costs = F.ctc_loss(given, _classes(targets), lengths, target_lengths, reduction="none", zero_infinity=True)
        if trained:
            (gradient,) = torch.autograd.grad(costs, given, torch.ones_like(costs))
            real = torch.arange(scores.size(2), device=scores.device) < lengths[:, None]
            posteriors = (given.detach().exp() - gradient).permute(1, 2, 0)
            ctx.save_for_backward(posteriors.where((real & possible[:, None])[:, None], 0.0))
        return -costs.detach().masked_fill(~possible, torch.inf)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (posteriors,) = ctx.saved_tensors
        return (posteriors * upstream[0][:, None, None], None, None, None, None)


def _classes(targets: Tensor) -> Tensor:
    """Return the row of the scores [B,max(M,1)] for each target token: that of its first occurrence, so that equal tokens have
    equal rows."""
    if targets.size(1) == 0:
        return targets.new_zeros(len(targets), 1)
    return (targets[:, :, None] == targets[:, None, :]).int().argmax(2) + 1


def ctc_best_alignment(scores: Tensor, targets: Tensor, target_lengths: Tensor, lengths: Tensor) -> Tensor:
    """Return the row of the scores [B,T] that each slot writes on the most probable alignment: 0 is the blank, i the i-th target
    token; -1 at slots past `lengths` [B] and where the slots do not suffice. No gradients.

    Among equal alignments, a slot prefers to stay in its state, then to come from the state before, then to skip a blank; the last
    state is preferred to be a blank.
    """
    scores = scores.detach()
    states = torch.arange(2 * targets.size(1) + 1, device=scores.device)
    rows = torch.where(states % 2 == 0, 0, (states + 1) // 2)
    emissions = scores[:, rows]  # [B,2M+1,T]
    tokens = F.pad(targets, (1, 0), value=-1)[:, rows]
    skips = (states % 2 == 1) & (states >= 3) & (tokens != F.pad(tokens, (2, 0), value=-1)[:, :-2])
    best = torch.where(states < 2, emissions[..., 0], -torch.inf)
    moves = torch.zeros(emissions.shape, dtype=torch.int8, device=scores.device)
    for slot in range(1, scores.size(2)):
        one = F.pad(best, (1, 0), value=-torch.inf)[:, :-1]
        two = F.pad(best, (2, 0), value=-torch.inf)[:, :-2].where(skips, -torch.inf)
        before = best
        move = torch.zeros_like(moves[..., 0])
        for number, other in ((1, one), (2, two)):
            better = other > before
            before = torch.where(better, other, before)
            move = move.masked_fill(better, number)
        running = (slot < lengths)[:, None]
        best = torch.where(running, before + emissions[..., slot], best)
        moves[..., slot] = move * running
    last = 2 * target_lengths[:, None]
    ends = best.gather(1, torch.cat((last, (last - 1).clamp(min=0)), 1))
    state = torch.where(ends[:, 0] >= ends[:, 1], last[:, 0], last[:, 0] - 1)
    path = _walk_back(moves, state, lengths)
    possible = (lengths >= slots_needed(targets, target_lengths))[:, None]
    real = torch.arange(scores.size(2), device=scores.device) < lengths[:, None]
    return rows[path].masked_fill(~(possible & real), -1)


def _walk_back(moves: Tensor, state: Tensor, lengths: Tensor) -> Tensor:
    """Return the states [B,T] that lead to `state` [B] by the moves [B,2M+1,T] into each state at each slot."""
    path = torch.zeros(moves.size(0), moves.size(2), dtype=torch.int64, device=moves.device)
    for slot in range(moves.size(2) - 1, -1, -1):
        path[:, slot] = state
        state = (state - moves[..., slot].gather(1, state[:, None])[:, 0]).clamp(min=0)
    return path
