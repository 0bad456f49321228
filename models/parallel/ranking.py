"""The best tokens of slots."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.parallel.config import impossible, separator
from fewstep.vocabulary import UNK
from models.common.layers.logits import logits_parts
from models.common.top_k import Ranked, rank
from models.parallel.model import ParallelModel


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
