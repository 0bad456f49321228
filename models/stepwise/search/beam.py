"""Beam search. This module runs the network and finds its best tokens; `fewstep.Beam` is the search itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fewstep import Beam, BigramCoupling
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.decoder import hypotheses
from fewstep.families.stepwise.options import beam_options
from fewstep.search.beam import BeamOptions
from fewstep.search.coupling import NO_COUPLING
from fewstep.sources import Ints
from fewstep.translation import Hypothesis
from fewstep.vocabulary import BOS, RESERVED
from models.stepwise.ensemble import Ensemble
from models.stepwise.model import StepwiseModel
from models.stepwise.scores import ban
from models.stepwise.search.incremental import begin
from models.stepwise.search.top_tokens import top_k_tokens


def beam_search(
    model: StepwiseModel | Ensemble,
    source: Tensor,
    source_lengths: Tensor,
    search: StepwiseSearch,
    limits: Tensor,
    coupling: BigramCoupling = NO_COUPLING,
    allowed: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Return at most `n_best` hypotheses for each source [B,S], best first.

    `limits` [B] are maximum output lengths in tokens with EOS, `coupling` scores the tokens of a step as pairs, and `allowed` [B,V]
    is a shortlist (None: all tokens).
    """
    order, options = model.order, beam_options(search, model.order, coupling)
    state = begin(model, source, source_lengths, allowed)
    counted = int(model.config.begin_vectors)
    beam = Beam((limits + counted).tolist(), options)
    if counted:
        write_begin(beam, len(source), options)
    sentences, previous, slot = len(source), None, 0
    live_rows = np.arange(sentences)
    while sentences:
        log_probs = ban(state.step(previous).log_softmax(2), search, slot)
        top = top_k_tokens(log_probs, options.num_candidates, separate_eos=options.separate_eos)
        advance = beam.advance(*(values.cpu().numpy()[live_rows] for values in top))
        parents = live_rows[advance.rows]
        padded, live_rows = pad_rows(advance.counts)
        previous, rows = (torch.from_numpy(values[padded]).to(source.device) for values in (advance.tokens, parents))
        if len(advance.going) < sentences:
            state.select(rows, torch.from_numpy(advance.going).to(source.device))
        else:
            state.select(rows)
        sentences, slot = len(advance.going), slot + order.step_size
    found = [hypotheses(outcome, order) for outcome in beam.outcomes()]
    if not counted:
        return found
    return [[replace(one, ids=one.ids[1:], steps=one.steps - 1) for one in ranked] for ranked in found]


def write_begin(beam: Beam, sentences: int, options: BeamOptions) -> None:
    """Write BOS, which is certain, as the first token of all outputs, so that it counts in their lengths as in transformers."""
    certain = torch.full((sentences, 1, max(len(RESERVED), options.num_candidates + 1)), -torch.inf)
    certain[..., BOS] = 0.0
    top = top_k_tokens(certain, options.num_candidates, separate_eos=options.separate_eos)
    beam.advance(*(values.numpy() for values in top))


def pad_rows(counts: Ints) -> tuple[Ints, Ints]:
    """Pad each sentence to the same number of rows by repeating its last row.

    `counts` [G] are the rows of each sentence. Returns the row that stands in each padded position, and the positions of the rows
    themselves.
    """
    position = np.arange(counts.max(initial=0))
    padded = (counts.cumsum() - counts)[:, None] + np.minimum(position, counts[:, None] - 1)
    return padded.ravel(), (position < counts[:, None]).ravel().nonzero()[0]
