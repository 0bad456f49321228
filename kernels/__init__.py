"""Kernels on arrays for training and counting: objectives and alignment of graphs, word alignment, n-gram estimation, candidates.

Searches over given scores come from `fewstep`. Importing this package loads neither torch nor numpy nor the extension: a name is
imported from its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernels.fast_align import Alignment, AlignmentModel, AlignOptions, fast_align
from kernels.symmetrize import symmetrize

if TYPE_CHECKING:
    from fewstep.candidates import CandidateOptions, Candidates, CandidateTables, lattice_candidates
    from fewstep.search.dag_beam import DagBeamOptions, DagHypothesis, dag_beam_search
    from fewstep.search.dag_paths import (
        DagPaths,
        DagViterbiOptions,
        DagWalkOptions,
        DagWalks,
        dag_follow,
        dag_lookahead,
        dag_sample,
        dag_viterbi,
    )
    from kernels.dag import (
        DagAlignment,
        dag_best_alignment,
        dag_log_likelihood,
        dag_max_log_likelihood,
        dense_transitions,
    )
    from kernels.dropout import dropout_
    from kernels.fused_attention import AttentionInputs, fused_attention_, fused_attention_gradients_
    from kernels.lattice import LatticePaths, lattice_max_marginals, lattice_n_best, lattice_viterbi
    from kernels.ngram import NgramModel
    from kernels.token_scores import token_gradients_, token_scores_

__all__ = [
    "AlignOptions",
    "Alignment",
    "AlignmentModel",
    "AttentionInputs",
    "CandidateOptions",
    "CandidateTables",
    "Candidates",
    "DagAlignment",
    "DagBeamOptions",
    "DagHypothesis",
    "DagPaths",
    "DagViterbiOptions",
    "DagWalkOptions",
    "DagWalks",
    "LatticePaths",
    "NgramModel",
    "dag_beam_search",
    "dag_best_alignment",
    "dag_follow",
    "dag_log_likelihood",
    "dag_lookahead",
    "dag_max_log_likelihood",
    "dag_sample",
    "dag_viterbi",
    "dense_transitions",
    "dropout_",
    "fast_align",
    "fused_attention_",
    "fused_attention_gradients_",
    "lattice_candidates",
    "lattice_max_marginals",
    "lattice_n_best",
    "lattice_viterbi",
    "symmetrize",
    "token_gradients_",
    "token_scores_",
]

_MODULES = {
    "CandidateOptions": "fewstep.candidates",
    "CandidateTables": "fewstep.candidates",
    "Candidates": "fewstep.candidates",
    "lattice_candidates": "fewstep.candidates",
    "DagBeamOptions": "fewstep.search.dag_beam",
    "DagHypothesis": "fewstep.search.dag_beam",
    "dag_beam_search": "fewstep.search.dag_beam",
    "DagPaths": "fewstep.search.dag_paths",
    "DagViterbiOptions": "fewstep.search.dag_paths",
    "DagWalkOptions": "fewstep.search.dag_paths",
    "DagWalks": "fewstep.search.dag_paths",
    "dag_follow": "fewstep.search.dag_paths",
    "dag_lookahead": "fewstep.search.dag_paths",
    "dag_sample": "fewstep.search.dag_paths",
    "dag_viterbi": "fewstep.search.dag_paths",
    "DagAlignment": "kernels.dag",
    "dag_best_alignment": "kernels.dag",
    "dag_log_likelihood": "kernels.dag",
    "dag_max_log_likelihood": "kernels.dag",
    "dense_transitions": "kernels.dag",
    "dropout_": "kernels.dropout",
    "AttentionInputs": "kernels.fused_attention",
    "fused_attention_": "kernels.fused_attention",
    "fused_attention_gradients_": "kernels.fused_attention",
    "LatticePaths": "kernels.lattice",
    "lattice_max_marginals": "kernels.lattice",
    "lattice_n_best": "kernels.lattice",
    "lattice_viterbi": "kernels.lattice",
    "NgramModel": "kernels.ngram",
    "token_gradients_": "kernels.token_scores",
    "token_scores_": "kernels.token_scores",
}
"""The module of each public name that is imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
