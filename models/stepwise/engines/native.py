"""Decoding on a CPU without torch: a finished network as arrays for `kernels.Transformer`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from fewstep import Lexicon, SlotRules, Transformer
from fewstep.search.joint_step import INDEPENDENT_SLOTS
from fewstep.networks.transformer import Search
from models.common.native import arrays_of, kernel_precision, shape_of, shortlist_sizes
from models.common.options import Precision
from models.family import Hypothesis
from models.stepwise.beam import beam_options, hypotheses_of
from models.stepwise.config import StepwiseSearch
from models.stepwise.ensemble import Ensemble, networks
from models.stepwise.joint_step import coupling, joint_step
from models.stepwise.model import StepwiseModel
from models.stepwise.orders import GenerationOrder
from models.stepwise.scores import banned
from models.training.batch import Ints

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer


class NativeSearch:
    """Greedy and beam search with copies of networks that do not change any more, one for each precision that is asked for. It
    counts torch's threads as its own."""

    def __init__(self, model: StepwiseModel | Ensemble, lexicon: Lexicon | None = None) -> None:
        """Networks on the CPU in float32, and what lists of words are made of."""
        self._model, self._order, self._lexicon = model, model.order, lexicon
        self._transformers: dict[Precision, list[Transformer]] = {"float32": self._copies("float32")}
        self._ready: tuple[StepwiseSearch, NgramScorer | None, Search] | None = None

    def __call__(
        self, source: Ints, lengths: Ints, search: StepwiseSearch, limits: Ints, ngram: NgramScorer | None = None
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each source [B,S], best first, as `models.stepwise.greedy` and `models.stepwise.beam` find them. `ngram`:
        a `kernels` scorer over target ids, for searches that give it a weight. Raises ValueError for a precision that is not known
        here."""
        # Making a call takes as long as a short step of the search does: that of the last search is kept.
        ready = self._ready
        if ready is None or ready[0] is not search or ready[1] is not ngram:
            ready = self._ready = search, ngram, self._call(search, ngram)
        return hypotheses_of(ready[2](source, lengths, limits, torch.get_num_threads()), self._order)

    def _call(self, search: StepwiseSearch, ngram: NgramScorer | None) -> Search:
        """The kernel's search."""
        order = self._order
        first, *others = self._networks(search.precision)
        options = beam_options(search, order, coupling(order, search, ngram))
        rules = writing_rules(search, order)
        if search.strategy == "beam":
            return first.beam_call(options=options, rules=rules, others=others)
        joint = joint_step(order, search, ngram)
        return first.greedy_call(options=options, rules=rules, others=others, joint=joint or INDEPENDENT_SLOTS)

    def _networks(self, precision: Precision) -> list[Transformer]:
        if precision not in self._transformers:
            self._transformers[precision] = self._copies(precision)
        return self._transformers[precision]

    def _copies(self, precision: Precision) -> list[Transformer]:
        return [transformer(member, precision, self._lexicon) for member in networks(self._model)]


@lru_cache
def writing_rules(search: StepwiseSearch, order: GenerationOrder) -> SlotRules:
    """The kernel's rules."""
    return SlotRules(
        mask=order.mask,
        directions=order.directions,
        banned=tuple(banned(search)),
        min_tokens=search.output_limits.min_tokens,
        **shortlist_sizes(search.shortlist),
    )


@torch.no_grad()
def transformer(model: StepwiseModel, precision: Precision = "float32", lexicon: Lexicon | None = None) -> Transformer:
    """The kernel's copy of a network. Position codes, whatever they are made of, and start vectors become tables."""
    arrays = arrays_of(model, model.config)
    arrays["slot_codes"] = model.slot_codes(model.max_slots).numpy()
    return Transformer(arrays, shape=shape_of(model.config, "relu"), precision=kernel_precision(precision), lexicon=lexicon)
