"""Drafting and verification as a program of fixed shapes; see `models.aggressive.loop` for the same loop with shrinking batches."""

from __future__ import annotations

from collections.abc import Callable

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
    """The buffers of a loop of drafts. Every pass has all sentences; one that has ended neither drafts nor writes.

    When drafting has been given up for all sentences, passes have no drafter.
    """

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
        self.needed = torch.zeros_like(self.rows)

    @property
    def passes(self) -> list[Callable[[], None]]:
        """A pass without drafts; and one with drafts, if any sentence may ever have one."""
        return [self.verify] if self.drafter is None else [self.verify, self.draft_and_verify]

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
        self._look()

    def draft_and_verify(self) -> None:
        """Draft and verify a block of every sentence that has not ended."""
        assert self.drafter is not None
        state, given = self.state, (self.verifying, self.drafter, self.state, self.rows)
        draft = self.drafter.propose(self.rows, state.tokens, state.lengths, self._widths(), None)
        if draft.parents is not None:
            depth = min(self.width, self.search.tree_nodes)
            verify_tree(*given, DraftTree(draft.ids, draft.parents), self.search, depth)
        else:
            chain = Draft(writable_prefix(draft.ids, self.search), None)
            verify_chain(*given, chain, self.search, self.width + 1)
        self._look()

    def verify(self) -> None:
        """Write the verifier's next token of every sentence that has not ended. None has a draft any more."""
        nothing = Draft(torch.full_like(self.rows[:, None], -1), None)
        queries = self.width + 1 if self.search.mode == "exact" else 1
        verify_chain(self.verifying, None, self.state, self.rows, nothing, self.search, queries)
        self._look()

    def _look(self) -> None:
        """Note which pass each sentence needs next."""
        going = self.state.going().long()
        self.needed.copy_(going if self.drafter is None else going + going * ~self.state.fell_back)

    def _widths(self) -> Tensor:
        """Return the numbers of tokens to draft [B]: the verifier adds one of its own."""
        state = self.state
        widths = torch.minimum(state.widths, state.limits - state.lengths - 1)
        return widths.masked_fill(state.fell_back | ~state.going(), 0).clamp(min=0)

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypothesis of each of the first `sentences`."""
        return [[hypothesis] for hypothesis in self.state.hypotheses()[:sentences]]
