"""Tokens for all slots of targets of given lengths, in one pass or by Mask-Predict (Ghazvininejad et al. 2019, section 4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.families.parallel.config import impossible, separator
from fewstep.vocabulary import MASK, PAD, UNK
from models.common.layers.logits import logits_parts
from models.common.top_k import Ranked, rank
from models.parallel.model import ParallelModel, Source


class Ranking:
    """The tokens that the sentences of a batch may write."""

    def __init__(self, model: ParallelModel, allowed: Tensor | None, *, allow_unknown: bool) -> None:
        """Take shortlists `allowed` [B,V], which probabilities are normalised over (None: all tokens). The unknown token takes part
        in the normalisation even if it is not written."""
        self._model = model
        self._allowed = allowed
        self._allow_unknown = allow_unknown
        self._never = impossible(model.config)
        if allowed is not None:
            allowed[:, separator(model.config)] = True

    def top(self, states: Tensor, sentences: Tensor, count: int, *, without: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the log-probabilities and ids of the best `count` tokens [R,count] of slots with states [R,D] of `sentences` [R],
        best first and the lower id first among equal ones, and the log-probabilities [R] of the token `without`, which is then not
        among them."""
        size = self._model.target_embedding.num_embeddings
        tokens = torch.arange(size, device=states.device)
        count = min(count, size)
        barred = torch.zeros(size, dtype=torch.bool, device=states.device)
        for token in (without, None if self._allow_unknown else UNK):
            if token is not None:
                barred |= tokens == token
        found: list[Ranked] = []
        for part in logits_parts(len(states), size, states.device):
            logits = self._model.logits(states[part])
            for token in self._never:  # not a list of them, which would be copied to a GPU
                logits[:, token] = -torch.inf
            if self._allowed is not None:
                logits = logits.masked_fill(~self._allowed[sentences[part]], -torch.inf)
            found.append(rank(logits, count, barred, (without or 0,)))
        scores, ids, given = (torch.cat(parts) for parts in zip(*found, strict=True))
        return scores, ids, given[:, 0]


class Filled(NamedTuple):
    """Targets [N] of up to T slots."""

    ids: Tensor
    """The tokens [N,T]."""
    log_probs: Tensor
    """The log-probabilities of the tokens [N,T], each by the pass that wrote it."""
    margins: Tensor
    """The smallest gap [N] between a chosen token and the second best one, and between the certainties of slots that were hidden
    again and that were not."""


def fill(
    model: ParallelModel,
    source: Source,
    lengths: Tensor,
    sentences: Tensor,
    ranking: Ranking,
    slots: int,
    iterations: int = 1,
) -> Filled:
    """Fill targets of `lengths` [N] slots, at most `slots`, for a source with as many rows, whose shortlists are those of
    `sentences` [N].

    The first pass writes all slots from empty inputs. Pass i of N hides the max(1, floor(M (N - i) / N)) least certain of M tokens,
    ties by slot, and writes these again. No shape depends on a value: every pass ranks the tokens of all slots.
    """
    real = torch.arange(slots, device=lengths.device) < lengths[:, None]
    found = Filled(
        torch.full(real.shape, PAD, device=lengths.device),
        torch.zeros(real.shape, device=lengths.device),
        torch.full(lengths.shape, torch.inf, device=lengths.device),
    )
    inputs = model.inputs(source, lengths, slots)
    hidden = real
    for iteration in range(iterations):
        if iteration:
            hidden = _least_certain(found, real, (lengths * (iterations - iteration) // iterations).clamp(min=1))
            inputs = model.embedded(found.ids.masked_fill(hidden, MASK))
        _write(found, model.states(inputs, lengths, source), hidden, sentences, ranking)
    return found


def _write(found: Filled, states: Tensor, hidden: Tensor, sentences: Tensor, ranking: Ranking) -> None:
    """Write the best tokens of the hidden slots; the states are [N,T,D]."""
    ranked = ranking.top(states.flatten(0, 1), sentences.repeat_interleave(states.size(1)), 2)
    scores, ids = (part.view(*hidden.shape, -1) for part in ranked[:2])
    torch.where(hidden, ids[..., 0], found.ids, out=found.ids)
    torch.where(hidden, scores[..., 0], found.log_probs, out=found.log_probs)
    gaps = (scores[..., 0] - scores[..., -1]).masked_fill(~hidden, torch.inf).amin(1)
    torch.minimum(found.margins, gaps, out=found.margins)


def _least_certain(found: Filled, real: Tensor, counts: Tensor) -> Tensor:
    """Return a mask [N,T] of the `counts` [N] least certain slots."""
    certainty, order = found.log_probs.masked_fill(~real, torch.inf).sort(dim=1, stable=True)
    # A decision to hide a slot is as sure as the gap to the first slot that stays.
    gaps = certainty.diff(dim=1, append=certainty.new_full((len(real), 1), torch.inf)).gather(1, counts[:, None] - 1)[:, 0]
    torch.minimum(found.margins, gaps.nan_to_num(nan=torch.inf), out=found.margins)
    chosen = torch.arange(real.size(1), device=real.device) < counts[:, None]
    return torch.zeros_like(real).scatter(1, order, chosen)
