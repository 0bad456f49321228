"""Encode text as shards of token ids."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Text, Tokens, Vocabulary
from stages.encode.modifiers import Modifiers
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class EncodeInputs:
    text: Text
    vocabulary: Vocabulary


@dataclass(frozen=True, kw_only=True)
class EncodeConfig:
    """Limits of encoded text."""

    max_source_tokens: int | None = None
    """Longer sources are truncated to this number of tokens; None to keep all tokens."""
    mask_terms: bool = False
    """Whether masks of terms stand for a share of the words that both sides of a pair have."""
    modifiers: Modifiers | None = None
    """Changes of a share of the pairs (`stages.encode.modifiers`); None for none."""
    swap: bool = False
    """Exchange the sides, as for sources that a system wrote from targets."""


STAGE: Stage[EncodeInputs, EncodeConfig, Tokens] = Stage(
    name="encode", version=3, run=Implementation(__name__), output=Tokens, distributes=True
)
