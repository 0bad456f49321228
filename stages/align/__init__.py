"""Link the words of each pair, in both directions and symmetrised: fast_align (Dyer, Chahuneau and Smith 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from kernels.symmetrize import Method
from stages.artifacts import Links, Text, Tokens
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class AlignInputs:
    bitext: Text | Tokens
    """The text for words (split at blanks and tabs), its tokens for subword pieces."""


@dataclass(frozen=True, kw_only=True)
class AlignConfig:
    """Word alignment: `-d -o -v` of fast_align, in both directions."""

    engine: Literal["native", "fast_align"] = "native"
    """The one of this project, or the upstream program. Their links are the same; the native one also keeps its models."""
    executable: str = "fast_align"
    """The upstream program: a path, or a name to be found on PATH."""
    unit: Literal["words", "pieces"] = "pieces"
    """What is linked."""
    symmetrization: Method = "grow-diag-final-and"
    """How the two directions are joined."""
    iterations: Annotated[int, Ge(1)] = 5
    """Passes over the text; the last only looks for the best links."""
    tension: Annotated[float, Gt(0), Le(14)] = 4.0
    """How much the diagonal is favoured at the start."""
    optimize_tension: bool = True
    """Fit the tension."""
    alpha: Annotated[float, Gt(0)] = 0.01
    """Parameter of the Dirichlet prior on translation probabilities."""
    p0: Annotated[float, Ge(0), Lt(1)] = 0.08
    """Prior probability that a word has no link."""
    compatible: bool = True
    """Compute the tension's gradient as the upstream program does, with its two slips; else correctly (native engine only)."""
    max_length: Annotated[int, Ge(1), Le(32767)] = 1000
    """Words or pieces of a side; longer pairs get no links and take no part in the fit."""


STAGE: Stage[AlignInputs, AlignConfig, Links] = Stage(
    name="align", version=1, run=Implementation(__name__), output=Links, distributes=True
)
