"""Initialisation of weights."""

from __future__ import annotations

from torch import nn


def initialise(module: nn.Module) -> None:
    """Initialise embeddings with N(0, 1/width), matrices Glorot uniform (a fused projection is one matrix) and biases with 0."""
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=part.embedding_dim**-0.5)
        elif isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
