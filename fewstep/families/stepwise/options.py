"""Options of `fewstep` searches from the search config and the generation order."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from fewstep.config.options import shortlist_sizes
from fewstep.families.stepwise.config import RIGHT_TO_LEFT, StepwiseSearch
from fewstep.families.stepwise.orders import GenerationOrder
from fewstep.networks.transformer import SlotRules
from fewstep.search.beam import BeamOptions
from fewstep.search.coupling import NO_COUPLING, BigramCoupling, JointStep
from fewstep.vocabulary import EOS, PAD, RESERVED, UNK

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer


def coupling(order: GenerationOrder, search: StepwiseSearch, ngram: NgramScorer | None) -> BigramCoupling:
    """Return the bigram coupling of the tokens of a step."""
    weighed = ngram if search.ngram_weight else None
    return BigramCoupling(ngram=weighed, weight=search.ngram_weight, right_to_left=RIGHT_TO_LEFT.get(order.arrangement, (False,)))


def joint_step(order: GenerationOrder, search: StepwiseSearch, ngram: NgramScorer | None) -> JointStep | None:
    """Return the joint choice of greedy steps, or None if the search chooses each slot independently."""
    if not search.chooses_jointly:
        return None
    return JointStep(coupling=coupling(order, search, ngram), end_threshold=search.end_threshold)


@lru_cache
def beam_options(search: StepwiseSearch, order: GenerationOrder, coupling: BigramCoupling = NO_COUPLING) -> BeamOptions:
    """Return the options of `fewstep.Beam`."""
    return BeamOptions(
        beam_size=search.beam_size,
        step_size=order.step_size,
        per_direction=order.stop == "per-direction",
        selection="outer-authors" if search.conventions == "authors" else search.selection,
        n_best=search.n_best,
        length_penalty=search.length_penalty,
        gnmt=search.length_penalty_form == "gnmt",
        beam_threshold=math.inf if search.beam_threshold is None else search.beam_threshold,
        eos=EOS,
        pad=PAD,
        coupling=coupling,
    )


@lru_cache
def slot_rules(search: StepwiseSearch, order: GenerationOrder) -> SlotRules:
    """Return the rules of slots of `fewstep.Transformer`."""
    return SlotRules(
        mask=order.mask,
        directions=order.directions,
        banned=tuple(banned(search)),
        min_tokens=min_tokens(search, order),
        no_repeat_ngram=search.no_repeat_ngram,
        **shortlist_sizes(search.shortlist),
    )


def min_tokens(search: StepwiseSearch, order: GenerationOrder) -> int:
    """Return the number of slots in which EOS is not written: `output_limits.min_tokens`, and the first step in a search by the
    conventions of the authors of Zhang et al. (2020)."""
    first_step = order.step_size if search.conventions == "authors" else 1
    return max(search.output_limits.min_tokens, first_step)


def banned(search: StepwiseSearch) -> list[int]:
    """Return the ids that are never written."""
    allowed = {EOS, UNK} if search.output_limits.allow_unknown else {EOS}
    return [token for token in range(len(RESERVED)) if token not in allowed]
