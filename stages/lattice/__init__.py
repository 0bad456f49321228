"""Count candidate tables from word links, and measure how much of the validation text their lattices hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from stages.artifacts import Links, Tables, Tokens, Vocabulary
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class LatticeInputs:
    tokens: Tokens
    """Training pairs, in pieces, as the models of the lattice see them."""
    links: Links
    """Links between the pieces of the same pairs."""
    validation: Tokens
    """Pairs whose recall is measured."""
    vocabulary: Vocabulary
    """The one that both were encoded with."""


@dataclass(frozen=True, kw_only=True)
class LatticeConfig:
    """Candidate tables."""

    max_offset: Annotated[int, Ge(0), Le(32767)] = 127
    """Links between positions that are more pieces apart are dropped."""
    top: Annotated[int, Ge(1)] = 40
    """Most frequent target pieces kept for each source piece and offset."""
    backoff: Annotated[float, Ge(0)] = 0.0
    """Links that what a source piece means anywhere counts as beside those at an offset (smoothing, for
    little text); 0: none, as in the paper."""
    max_length: Annotated[int, Ge(1), Le(65535)] = 256
    """Pairs with more pieces on a side are not counted."""
    length_window: Annotated[int, Ge(0)] = 3
    """Pieces that the predicted length may be off, where recall is measured with predicted lengths."""


STAGE: Stage[LatticeInputs, LatticeConfig, Tables] = Stage(
    name="lattice", version=2, run=Implementation(__name__), output=Tables, distributes=True
)
