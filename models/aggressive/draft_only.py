"""Decoding with the drafter alone: blocks are written as drafted, without a verifier."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.options import block_width
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS
from models.aggressive.drafters import BlockDrafter, HeadDrafter, network_drafter
from models.aggressive.on_verifier import DraftHead, MedusaHeads
from models.aggressive.precision import Network
from models.aggressive.state import DraftState, up_to_eos
from models.common.buffers import Inputs, Size


class DraftOnly:
    """A search that writes block after block until one contains EOS.

    A drafter that writes token after token has blocks of one token.
    """

    def __init__(self, model: Network, search: AggressiveSearch, size: Size) -> None:
        """Allocate the buffers. Raises ValueError for heads, which read the verifier's states."""
        if isinstance(model, MedusaHeads):
            raise ValueError("strategy: expected one that verifies for drafting: medusa, got draft")
        width = 1 if isinstance(model, DraftHead) else block_width(search, model.config)
        drafter = network_drafter(model, search, size, width)
        assert isinstance(drafter, BlockDrafter | HeadDrafter)
        self.drafter = drafter
        self.state = DraftState(size, width, model.target_embedding.weight.device)

    @property
    def passes(self) -> list[Callable[[], None]]:
        """The one function that writes a block."""
        return [self.step]

    @property
    def needed(self) -> Tensor:
        """True, which is 1, at the sentences [B] that have not ended."""
        return self.state.going()

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first block."""
        self.state.start(inputs.slots)
        self.drafter.start(inputs)

    def step(self) -> None:
        """Write a block of every sentence that has not ended."""
        state = self.state
        going = self.state.going()
        lengths = torch.where(going, state.lengths, 0)
        widths = torch.minimum(state.widths, state.limits - state.lengths).masked_fill(~going, 0)
        scores = self.drafter.log_probs(state.tokens, lengths, widths)
        best = scores.topk(2).values
        written = scores.argmax(2)
        ends = written == EOS
        inside = (torch.arange(written.size(1), device=written.device) < widths[:, None]) & up_to_eos(ends)
        # A slot with one possible token has no second best.
        margins = (best[..., 0] - best[..., 1]).masked_fill(~best[..., 1].isfinite(), torch.inf)
        state.write(written, inside, ends, best[..., 0], margins)
        state.steps += going
        state.drafted += widths

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypothesis of each of the first `sentences`."""
        return [[hypothesis] for hypothesis in self.state.hypotheses()[:sentences]]
