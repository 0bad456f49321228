"""Greedy and beam search whose steps run on a device without waiting for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.options import coupling, joint_step
from fewstep.sources import Ints, Sources
from fewstep.translation import Hypothesis
from models.common.device_batch import Size, buffers, inputs_for, size_for
from models.common.precision import Precisions
from models.common.program import SearchProgram
from models.common.replay import Programs
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors
from models.stepwise.device.beam import Beam
from models.stepwise.device.greedy import Greedy
from models.stepwise.ensemble import Ensemble, networks
from models.stepwise.model import StepwiseModel

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class DeviceSearch:
    """Greedy and beam search of a network, or of an ensemble, on its device."""

    def __init__(
        self, models: Precisions[StepwiseModel | Ensemble], lexicon: Lexicon | None, ngram: NgramScorer | None = None
    ) -> None:
        self._models, self._lexicon, self._ngram = models, lexicon, ngram
        self._programs: Programs[tuple[StepwiseSearch, Size], SearchProgram] = Programs(self._program)

    def supports(self, search: StepwiseSearch) -> bool:
        """Return whether a search has a program: greedy search and beam search with exact ranking, of networks without a norm of
        embeddings and begin vectors."""
        beams = search.strategy == "beam" and search.selection == "exact"
        return (beams or search.strategy == "greedy") and not self._models[search.precision].config.needs_torch

    def decode(self, prepared: Sources, search: StepwiseSearch, limits: Ints) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first; `limits` [B] are maximum output lengths in tokens with EOS."""
        network = networks(self._models[search.precision])[0]
        max_length, step = int(limits.max()), network.order.step_size
        size = size_for(prepared, max_length, max_source=network.max_positions, max_slots=network.max_slots, step=step)
        allowed = shortlist_mask(search.shortlist, self._lexicon, *source_tensors(prepared, "cpu"), network.sizes.target)
        device = network.target_embedding.weight.device
        inputs = inputs_for(prepared, limits, 0, allowed, size, device)
        return self._programs.call((search, size), lambda program: program.run(inputs, len(prepared.ids), -(-max_length // step)))

    def _program(self, key: tuple[StepwiseSearch, Size]) -> SearchProgram:
        search, size = key
        model = self._models[search.precision]
        device = next(model.parameters()).device
        inputs = buffers(size, model.sizes.target, device, shortlists=search.shortlist is not None)
        if search.strategy == "beam":
            return SearchProgram(Beam(model, search, size, coupling(model.order, search, self._ngram)), inputs, device)
        return SearchProgram(Greedy(model, search, size, joint_step(model.order, search, self._ngram)), inputs, device)
