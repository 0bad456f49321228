"""Drafting and verification in torch, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fewstep import Lexicon
from fewstep.config.problems import Problem
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.aggressive.options import block_width
from fewstep.families.aggressive.record import Drafting
from fewstep.sources import Ints, Sources
from models.aggressive.device.precision import Pair
from models.aggressive.device.run import DeviceSearch
from models.aggressive.draft_only import draft_only
from models.aggressive.drafters import Drafter, LookupDrafter, network_drafter
from models.aggressive.head import DraftHead
from models.aggressive.loop import draft_and_verify
from models.aggressive.medusa import MedusaHeads
from models.aggressive.model import AggressiveModel
from models.aggressive.verifier import Verifying
from models.common.inference import inference_mode
from models.common.layers.backbone import Backbone
from models.common.shortlist import linked_tokens, shortlist_mask
from models.common.sources import source_tensors


class TorchEngine:
    """A drafter and its verifier in evaluation mode."""

    def __init__(
        self,
        model: AggressiveModel | DraftHead | MedusaHeads,
        verifier: Backbone,
        lexicon: Lexicon | None,
        *,
        frozen: bool = False,
    ) -> None:
        """`frozen` states that the weights do not change any more, so that there may be copies in half precision."""
        self._pair, self._lexicon = Pair(model, verifier, frozen=frozen), lexicon
        self._device = DeviceSearch(self._pair, lexicon)

    def problems(self, search: AggressiveSearch, network: AggressiveConfig) -> list[Problem]:
        """Return the reasons why torch cannot run a search."""
        return list(self._pair.problems(search))

    def decode(
        self,
        prepared: Sources,
        search: AggressiveSearch,
        limits: Ints,
        hints: Sequence[Sequence[int]],
        threads: int | None = None,
    ) -> Drafting:
        """Return the hypothesis of each source."""
        model, verifier = self._pair.networks(search)
        with inference_mode(model) as device, inference_mode(verifier):
            if device.type != "cpu" and self._device.supports(search):
                return Drafting(self._device.decode(prepared, search, limits), {})
            source, row_limits = source_tensors(prepared, device), torch.from_numpy(limits).to(device)
            if search.strategy == "draft":
                return Drafting(draft_only(model, *source, search, row_limits).hypotheses(), {})
            slots, width = int(limits.max()), block_width(search, model.config)
            allowed = shortlist_mask(search.shortlist, self._lexicon, *source, model.sizes.target)
            drafter: Drafter | None = None
            if search.looks_up:
                drafter = LookupDrafter(hints, search.ngram)
            elif search.strategy != "greedy":
                drafter = network_drafter(model, *source, search, slots, linked_tokens(self._lexicon))
            verifying = Verifying(verifier, *source, slots, allowed, search.tree_nodes)
            state = draft_and_verify(verifying, drafter, row_limits, search.with_fallback(model.config), width, prepared.rows)
            return Drafting(state.hypotheses(), {})
