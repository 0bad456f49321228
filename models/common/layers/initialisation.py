"""Initialisation of weights."""

from __future__ import annotations

from torch import nn

BERT_STD = 0.02
"""Standard deviation of all weights of BERT (Devlin et al. 2019)."""


def initialise(module: nn.Module, *, normal: bool = False) -> None:
    """Initialise embeddings with N(0, 1/width), matrices Glorot uniform (a fused projection is one matrix) and biases with 0.

    With `normal`, embeddings and matrices are drawn from N(0, 0.02²) as in BERT.
    """
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=BERT_STD if normal else part.embedding_dim**-0.5)
        elif isinstance(part, nn.Linear):
            if normal:
                nn.init.normal_(part.weight, std=BERT_STD)
            else:
                nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
