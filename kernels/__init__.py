"""Arrays and words in, arrays and words out: what is native, and the slow twins that the tests trust.

Importing this package loads neither torch nor numpy, nor the extension: a function loads what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernels.beam import Beam, BeamOptions
from kernels.fast_align import Alignment, AlignmentModel, AlignOptions, fast_align
from kernels.ngram import NgramModel
from kernels.symmetrize import symmetrize

if TYPE_CHECKING:
    from kernels.candidates import CandidateOptions, Candidates, CandidateTables, lattice_candidates

__all__ = [
    "AlignOptions",
    "Alignment",
    "AlignmentModel",
    "Beam",
    "BeamOptions",
    "CandidateOptions",
    "CandidateTables",
    "Candidates",
    "NgramModel",
    "fast_align",
    "lattice_candidates",
    "symmetrize",
]

_HOMES = dict.fromkeys(("CandidateOptions", "CandidateTables", "Candidates", "lattice_candidates"), "kernels.candidates")
"""Modules that load numpy, by the public name that they are first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
