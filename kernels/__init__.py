"""Arrays and words in, arrays and words out: what is native, and the slow twins that the tests trust.

Importing this package loads neither torch nor numpy, nor the extension: a function loads what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernels.fast_align import Alignment, AlignmentModel, AlignOptions, fast_align
from kernels.symmetrize import symmetrize

if TYPE_CHECKING:
    from kernels.beam import Beam, BeamOptions
    from kernels.candidates import CandidateOptions, Candidates, CandidateTables, lattice_candidates
    from kernels.ngram import NgramModel
    from kernels.transformer import Transformer, TransformerShape, WritingRules

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
    "Transformer",
    "TransformerShape",
    "WritingRules",
    "fast_align",
    "lattice_candidates",
    "symmetrize",
]

_HOMES = {
    "Beam": "kernels.beam",
    "BeamOptions": "kernels.beam",
    "CandidateOptions": "kernels.candidates",
    "CandidateTables": "kernels.candidates",
    "Candidates": "kernels.candidates",
    "NgramModel": "kernels.ngram",
    "Transformer": "kernels.transformer",
    "TransformerShape": "kernels.transformer",
    "WritingRules": "kernels.transformer",
    "lattice_candidates": "kernels.candidates",
}
"""Modules by the public name that they are first asked for, so that the command lines load no more than they use."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
