"""Beam search for one token a step, all sentences of a batch side by side.

A step ranks the continuations of a sentence's K live hypotheses by log-probability. Those among the first K that end with EOS
are finished, the first K others live on. A sentence is done when K are finished, or when no live hypothesis can still come
before the worst of its n best finished ones, or at its longest length, where what is among the first K counts as finished.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from models.family import EOS, Hypothesis
from models.stepwise.config import StepwiseSearch
from models.stepwise.incremental import Incremental
from models.stepwise.model import StepwiseModel
from models.stepwise.order import restore
from models.stepwise.scores import ban, gap, penalty


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
    nodes: Tensor
    """[N,K+1,3] where each of them ends: step, hypothesis it continues, last token"""
    margin: Tensor
    """[N] smallest gap between kept and dropped, in nats"""

    @classmethod
    def start(cls, limits: Tensor, beams: int) -> _Sentences:
        size, device = len(limits), limits.device
        live = torch.full((size, beams), -torch.inf, device=device)
        live[:, 0] = 0.0
        scores = torch.full((size, beams + 1), -torch.inf, device=device)
        nodes = torch.zeros((size, beams + 1, 3), dtype=torch.int64, device=device)
        infinity = torch.full((size,), torch.inf, device=device)
        return cls(torch.arange(size, device=device), limits, live, torch.zeros_like(limits), scores, nodes, infinity)

    def select(self, rows: Tensor) -> _Sentences:
        """Some of the sentences."""
        return _Sentences(*(getattr(self, field.name)[rows] for field in fields(self)))


class _Candidates(NamedTuple):
    """The first 2K + 1 continuations of each sentence, best first, all [N,2K+1]. At least K + 1 of them do not end."""

    scores: Tensor
    parents: Tensor
    tokens: Tensor


class _History(NamedTuple):
    """What each live hypothesis of each step appended to which one of the step before, both [N,K,T]."""

    tokens: Tensor
    parents: Tensor


def beam_search(
    model: StepwiseModel, source: Tensor, source_lengths: Tensor, search: StepwiseSearch, limits: Tensor
) -> list[list[Hypothesis]]:
    """At most `n_best` hypotheses for each source [B,S], best first; `limits` [B] are the longest outputs in tokens with EOS."""
    beams = search.beam_size
    state = Incremental(model, source, source_lengths, beams)
    alive = _Sentences.start(limits, beams)
    shape = (len(source), beams, int(limits.max()))
    history = _History(*(torch.zeros(shape, dtype=torch.int64, device=source.device) for _ in range(2)))
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    previous = None
    for step in range(shape[2]):
        candidates = _continuations(state.step(previous)[:, 0], alive, search, step)
        tokens, parents, rank = _advance(alive, candidates, beams)
        history.tokens[alive.index, :, step], history.parents[alive.index, :, step] = tokens, parents
        ends = (candidates.tokens == EOS) | (alive.limits <= step + 1)[:, None]
        _finish(alive, candidates, ends, search, step)
        done = _done(alive, search, step)
        alive.margin = torch.minimum(alive.margin, _step_margin(candidates.scores, ends, rank, done))
        rows = parents + torch.arange(len(parents), device=parents.device)[:, None] * beams
        if not bool(done.any()):
            state.select(rows.flatten())
        else:
            _collect(results, model, alive.select(done), history, search, step)
            going = (~done).nonzero()[:, 0]
            if len(going) == 0:
                break
            alive, tokens = alive.select(going), tokens[going]
            state.select(rows[going].flatten(), going)
        previous = tokens.reshape(-1, 1)
    return results


def _continuations(logits: Tensor, alive: _Sentences, search: StepwiseSearch, step: int) -> _Candidates:
    """From logits [N*K,V] of the live hypotheses."""
    beams = search.beam_size
    offsets = alive.live.reshape(-1, 1) - logits.logsumexp(1, keepdim=True)
    vocabulary = logits.size(1)
    scores, places = ban(logits, search, step).add_(offsets).view(-1, beams * vocabulary).topk(2 * beams + 1)
    return _Candidates(scores, places // vocabulary, places % vocabulary)


def _advance(alive: _Sentences, candidates: _Candidates, beams: int) -> tuple[Tensor, Tensor, Tensor]:
    """The first K that do not end live on: their tokens and parents [N,K]. Also the ranks [N,K+1] of these and the next."""
    ends = candidates.tokens == EOS
    rank = ends.to(torch.int8).argsort(dim=1, stable=True)[:, : beams + 1]
    kept = rank[:, :beams]
    alive.live = candidates.scores.gather(1, kept)
    return candidates.tokens.gather(1, kept), candidates.parents.gather(1, kept), rank


def _step_margin(scores: Tensor, ends: Tensor, rank: Tensor, done: Tensor) -> Tensor:
    """[N]: how far what ends is from the border of the first K, and, unless done, the last that lives on from the next."""
    beams = rank.size(1) - 1
    last, following = scores.gather(1, rank[:, beams - 1 :]).unbind(1)
    inside, outside = scores[:, beams - 1, None], scores[:, beams, None]
    gaps = torch.cat((gap(scores[:, :beams], outside), gap(inside, scores[:, beams:])), 1)
    return torch.minimum(gap(last, following).masked_fill(done, torch.inf), gaps.masked_fill(~ends, torch.inf).amin(1))


def _finish(alive: _Sentences, candidates: _Candidates, ends: Tensor, search: StepwiseSearch, step: int) -> None:
    """Put those of the first K that end here [N,2K+1] among the best finished hypotheses."""
    beams = search.beam_size
    length = torch.full_like(alive.limits, step + 1)
    log_probs = candidates.scores[:, :beams].masked_fill(~ends[:, :beams], -torch.inf)
    nodes = torch.stack((length[:, None].expand(-1, beams) - 1, candidates.parents[:, :beams], candidates.tokens[:, :beams]), 2)
    scores = torch.cat((alive.scores, log_probs / penalty(search, length)[:, None]), 1)
    alive.count = alive.count + log_probs.isfinite().sum(1)
    # Sorted stably, so that of equals the shorter comes first, whatever the company.
    alive.scores, order = (ranked[:, : beams + 1] for ranked in scores.sort(dim=1, descending=True, stable=True))
    alive.nodes = torch.cat((alive.nodes, nodes), 1).gather(1, order[..., None].expand(-1, -1, 3))


def _done(alive: _Sentences, search: StepwiseSearch, step: int) -> Tensor:
    """[N]. A live hypothesis can score at best its log-probability over the largest penalty that it may still come to."""
    shortest = penalty(search, torch.full_like(alive.limits, step + 2))
    bound = alive.live.amax(1) / torch.maximum(shortest, penalty(search, alive.limits))
    settled = alive.scores[:, search.n_best - 1] >= bound
    return settled | (alive.count >= search.beam_size) | (alive.limits <= step + 1)


def _collect(
    results: list[list[Hypothesis]], model: StepwiseModel, done: _Sentences, history: _History, search: StepwiseSearch, step: int
) -> None:
    """Trace the n best of finished sentences back to their beginnings."""
    wanted = search.n_best
    margin = torch.minimum(done.margin, gap(done.scores[:, :wanted], done.scores[:, 1 : wanted + 1]).amin(1))
    ends, hypothesis, token = done.nodes[:, :wanted].unbind(2)
    written = torch.zeros((*ends.shape, step + 1), dtype=torch.int64, device=ends.device)
    tokens, parents = history.tokens[done.index], history.parents[done.index]
    for slot in range(step, -1, -1):
        written[:, :, slot] = torch.where(ends == slot, token, tokens[:, :, slot].gather(1, hypothesis))
        hypothesis = torch.where(ends > slot, parents[:, :, slot].gather(1, hypothesis), hypothesis)
    lists = (done.index, done.scores[:, :wanted], ends, written, margin)
    for index, scores, last, rows, narrowest in zip(*(values.tolist() for values in lists), strict=True):
        for score, end, row in zip(scores, last, rows, strict=True):
            if score > -torch.inf:
                kept = row[:end] if row[end] == EOS else row[: end + 1]
                results[index].append(Hypothesis(restore(model.order, kept), score, step + 1, {"margin": narrowest}))
