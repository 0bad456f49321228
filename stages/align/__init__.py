"""Link the words or pieces of each pair, in both directions and symmetrised, by fast_align (Dyer, Chahuneau and Smith 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fewstep.config.bounds import Ge, Gt, Le, Lt
from kernels.symmetrize import Method
from stages.artifacts import Links, Text, Tokens
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class AlignInputs:
    bitext: Text | Tokens
    """Text, to link words (separated by blanks and tabs), or its tokens, to link pieces."""


@dataclass(frozen=True, kw_only=True)
class AlignConfig:
    """Word alignment: options `-d -o -v` of fast_align, in both directions."""

    engine: Literal["native", "fast_align"] = "native"
    """Native code, or the upstream program. Their links are the same; the native engine also keeps its models."""
    executable: str = "fast_align"
    """Upstream program: a path, or a name that is on PATH."""
    unit: Literal["words", "pieces"] = "pieces"
    """Unit that is linked."""
    symmetrization: Method = "grow-diag-final-and"
    """Method that combines the links of the two directions."""
    iterations: Annotated[int, Ge(1)] = 5
    """Passes over the text. The last one only finds the best links."""
    tension: Annotated[float, Gt(0), Le(14)] = 4.0
    """Initial preference for the diagonal."""
    optimize_tension: bool = True
    """Fit the tension to the text."""
    alpha: Annotated[float, Gt(0)] = 0.01
    """Parameter of the Dirichlet prior on translation probabilities."""
    p0: Annotated[float, Ge(0), Lt(1)] = 0.08
    """Prior probability that a word has no link."""
    compatible: bool = True
    """Compute the gradient of the tension as the upstream program does, including its two errors; false: compute it correctly
    (native engine only)."""
    max_length: Annotated[int, Ge(1), Le(32767)] = 1000
    """Longest side in words or pieces. Longer pairs get no links and are left out of the fit."""


STAGE: Stage[AlignInputs, AlignConfig, Links] = Stage(
    name="align", version=2, run=Implementation(__name__), output=Links, distributes=True
)
