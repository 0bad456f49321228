"""Encode text as shards of token ids."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Text, Tokens, Vocabulary
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


STAGE: Stage[EncodeInputs, EncodeConfig, Tokens] = Stage(
    name="encode", version=1, run=Implementation(__name__), output=Tokens, distributes=True
)
