"""Beam search for steps of any size, all sentences of a batch side by side.

A step ranks the continuations of a sentence's K live hypotheses by log-probability (`models.stepwise.selection`). Those among
the first K that end are finished, the first K others live on. A sentence is done when K are finished, or when no live hypothesis
can still come before the worst of its n best finished ones, or at its longest length, where what is among the first K counts as
finished.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from models.family import EOS, PAD, Hypothesis
from models.stepwise.config import StepwiseSearch
from models.stepwise.incremental import Incremental
from models.stepwise.model import StepwiseModel
from models.stepwise.orders import Order
from models.stepwise.outputs import Outputs, hypotheses, stops
from models.stepwise.scores import ban, gap, penalty
from models.stepwise.selection import Candidates, Selected, select


@dataclass
class _Sentences:
    """State of N sentences that are searched."""

    index: Tensor
    """[N] place in the batch"""
    limits: Tensor
    """[N] longest output, in tokens with EOS"""
    live: Tensor
    """[N,K] log-probabilities; minus infinity: no hypothesis"""
    count: Tensor
    """[N] hypotheses finished so far"""
    scores: Tensor
    """[N,K+1] the best finished, best first; minus infinity: none"""
    ends: Tensor
    """[N,K+1,2+z] how each of them ends: step, hypothesis it continues, last tokens"""
    margin: Tensor
    """[N] smallest gap between kept and dropped, in nats"""

    @classmethod
    def start(cls, limits: Tensor, beams: int, z: int) -> _Sentences:
        size, device = len(limits), limits.device
        live = torch.full((size, beams), -torch.inf, device=device)
        live[:, 0] = 0.0
        scores = torch.full((size, beams + 1), -torch.inf, device=device)
        ends = torch.zeros((size, beams + 1, 2 + z), dtype=torch.int64, device=device)
        infinity = torch.full((size,), torch.inf, device=device)
        return cls(torch.arange(size, device=device), limits, live, torch.zeros_like(limits), scores, ends, infinity)

    def select(self, rows: Tensor) -> _Sentences:
        """Some of the sentences."""
        return _Sentences(*(getattr(self, field.name)[rows] for field in fields(self)))


class _History(NamedTuple):
    """What each live hypothesis of each step appended to which one of the step before."""

    tokens: Tensor
    """[N,K,steps,z]"""
    parents: Tensor
    """[N,K,steps]"""


def beam_search(
    model: StepwiseModel, source: Tensor, source_lengths: Tensor, search: StepwiseSearch, limits: Tensor
) -> list[list[Hypothesis]]:
    """At most `n_best` hypotheses for each source [B,S], best first; `limits` [B] are the longest outputs in tokens with EOS."""
    beams, order, z = search.beam_size, model.order, model.order.step_size
    state = Incremental(model, source, source_lengths, beams)
    alive = _Sentences.start(limits, beams, z)
    shape = (len(source), beams, -(-int(limits.max()) // z))
    history = _History(*(torch.zeros(size, dtype=torch.int64, device=source.device) for size in ((*shape, z), shape)))
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    previous = None
    for step in range(shape[2]):
        logits = state.step(previous).view(len(alive.live), beams, z, -1)
        normaliser = logits.logsumexp(3)
        room = alive.limits - step * z
        found = select(ban(logits, search, step * z), normaliser, alive.live, room, order, search)
        tokens, parents = found.living.tokens[:, :beams], found.living.parents[:, :beams]
        alive.live = found.living.scores[:, :beams]
        history.tokens[alive.index, :, step], history.parents[alive.index, :, step] = tokens, parents
        ends = stops(found.ranked.tokens) | (alive.limits <= (step + 1) * z)[:, None]
        _finish(alive, found.ranked, ends, search, order, step)
        done = _done(alive, search, (step + 1) * z)
        alive.margin = torch.minimum(alive.margin, _step_margin(found, ends, done))
        rows = parents + torch.arange(len(parents), device=parents.device)[:, None] * beams
        if not bool(done.any()):
            state.select(rows.flatten())
        else:
            _collect(results, order, alive.select(done), history, search, step)
            going = (~done).nonzero()[:, 0]
            if len(going) == 0:
                break
            alive, tokens = alive.select(going), tokens[going]
            state.select(rows[going].flatten(), going)
        previous = tokens.flatten(0, 1)
    return results


def _step_margin(found: Selected, ends: Tensor, done: Tensor) -> Tensor:
    """[N]: how far what ends is from the border of the first K, and, unless done, the last that lives on from the next."""
    scores, living = found.ranked.scores, found.living.scores
    beams = living.size(1) - 1
    inside, outside = scores[:, beams - 1, None], scores[:, beams, None]
    gaps = torch.cat((gap(scores[:, :beams], outside), gap(inside, scores[:, beams:])), 1)
    going = gap(living[:, beams - 1], living[:, beams]).masked_fill(done, torch.inf)
    return torch.minimum(going, gaps.masked_fill(~ends, torch.inf).amin(1))


def _finish(alive: _Sentences, ranked: Candidates, ends: Tensor, search: StepwiseSearch, order: Order, step: int) -> None:
    """Put those of the first K that end here [N,M] among the best finished hypotheses."""
    beams = search.beam_size
    first = Candidates(*(values[:, :beams] for values in ranked))
    log_probs = first.scores.masked_fill(~ends[:, :beams], -torch.inf)
    tokens = torch.minimum(step * order.step_size + _length(first.tokens, order), alive.limits[:, None])
    where = torch.stack((torch.full_like(first.parents, step), first.parents), 2)
    scores = torch.cat((alive.scores, log_probs / penalty(search, tokens)), 1)
    alive.count = alive.count + log_probs.isfinite().sum(1)
    # Sorted stably, so that of equals the shorter comes first, whatever the company.
    alive.scores, rank = (values[:, : beams + 1] for values in scores.sort(dim=1, descending=True, stable=True))
    together = torch.cat((alive.ends, torch.cat((where, first.tokens), 2)), 1)
    alive.ends = together.gather(1, rank[..., None].expand(-1, -1, together.size(2)))


def _length(tokens: Tensor, order: Order) -> Tensor:
    """[N,M]: tokens of last steps [N,M,z] that belong to the output, with one EOS."""
    ends = tokens == EOS
    kept = ~ends if order.stop == "per-direction" else ends.cumsum(2) == 0
    return kept.sum(2) + ends.any(2)


def _done(alive: _Sentences, search: StepwiseSearch, written: int) -> Tensor:
    """[N]. A live hypothesis can score at best its log-probability over the largest penalty that it may still come to."""
    shortest = penalty(search, torch.full_like(alive.limits, written + 1))
    bound = alive.live.amax(1) / torch.maximum(shortest, penalty(search, alive.limits))
    settled = alive.scores[:, search.n_best - 1] >= bound
    return settled | (alive.count >= search.beam_size) | (alive.limits <= written)


def _collect(
    results: list[list[Hypothesis]], order: Order, done: _Sentences, history: _History, search: StepwiseSearch, step: int
) -> None:
    """Trace the n best of finished sentences back to their beginnings."""
    wanted, z = search.n_best, order.step_size
    margin = torch.minimum(done.margin, gap(done.scores[:, :wanted], done.scores[:, 1 : wanted + 1]).amin(1))
    last, hypothesis, ending = done.ends[:, :wanted, 0], done.ends[:, :wanted, 1], done.ends[:, :wanted, 2:]
    flat = torch.full((*last.shape, step + 1, z), PAD, device=last.device)
    tokens, parents = history.tokens[done.index], history.parents[done.index]
    for past in range(step, -1, -1):
        living = tokens[:, :, past].gather(1, hypothesis[..., None].expand(-1, -1, z))
        written = torch.where((last > past)[..., None], living, PAD)
        flat[:, :, past] = torch.where((last == past)[..., None], ending, written)
        hypothesis = torch.where(last > past, parents[:, :, past].gather(1, hypothesis), hypothesis)
    limits = torch.minimum((last + 1) * z, done.limits[:, None])
    outputs = Outputs.cut(order, flat.flatten(2).flatten(0, 1), limits.flatten())
    columns = (done.scores[:, :wanted], torch.full_like(last, step + 1), margin[:, None].expand_as(last))
    found = hypotheses(outputs, *(values.flatten() for values in columns))
    for row, index in enumerate(done.index.tolist()):
        ranked: dict[tuple[int, ...], Hypothesis] = {}
        for one in found[row * wanted : (row + 1) * wanted]:
            if one.score > -torch.inf:  # directions that end one by one may write the same text in two ways
                ranked.setdefault(tuple(one.ids), one)
        results[index] = list(ranked.values())
