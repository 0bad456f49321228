"""Beam search: the network and its best words here, the search itself in `kernels.Beam`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewstep import Beam, BeamOptions, BigramCoupling
from fewstep.search.beam import Outcome
from fewstep.search.coupling import NO_COUPLING
from models.family import EOS, PAD, Hypothesis
from models.stepwise.arrangement import in_natural_order
from models.stepwise.config import StepwiseSearch
from models.stepwise.ensemble import Ensemble, begin
from models.stepwise.model import StepwiseModel
from models.stepwise.orders import GenerationOrder
from models.stepwise.scores import ban
from models.training.batch import Ints


def beam_search(
    model: StepwiseModel | Ensemble,
    source: Tensor,
    source_lengths: Tensor,
    search: StepwiseSearch,
    limits: Tensor,
    linked: BigramCoupling = NO_COUPLING,
    listed: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """At most `n_best` hypotheses for each source [B,S], best first; `limits` [B] are the longest outputs in tokens with EOS,
    `linked` is what links the words of a step, and `listed` [B,V] says what may be written."""
    order, options = model.order, beam_options(search, model.order, linked)
    state = begin(model, source, source_lengths, listed)
    beam = Beam(limits.tolist(), options)
    sentences, previous, slot = len(source), None, 0
    living = np.arange(sentences)
    while sentences:
        words = best_words(state.step(previous), search, options, slot)
        advance = beam.advance(*(values.cpu().numpy()[living] for values in words))
        kept = living[advance.rows]
        held, living = side_by_side(advance.counts)
        previous, rows = (torch.from_numpy(values[held]).to(source.device) for values in (advance.tokens, kept))
        if len(advance.going) < sentences:
            state.select(rows, torch.from_numpy(advance.going).to(source.device))
        else:
            state.select(rows)
        sentences, slot = len(advance.going), slot + order.step_size
    return hypotheses_of(beam.outcomes(), order)


def side_by_side(counts: Ints) -> tuple[Ints, Ints]:
    """Rows, so many for each sentence, laid out as equally many for each: which of the rows each place holds (where a sentence has
    fewer its last again), and the places of the rows."""
    place = np.arange(counts.max(initial=0))
    held = (counts.cumsum() - counts)[:, None] + np.minimum(place, counts[:, None] - 1)
    return held.ravel(), (place < counts[:, None]).ravel().nonzero()[0]


@lru_cache
def beam_options(search: StepwiseSearch, order: GenerationOrder, linked: BigramCoupling = NO_COUPLING) -> BeamOptions:
    """The kernel's options."""
    return BeamOptions(
        beam_size=search.beam_size,
        step_size=order.step_size,
        per_direction=order.stop == "per-direction",
        selection=search.selection,
        n_best=search.n_best,
        length_penalty=search.length_penalty,
        gnmt=search.length_penalty_form == "gnmt",
        prune=math.inf if search.beam_threshold is None else search.beam_threshold,
        eos=EOS,
        pad=PAD,
        neighbours=linked,
    )


class Words(NamedTuple):
    """The best words of each slot of R rows."""

    scores: Tensor
    """[R,z,W] log-probabilities, best first"""
    ids: Tensor
    """[R,z,W]"""
    eos: Tensor
    """[R,z] the log-probability of EOS"""


def best_words(logits: Tensor, search: StepwiseSearch, options: BeamOptions, slot: int) -> Words:
    """From logits [R,z,V] of the slots from `slot` on."""
    return ranked(ban(logits.log_softmax(2), search, slot), options.words, separate_eos=options.separate_eos)


def ranked(log_probs: Tensor, count: int, *, separate_eos: bool) -> Words:
    """The best `count` of log-probabilities [R,z,V], which are changed in place: told apart, EOS is none of the words."""
    eos = log_probs[..., EOS].clone()
    if separate_eos:
        log_probs[..., EOS] = -torch.inf
    return Words(*log_probs.topk(min(count, log_probs.size(2))), eos)


def hypotheses_of(outcomes: Sequence[Outcome], order: GenerationOrder) -> list[list[Hypothesis]]:
    """What was found, in natural order."""
    return [
        [
            Hypothesis(in_natural_order(order, tokens), score, outcome.steps, {"margin": outcome.margin})
            for score, tokens in outcome.hypotheses
        ]
        for outcome in outcomes
    ]
