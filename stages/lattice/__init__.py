"""Count candidate tables from word links, and measure the recall of their lattices on the validation text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fewstep.config.bounds import Ge, Le
from stages.artifacts import Links, Tables, Tokens, Vocabulary
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class LatticeInputs:
    tokens: Tokens
    """Training pairs as pieces."""
    links: Links
    """Links between the pieces of these pairs."""
    validation: Tokens
    """Pairs on which recall is measured."""
    vocabulary: Vocabulary
    """Vocabulary of the training and validation tokens."""


@dataclass(frozen=True, kw_only=True)
class LatticeConfig:
    """Candidate tables."""

    max_offset: Annotated[int, Ge(0), Le(32767)] = 127
    """Largest distance between linked positions, in pieces. Other links are dropped."""
    top: Annotated[int, Ge(1)] = 40
    """Number of most frequent target pieces that are kept for each source piece and offset."""
    backoff: Annotated[float, Ge(0)] = 0.0
    """Pseudo-count of the distribution of a source piece over all offsets, which is added to its counts at one offset (smoothing
    for small texts). 0: no smoothing, as in the paper."""
    max_length: Annotated[int, Ge(1), Le(65535)] = 256
    """Longest side of a pair in pieces. Longer pairs are not counted."""
    length_window: Annotated[int, Ge(0)] = 3
    """Tolerance of the predicted length in pieces, when recall is measured with predicted lengths."""


STAGE: Stage[LatticeInputs, LatticeConfig, Tables] = Stage(
    name="lattice", version=2, run=Implementation(__name__), output=Tables, distributes=True
)
