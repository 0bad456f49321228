"""Drafting and verification as a program of fixed shapes; see `models.aggressive.loop` for the same loop with shrinking batches."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.options import block_width
from fewstep.translation import Hypothesis
from models.aggressive.device.precision import Network
from models.aggressive.drafters import BlockDrafter, BlockSizes, Draft, HeadDrafter, MedusaDrafter, network_drafter
from models.aggressive.loop import verify_chain, verify_tree
from models.aggressive.rules import writable_prefix
from models.aggressive.state import State
from models.aggressive.tree import DraftTree
from models.aggressive.verifier import Verifying
from models.common.device_batch import Inputs, Size, copy_memories
from models.common.layers.backbone import Backbone


class DraftAndVerify:
    """The buffers of a loop of drafts. Every pass has all sentences; one that has ended neither drafts nor writes."""

    def __init__(self, model: Network, verifier: Backbone, search: AggressiveSearch, inputs: Inputs, size: Size) -> None:
        """Allocate the buffers; `inputs` are those of the batches."""
        self.model, self.search, self.width = model, search, block_width(search, model.config)
        excluded = inputs.excluded
        allowed = None if excluded is None else excluded.new_ones(size.sentences, excluded.size(2))
        self.verifying = Verifying(verifier, inputs.source, inputs.lengths, size.slots, allowed, search.tree_nodes)
        self.drafter: BlockDrafter | HeadDrafter | MedusaDrafter | None = None
        if search.strategy != "greedy":
            self.drafter = network_drafter(model, inputs.source, inputs.lengths, search, size.slots)
            self.drafter.fixed = BlockSizes(self.width, size.slots)
        self.state = State(inputs.slots.clone(), self.width, size.slots)
        self.rows = torch.arange(size.sentences, device=inputs.source.device)
        self.alive = torch.zeros_like(self.rows, dtype=torch.bool)

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first pass."""
        self.state.restart(inputs.slots)
        verifying, drafter = self.verifying, self.drafter
        copy_memories(verifying.memories, verifying.network.encode(inputs.source, inputs.lengths))
        verifying.cache.zero_()
        verifying.begin()
        if verifying.allowed is not None and inputs.excluded is not None:
            verifying.allowed.copy_(~inputs.excluded[:, 0])
        if isinstance(drafter, BlockDrafter):
            source = drafter.model.read(inputs.source, inputs.lengths)
            copy_memories(drafter.source.memories, source.memories)
            drafter.source.embedded.copy_(source.embedded)
            if drafter.source.mask is not None and source.mask is not None:
                drafter.source.mask.copy_(source.mask)
        elif isinstance(drafter, HeadDrafter):
            copy_memories(drafter.memories, drafter.model.read(inputs.source, inputs.lengths).head)
            drafter.origins.zero_()
        self.alive.copy_(self.state.going())

    def step(self) -> None:
        """Draft and verify a block of every sentence that has not ended."""
        draft, given = self._draft(), (self.verifying, self.drafter, self.state, self.rows)
        if draft.parents is not None:
            depth = min(self.width, self.search.tree_nodes)
            verify_tree(*given, DraftTree(draft.ids, draft.parents), self.search, depth)
        else:
            verify_chain(*given, draft, self.search, self.width + 1)
        self.alive.copy_(self.state.going())

    def _draft(self) -> Draft:
        """Return drafts that could all be accepted; see `models.aggressive.loop`."""
        if self.drafter is None:
            return Draft(torch.full_like(self.rows[:, None], -1), None)
        state = self.state
        draft = self.drafter.propose(self.rows, state.tokens, state.lengths, self._widths(), None)
        return draft if draft.parents is not None else Draft(writable_prefix(draft.ids, self.search), None)

    def _widths(self) -> Tensor:
        """Return the numbers of tokens to draft [B]: the verifier adds one of its own."""
        state = self.state
        widths = torch.minimum(state.widths, state.limits - state.lengths - 1)
        return widths.masked_fill(state.fell_back | ~state.going(), 0).clamp(min=0)

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypothesis of each of the first `sentences`."""
        return [[hypothesis] for hypothesis in self.state.hypotheses()[:sentences]]
