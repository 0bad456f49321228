"""Greedy and beam search in native code on a CPU: finished networks as arrays for `fewstep.Transformer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fewstep import Lexicon, Transformer
from fewstep.config.options import Precision
from fewstep.config.problems import Problem
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.networks.transformer import Search
from fewstep.search.joint_step import INDEPENDENT_SLOTS
from fewstep.sources import Ints, Sources
from fewstep.translation import Hypothesis
from models.common.native import arrays_of, native_precision, shape_of
from models.stepwise.ensemble import Ensemble, networks
from models.stepwise.model import StepwiseModel
from models.stepwise.options import beam_options, coupling, joint_step, slot_rules
from models.stepwise.outputs import beam_hypotheses

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer


class NativeEngine:
    """Copies of finished networks, one for each precision that was used. It uses as many threads as torch."""

    def __init__(self, model: StepwiseModel | Ensemble, ngram: NgramScorer | None, lexicon: Lexicon | None) -> None:
        """Copy networks on the CPU in float32."""
        self._model, self._order, self._ngram, self._lexicon = model, model.order, ngram, lexicon
        self._transformers: dict[Precision, list[Transformer]] = {"float32": self._copies("float32")}
        self._last: tuple[StepwiseSearch, Search] | None = None

    def problems(self, search: StepwiseSearch, network: StepwiseConfig) -> list[Problem]:
        """Return the reasons why native code cannot run a search."""
        if search.strategy == "sample":
            return [Problem(("strategy",), "greedy or beam in native code", search.strategy)]
        return []

    def decode(self, prepared: Sources, search: StepwiseSearch, limits: Ints) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first, as `models.stepwise.search` finds them.

        Raises ValueError for a precision that native code does not support.
        """
        # Binding the options takes as long as a short step of the search, so the last search is kept.
        if self._last is None or self._last[0] is not search:
            self._last = search, self._bound(search)
        outcomes = self._last[1](prepared.ids, prepared.lengths, limits, torch.get_num_threads())
        return beam_hypotheses(outcomes, self._order)

    def _bound(self, search: StepwiseSearch) -> Search:
        order = self._order
        first, *others = self._networks(search.precision)
        options = beam_options(search, order, coupling(order, search, self._ngram))
        rules = slot_rules(search, order)
        if search.strategy == "beam":
            return first.beam_call(options=options, rules=rules, others=others)
        joint = joint_step(order, search, self._ngram)
        return first.greedy_call(options=options, rules=rules, others=others, joint=joint or INDEPENDENT_SLOTS)

    def _networks(self, precision: Precision) -> list[Transformer]:
        if precision not in self._transformers:
            self._transformers[precision] = self._copies(precision)
        return self._transformers[precision]

    def _copies(self, precision: Precision) -> list[Transformer]:
        return [transformer(member, precision, self._lexicon) for member in networks(self._model)]


@torch.no_grad()
def transformer(model: StepwiseModel, precision: Precision = "float32", lexicon: Lexicon | None = None) -> Transformer:
    """Return the native copy of a network. Position codes of any kind and start vectors become tables."""
    arrays = arrays_of(model, model.config)
    arrays["slot_codes"] = model.slot_codes(model.max_slots).numpy()
    return Transformer(arrays, shape=shape_of(model.config, "relu"), precision=native_precision(precision), lexicon=lexicon)
