"""The runtime: native networks and searches of every family, n-gram scoring, candidate look-up, shortlists and the system format.

It runs a trained system on a CPU with numpy, sentencepiece, safetensors and the compiled extension, without torch. Importing this
package loads none of them: a name is imported from its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fewstep.candidates import CandidateOptions, Candidates, CandidateTables, lattice_candidates
    from fewstep.networks.aggressive_transformer import AggressiveTransformer, Drafter, DraftOptions
    from fewstep.networks.arrays import TransformerShape
    from fewstep.networks.dag_network import DagNetwork, DagPath, DagRules, DagScores
    from fewstep.networks.lattice_transformer import (
        LatticeOptions,
        LatticeOutcome,
        LatticeScores,
        LatticeSeconds,
        LatticeTransformer,
    )
    from fewstep.networks.transformer import SlotRules, Transformer
    from fewstep.ngram import NgramModel, NgramScorer
    from fewstep.search.beam import Beam, BeamOptions
    from fewstep.search.coupling import BigramCoupling
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
    from fewstep.search.joint_step import JointStep
    from fewstep.shortlist import Lexicon
    from fewstep.system.format import BundleError
    from fewstep.system.load import load
    from fewstep.system.system import System
    from fewstep.translation import Hypothesis, Translation

__all__ = [
    "AggressiveTransformer",
    "Beam",
    "BeamOptions",
    "BigramCoupling",
    "BundleError",
    "CandidateOptions",
    "CandidateTables",
    "Candidates",
    "DagBeamOptions",
    "DagHypothesis",
    "DagNetwork",
    "DagPath",
    "DagPaths",
    "DagRules",
    "DagScores",
    "DagViterbiOptions",
    "DagWalkOptions",
    "DagWalks",
    "DraftOptions",
    "Drafter",
    "Hypothesis",
    "JointStep",
    "LatticeOptions",
    "LatticeOutcome",
    "LatticeScores",
    "LatticeSeconds",
    "LatticeTransformer",
    "Lexicon",
    "NgramModel",
    "NgramScorer",
    "SlotRules",
    "System",
    "Transformer",
    "TransformerShape",
    "Translation",
    "dag_beam_search",
    "dag_follow",
    "dag_lookahead",
    "dag_sample",
    "dag_viterbi",
    "lattice_candidates",
    "load",
]

_MODULES = {
    "CandidateOptions": "fewstep.candidates",
    "CandidateTables": "fewstep.candidates",
    "Candidates": "fewstep.candidates",
    "lattice_candidates": "fewstep.candidates",
    "NgramModel": "fewstep.ngram",
    "NgramScorer": "fewstep.ngram",
    "AggressiveTransformer": "fewstep.networks.aggressive_transformer",
    "DraftOptions": "fewstep.networks.aggressive_transformer",
    "Drafter": "fewstep.networks.aggressive_transformer",
    "TransformerShape": "fewstep.networks.arrays",
    "DagNetwork": "fewstep.networks.dag_network",
    "DagPath": "fewstep.networks.dag_network",
    "DagRules": "fewstep.networks.dag_network",
    "DagScores": "fewstep.networks.dag_network",
    "LatticeOptions": "fewstep.networks.lattice_transformer",
    "LatticeOutcome": "fewstep.networks.lattice_transformer",
    "LatticeScores": "fewstep.networks.lattice_transformer",
    "LatticeSeconds": "fewstep.networks.lattice_transformer",
    "LatticeTransformer": "fewstep.networks.lattice_transformer",
    "SlotRules": "fewstep.networks.transformer",
    "Transformer": "fewstep.networks.transformer",
    "Beam": "fewstep.search.beam",
    "BeamOptions": "fewstep.search.beam",
    "BigramCoupling": "fewstep.search.coupling",
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
    "JointStep": "fewstep.search.joint_step",
    "Lexicon": "fewstep.shortlist",
    "BundleError": "fewstep.system.format",
    "load": "fewstep.system.load",
    "System": "fewstep.system.system",
    "Hypothesis": "fewstep.translation",
    "Translation": "fewstep.translation",
}
"""The module of each public name, imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
