"""Estimate an n-gram language model of one side of the training text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fewstep.config.bounds import Ge, Le
from stages.artifacts import Ngram, Text, Tokens, Vocabulary
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class NgramInputs:
    training: tuple[Text, ...] | tuple[Tokens, ...]
    """Tokens for a model over pieces, text for a model over words (separated by blanks)."""
    validation: Text | Tokens
    """Text or tokens whose perplexity is measured."""
    vocabulary: Vocabulary | None = None
    """Vocabulary of the tokens."""


@dataclass(frozen=True, kw_only=True)
class NgramConfig:
    """Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998), as in KenLM."""

    order: Annotated[int, Ge(2), Le(6)] = 5
    """Length of the longest n-grams."""
    prune: tuple[Annotated[int, Ge(0)], ...] = (0,)
    """Thresholds by order: n-grams that occur no more often are dropped (0 keeps all). The last value holds for all higher orders.
    [0, 1, 5] is common for large texts."""
    unit: Literal["pieces", "words"] = "pieces"
    """Unit of n-grams. Searches over pieces need pieces."""
    side: Literal["source", "target"] = "target"
    """Side of the text that is modelled."""
    discount_fallback: (
        tuple[Annotated[float, Ge(0), Le(1)], Annotated[float, Ge(0), Le(2)], Annotated[float, Ge(0), Le(3)]] | None
    ) = (
        0.5,
        1.0,
        1.5,
    )
    """Discounts for adjusted counts of 1, 2 and 3 or more that are used if the text is too small to estimate them. Empty: such a
    text is an error."""
    engine: Literal["native", "lmplz"] = "native"
    """Native code, which counts large text on all workers and holds the distinct n-grams in memory, or KenLM's program, which sorts
    on disk."""
    executable: str = "lmplz"
    """KenLM's program: a path, or a name that is on PATH."""


STAGE: Stage[NgramInputs, NgramConfig, Ngram] = Stage(
    name="ngram", version=1, run=Implementation(__name__), output=Ngram, distributes=True
)
