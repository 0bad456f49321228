"""The bigrams of an n-gram model on the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fewstep.ngram import NgramScorer


class Bigrams:
    """The log-probabilities of pairs of tokens by an n-gram model, in nats and float64."""

    def __init__(self, ngram: NgramScorer, device: torch.device) -> None:
        tables = ngram.bigrams()
        self._words, self._log_probs, self._backoffs, self._pairs, self._pair_log_probs = (
            torch.from_numpy(part).to(device) for part in tables
        )

    def gain(self, left: Tensor, right: Tensor) -> Tensor:
        """Return log p(right | left) - log p(right) for tokens of shapes that broadcast."""
        first, second = self._words[left], self._words[right]
        alone = self._log_probs[second].double()
        found = self._backoffs[first].double() + alone
        if len(self._pairs):
            pairs = first * len(self._log_probs) + second
            places = torch.searchsorted(self._pairs, pairs).clamp(max=len(self._pairs) - 1)
            found = torch.where(self._pairs[places] == pairs, self._pair_log_probs[places].double(), found)
        return found * math.log(10) - alone * math.log(10)
