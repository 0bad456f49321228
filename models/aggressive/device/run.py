"""Drafting and verification whose passes run on a device without waiting for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.sources import Ints, Sources
from fewstep.translation import Hypothesis
from models.aggressive.device.precision import Pair
from models.aggressive.device.program import DraftAndVerify
from models.common.device_batch import Size, buffers, inputs_for, size_for
from models.common.program import SearchProgram
from models.common.replay import Programs
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors

if TYPE_CHECKING:
    from fewstep import Lexicon


class DeviceSearch:
    """Drafting by a network, in chains or trees, and its verification on the networks' device."""

    def __init__(self, pair: Pair, lexicon: Lexicon | None) -> None:
        self._pair, self._lexicon = pair, lexicon
        self._programs: Programs[tuple[AggressiveSearch, Size], SearchProgram] = Programs(self._program)

    def supports(self, search: AggressiveSearch) -> bool:
        """Return whether a search has a program: it neither samples nor looks drafts up, and drafts from all tokens."""
        return search.strategy in ("greedy", "gad", "gad++") and not search.looks_up and search.draft_shortlist is None

    def decode(self, prepared: Sources, search: AggressiveSearch, limits: Ints) -> list[Hypothesis]:
        """Return the hypothesis of each source; `limits` [B] are maximum output lengths in tokens with EOS."""
        model, _ = self._pair.networks(search)
        search = search.with_fallback(model.config)
        max_length, positions = int(limits.max()), model.config.max_positions
        size = size_for(prepared, max_length, max_source=positions, max_slots=positions)
        allowed = shortlist_mask(search.shortlist, self._lexicon, *source_tensors(prepared, "cpu"), model.sizes.target)
        inputs = inputs_for(prepared, limits, 0, allowed, size, model.target_embedding.weight.device)
        found = self._programs.call((search, size), lambda program: program.run(inputs, len(prepared.ids), max_length))
        return [hypothesis for (hypothesis,) in found]

    def _program(self, key: tuple[AggressiveSearch, Size]) -> SearchProgram:
        search, size = key
        model, verifier = self._pair.networks(search)
        device, target = model.target_embedding.weight.device, model.sizes.target
        inputs = buffers(size, target, device, shortlists=search.shortlist is not None)
        return SearchProgram(DraftAndVerify(model, verifier, search, inputs, size), inputs, device)
