"""Options of a fit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import fewstep_native

UPSTREAM_BEAM = 4.0
"""The part of each row that upstream's text format keeps by default: ln t >= 4 ln(largest t)."""


@dataclass(frozen=True, kw_only=True)
class AlignOptions:
    """Options of `fast_align`. The defaults are the recommended `-d -o -v`; the letters are the flags of its command line."""

    reverse: bool = False
    """`-r`: explain the source by the target. Links are (source, target) all the same."""
    iterations: int = 5
    """`-I`: passes over the text; the last one only computes the best links."""
    favor_diagonal: bool = True
    """`-d`: a prior for links near the diagonal, rather than a uniform one."""
    tension: float = 4.0
    """`-T`: strength of the diagonal prior (the initial value, if it is fitted)."""
    optimize_tension: bool = True
    """`-o`: fit the tension."""
    variational_bayes: bool = True
    """`-v`: a Dirichlet prior on t, rather than relative frequencies."""
    alpha: float = 0.01
    """`-a`: the parameter of that prior."""
    p0: float = 0.08
    """`-q`: prior probability of the null word, with `favor_diagonal`."""
    null_word: bool = True
    """Not `-N`: target words may be linked to no source word."""
    compatible: bool = True
    """`--compat 1`: the tension's gradient as upstream computes it, with its two errors; otherwise the correct one."""
    max_length: int = 2000
    """`--max_length`: pairs with a longer side (words) take no part in the fit and get no links."""
    threads: int = 1
    """`--threads`. Results do not depend on it."""

    def __post_init__(self) -> None:
        _check("iterations", self.iterations >= 1, "at least 1", self.iterations)
        _check("tension", 0 < self.tension < float("inf"), "above 0", self.tension)
        _check("alpha", 0 < self.alpha < float("inf") or not self.variational_bayes, "above 0", self.alpha)
        _check("p0", 0 <= self.p0 < 1, "from 0 to below 1", self.p0)
        _check("max_length", 1 <= self.max_length < 2**31, "from 1 to 2147483647", self.max_length)
        _check("threads", self.threads >= 1, "at least 1", self.threads)

    def native(self) -> fewstep_native.AlignOptions:
        """Return the options of the extension."""
        from fewstep.native import fewstep_native

        return fewstep_native.align_options(
            diagonal=self.favor_diagonal,
            variational_bayes=self.variational_bayes,
            null_word=self.null_word,
            compatible=self.compatible,
            p0=self.p0,
            alpha=self.alpha,
            max_length=self.max_length,
        )


def _check(name: str, holds: bool, expected: str, got: object) -> None:
    if not holds:
        raise ValueError(f"fast_align: {name}: expected a value {expected}, got {got}")


def available_threads() -> int:
    """Return OMP_NUM_THREADS, or the number of CPUs that this process may use."""
    requested = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(requested) if requested.isdigit() and int(requested) else len(os.sched_getaffinity(0))
