"""Estimate an n-gram language model of one side of the training text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from stages.artifacts import Ngram, Text, Tokens, Vocabulary
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class NgramInputs:
    training: tuple[Text, ...] | tuple[Tokens, ...]
    """Tokens for a model over subword pieces, text for one over words (split at blanks)."""
    validation: Text | Tokens
    """Likewise; its perplexity is measured."""
    vocabulary: Vocabulary | None = None
    """The one that tokens were encoded with."""


@dataclass(frozen=True, kw_only=True)
class NgramConfig:
    """Interpolated modified Kneser-Ney (Chen and Goodman 1998), as KenLM estimates it."""

    order: Annotated[int, Ge(2), Le(6)] = 5
    """Words of the longest n-grams."""
    prune: tuple[Annotated[int, Ge(0)], ...] = (0,)
    """By order: n-grams that occur no more often are left out (0 keeps all); the last value holds for all higher orders.
    [0, 1, 5] is common for large texts."""
    unit: Literal["pieces", "words"] = "pieces"
    """What an n-gram is made of. Searches over subword pieces need pieces."""
    side: Literal["source", "target"] = "target"
    """Whose text is modelled."""
    discount_fallback: (
        tuple[Annotated[float, Ge(0), Le(1)], Annotated[float, Ge(0), Le(2)], Annotated[float, Ge(0), Le(3)]] | None
    ) = (
        0.5,
        1.0,
        1.5,
    )
    """Discounts for adjusted counts of 1, 2 and 3 or more where the text is too small to tell; empty: that is an error."""
    engine: Literal["native", "lmplz"] = "native"
    """The estimator of this project, which works in memory, or KenLM's, which sorts on disk."""
    executable: str = "lmplz"
    """KenLM's program: a path, or a name to be found on PATH."""


STAGE: Stage[NgramInputs, NgramConfig, Ngram] = Stage(name="ngram", version=1, run=Implementation(__name__), output=Ngram)
