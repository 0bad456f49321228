"""The finished hypotheses of a beam search on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.vocabulary import PAD


class Finished:
    """The n best finished hypotheses of B sentences, best first; minus infinity where there are fewer."""

    def __init__(self, sentences: int, n_best: int, slots: int, device: torch.device) -> None:
        self.scores = torch.full((sentences, n_best), -torch.inf, device=device)
        """The log-probabilities divided by the penalty [B,n]."""
        self.tokens = torch.full((sentences, n_best, slots), PAD, device=device)
        """The written tokens [B,n,T] with EOS and PAD."""
        self.count = torch.zeros(sentences, dtype=torch.int64, device=device)
        """The number of all finished hypotheses [B]."""
        self.best = torch.full((sentences,), -torch.inf, device=device)
        """Their highest log-probability [B]."""

    def start(self) -> None:
        """Forget all hypotheses."""
        self.scores.fill_(-torch.inf)
        self.tokens.fill_(PAD)
        self.count.zero_()
        self.best.fill_(-torch.inf)

    def add(self, log_probs: Tensor, scores: Tensor, tokens: Tensor) -> None:
        """Add K hypotheses of each sentence: log-probabilities and scores [B,K] (minus infinity: none) and tokens [B,K,T]."""
        self.count += (log_probs > -torch.inf).sum(1)
        torch.maximum(self.best, log_probs.amax(1), out=self.best)
        best, chosen = torch.cat((self.scores, scores), 1).topk(self.scores.size(1))
        self.scores.copy_(best)
        everything = torch.cat((self.tokens, tokens), 1)
        self.tokens.copy_(everything.gather(1, chosen[..., None].expand(-1, -1, tokens.size(2))))
