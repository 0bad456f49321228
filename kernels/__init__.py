"""Arrays and words in, arrays and words out: what is native, and the slow twins that the tests trust.

Importing this package loads neither torch nor numpy, nor the extension: a function loads what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernels.fast_align import Alignment, AlignmentModel, AlignOptions, fast_align
from kernels.symmetrize import symmetrize

if TYPE_CHECKING:
    from kernels.aggressive import AggressiveTransformer, Drafter, DraftOptions
    from kernels.beam import Beam, BeamOptions, Neighbours
    from kernels.candidates import CandidateOptions, Candidates, CandidateTables, lattice_candidates
    from kernels.dag import DagAlignment, dag_best_alignment, dag_log_likelihood, dag_max_log_likelihood
    from kernels.dag_search import (
        DagBeamOptions,
        DagHypothesis,
        DagPaths,
        DagViterbiOptions,
        DagWalkOptions,
        DagWalks,
        dag_beam_search,
        dag_follow,
        dag_lookahead,
        dag_sample,
        dag_viterbi,
    )
    from kernels.fused_attention import AttentionInputs, fused_attention_, fused_attention_gradients_
    from kernels.graph_network import GraphNetwork, GraphPath, GraphRules, GraphScores
    from kernels.joint_step import JointStep
    from kernels.lattice import LatticePaths, lattice_max_marginals, lattice_n_best, lattice_viterbi
    from kernels.lattice_decoding import LatticeOptions, LatticeOutcome, LatticeScores, LatticeSeconds, LatticeTransformer
    from kernels.lexicon import Lexicon
    from kernels.ngram import NgramModel
    from kernels.token_scores import token_gradients_, token_scores_
    from kernels.transformer import Transformer, TransformerShape, WritingRules

__all__ = [
    "AggressiveTransformer",
    "AlignOptions",
    "Alignment",
    "AlignmentModel",
    "AttentionInputs",
    "Beam",
    "BeamOptions",
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
    "DraftOptions",
    "Drafter",
    "GraphNetwork",
    "GraphPath",
    "GraphRules",
    "GraphScores",
    "JointStep",
    "LatticeOptions",
    "LatticeOutcome",
    "LatticePaths",
    "LatticeScores",
    "LatticeSeconds",
    "LatticeTransformer",
    "Lexicon",
    "Neighbours",
    "NgramModel",
    "Transformer",
    "TransformerShape",
    "WritingRules",
    "dag_beam_search",
    "dag_best_alignment",
    "dag_follow",
    "dag_log_likelihood",
    "dag_lookahead",
    "dag_max_log_likelihood",
    "dag_sample",
    "dag_viterbi",
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

_HOMES = {
    "AggressiveTransformer": "kernels.aggressive",
    "DraftOptions": "kernels.aggressive",
    "Drafter": "kernels.aggressive",
    "Beam": "kernels.beam",
    "BeamOptions": "kernels.beam",
    "CandidateOptions": "kernels.candidates",
    "CandidateTables": "kernels.candidates",
    "Candidates": "kernels.candidates",
    "DagAlignment": "kernels.dag",
    "AttentionInputs": "kernels.fused_attention",
    "fused_attention_": "kernels.fused_attention",
    "fused_attention_gradients_": "kernels.fused_attention",
    "GraphNetwork": "kernels.graph_network",
    "GraphPath": "kernels.graph_network",
    "GraphRules": "kernels.graph_network",
    "GraphScores": "kernels.graph_network",
    "Neighbours": "kernels.beam",
    "Lexicon": "kernels.lexicon",
    "NgramModel": "kernels.ngram",
    "dag_best_alignment": "kernels.dag",
    "dag_log_likelihood": "kernels.dag",
    "dag_max_log_likelihood": "kernels.dag",
    "DagBeamOptions": "kernels.dag_search",
    "DagHypothesis": "kernels.dag_search",
    "DagPaths": "kernels.dag_search",
    "DagViterbiOptions": "kernels.dag_search",
    "DagWalkOptions": "kernels.dag_search",
    "DagWalks": "kernels.dag_search",
    "dag_beam_search": "kernels.dag_search",
    "dag_follow": "kernels.dag_search",
    "dag_lookahead": "kernels.dag_search",
    "dag_sample": "kernels.dag_search",
    "dag_viterbi": "kernels.dag_search",
    "JointStep": "kernels.joint_step",
    "Transformer": "kernels.transformer",
    "TransformerShape": "kernels.transformer",
    "WritingRules": "kernels.transformer",
    "lattice_candidates": "kernels.candidates",
    "token_gradients_": "kernels.token_scores",
    "token_scores_": "kernels.token_scores",
    "LatticeOptions": "kernels.lattice_decoding",
    "LatticeOutcome": "kernels.lattice_decoding",
    "LatticePaths": "kernels.lattice",
    "LatticeScores": "kernels.lattice_decoding",
    "LatticeSeconds": "kernels.lattice_decoding",
    "LatticeTransformer": "kernels.lattice_decoding",
    "lattice_max_marginals": "kernels.lattice",
    "lattice_n_best": "kernels.lattice",
    "lattice_viterbi": "kernels.lattice",
}
"""Modules by the public name that they are first asked for, so that the command lines load no more than they use."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
