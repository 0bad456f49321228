"""Decoding with the drafter alone, in torch: blocks are written as drafted, without a verifier."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.options import block_width
from fewstep.vocabulary import EOS
from models.aggressive.drafters import MedusaDrafter, network_drafter
from models.aggressive.head import DraftHead
from models.aggressive.medusa import MedusaHeads
from models.aggressive.model import AggressiveModel
from models.aggressive.state import State


def draft_only(
    model: AggressiveModel | DraftHead | MedusaHeads,
    source: Tensor,
    source_lengths: Tensor,
    search: AggressiveSearch,
    limits: Tensor,
) -> State:
    """Write block after block until one contains EOS. A drafter that writes token after token has blocks of one token.

    Raises ValueError for heads, which read the verifier's states.
    """
    if isinstance(model, MedusaHeads):
        raise ValueError("strategy: expected one that verifies for drafting: medusa, got draft")
    width = 1 if isinstance(model, DraftHead) else block_width(search, model.config)
    state = State(limits, width)
    drafter = network_drafter(model, source, source_lengths, search, int(limits.max()))
    rows = torch.arange(len(limits), device=limits.device)
    assert not isinstance(drafter, MedusaDrafter)
    while len(rows):
        lengths = state.lengths[rows]
        widths = torch.minimum(state.widths[rows], limits[rows] - lengths)
        scores = drafter.log_probs(rows, state.tokens[rows], lengths, widths)
        best, written = scores.topk(2).values, scores.argmax(2)
        offsets = torch.arange(written.size(1), device=rows.device)
        ends = (written == EOS).long()
        inside = (offsets < widths[:, None]) & (ends.cumsum(1) - ends == 0)
        tokens = inside & (written != EOS)
        state.tokens[rows[:, None], torch.where(tokens, lengths[:, None] + offsets, state.tokens.size(1) - 1)] = written
        state.scores[rows] += best[..., 0].double().masked_fill(~inside, 0.0).sum(1)
        margins = (best[..., 0] - best[..., 1]).masked_fill(~inside | ~best[..., 1].isfinite(), torch.inf).amin(1)
        state.margins[rows] = torch.minimum(state.margins[rows], margins)
        state.lengths[rows] = lengths + tokens.sum(1)
        state.ended[rows] = (ends.bool() & inside).any(1)
        state.steps[rows] += 1
        state.drafted[rows] += widths
        rows = rows[state.going()[rows]]
    return state
