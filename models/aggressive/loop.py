"""Draft and verify for batches, through torch (Xia et al. 2022, section 3.2).

Letters as in `models.family`; R sentences that go on, W drafted tokens, Q = W + 1 queries of the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.aggressive.config import AggressiveSearch
from models.aggressive.drafters import Draft, Drafter, pick
from models.aggressive.rules import ban, banned
from models.aggressive.verifier import Verifying
from models.family import EOS, PAD, Hypothesis
from models.training.seeds import seed_of

TRIALS = 3
"""Blocks of a sentence after which it is asked whether drafting pays."""


class Judgement(NamedTuple):
    """What the verifier says of a pass."""

    kept: Tensor
    """[R,Q] True at drafts that are kept, if all before are"""
    own: Tensor
    """[R,Q] what it writes itself"""
    scores: Tensor
    """[R,Q,2] log-probability of the draft and of its own token"""
    gaps: Tensor
    """[R,Q] how far the best word is before the second"""


class State:
    """Sentences under way; every tensor has a row for each sentence of the batch."""

    def __init__(self, limits: Tensor, width: int) -> None:
        count, device = len(limits), limits.device
        self.limits = limits
        self.tokens = torch.full((count, int(limits.max()) + 1), PAD, device=device)
        self.lengths, self.steps, self.blocks, self.yielded, self.drafted, self.accepted = torch.zeros(
            (6, count), dtype=torch.int64, device=device
        )
        self.widths = torch.full_like(self.lengths, width)
        self.ended, self.fell_back = torch.zeros((2, count), dtype=torch.bool, device=device)
        self.scores = torch.zeros(count, dtype=torch.float64, device=device)
        self.margins = torch.full((count,), torch.inf, device=device)
        self.tried, self.right = torch.zeros((2, count, width), dtype=torch.int64, device=device)

    def going(self) -> Tensor:
        """[B] True where something is left to write."""
        going: Tensor = ~self.ended & (self.lengths < self.limits)
        return going

    def hypotheses(self) -> list[list[Hypothesis]]:
        scores = self.scores / (self.lengths + self.ended).clamp(min=1)
        rows = zip(self.tokens.tolist(), self.lengths.tolist(), scores.tolist(), self.steps.tolist(), strict=True)
        return [
            [Hypothesis(row[:length], score, steps, statistics)]
            for (row, length, score, steps), statistics in zip(rows, self._statistics(), strict=True)
        ]

    def _statistics(self) -> list[dict[str, Any]]:
        tensors = (self.margins, self.drafted, self.accepted, self.fell_back, self.tried, self.right)
        return [statistics_of(*row) for row in zip(*(values.tolist() for values in tensors), strict=True)]


def statistics_of(
    margin: float, drafted: int, accepted: int, fell_back: bool, tried: Sequence[int], kept: Sequence[int]
) -> dict[str, Any]:
    """What a hypothesis tells besides: its margin, drafted and accepted tokens, did it fall back; by place in a block, how often
    all drafts before it were kept (`tried`), and how often the one there then was too (`kept`)."""
    return {"margin": margin, "drafted": drafted, "accepted": accepted, "fell_back": fell_back, "tried": tried, "kept": kept}


def draft_and_verify(
    verifying: Verifying,
    drafter: Drafter | None,
    limits: Tensor,
    search: AggressiveSearch,
    width: int,
    sources: Sequence[Sequence[int]],
) -> State:
    """Outputs for each sentence; `limits` [B] are in tokens with EOS. Without a drafter every pass writes one token.

    With mode `exact` every pass has `width` + 1 queries a sentence, drafted or not.
    """
    state = State(limits, width)
    numbers = random_numbers(sources, search, int(limits.max())).to(limits.device) if search.strategy == "sample" else None
    rows = torch.arange(len(limits), device=limits.device)
    while len(rows):
        draft = _draft(state, rows, drafter, search, width, numbers)
        counts = (draft.ids >= 0).long().cumprod(1).sum(1)
        queries = width + 1 if search.mode == "exact" else int(counts.max()) + 1
        ids = torch.nn.functional.pad(draft.ids, (0, max(0, queries - draft.ids.size(1))), value=-1)[:, :queries]
        lengths = state.lengths[rows]
        last = state.tokens[rows, (lengths - 1).clamp(min=0)]
        offsets = torch.arange(queries, device=rows.device)
        slots = torch.where(offsets <= counts[:, None], lengths[:, None] + offsets, verifying.padding)
        states = verifying.step(torch.cat((last[:, None], ids[:, :-1].clamp(min=0)), 1), slots)
        if drafter is not None:
            drafter.learn(rows, slots, states)
        logits = verifying.logits(states).float()
        if numbers is None:
            judgement = judge(ban(logits.log_softmax(2), search, slots), ids, search)
        else:
            judgement = judge_by_chance(
                ban(logits / search.sampling.temperature, search, slots).log_softmax(2), ids, draft.log_probs, numbers[rows], slots
            )
        _write(state, rows, ids, counts, judgement, search)
        going = state.going()[rows]
        if not bool(going.all()):
            kept = going.nonzero()[:, 0]
            rows = rows[kept]
            if len(rows):
                verifying.select(kept)
    return state


def _draft(
    state: State, rows: Tensor, drafter: Drafter | None, search: AggressiveSearch, width: int, numbers: Tensor | None
) -> Draft:
    """No more than would be kept, for the verifier adds a token of its own; nothing after an EOS, no word that must not be
    written."""
    lengths = state.lengths[rows]
    widths = torch.minimum(state.widths[rows], state.limits[rows] - lengths - 1).masked_fill(state.fell_back[rows], 0)
    if drafter is None or not bool((widths > 0).any()):
        return Draft(torch.full((len(rows), 1), -1, device=rows.device), None)
    some = (widths > 0).nonzero()[:, 0]
    drawn = None
    if numbers is not None:
        places = (lengths[some, None] + torch.arange(int(widths.max()), device=rows.device)).clamp(max=numbers.size(1) - 1)
        drawn = numbers[rows[some, None], places, 0]
    found = drafter.propose(rows[some], state.tokens[rows[some]], lengths[some], widths[some], drawn)
    ids = torch.full((len(rows), found.ids.size(1)), -1, device=rows.device)
    ids[some] = found.ids
    log_probs = found.log_probs
    if log_probs is not None and len(some) < len(rows):
        log_probs = log_probs.new_zeros((len(rows), *log_probs.shape[1:])).index_copy(0, some, log_probs)
    wrong = torch.isin(ids, torch.tensor(banned(search), device=ids.device)) | (ids < 0)
    ended = (ids == EOS).long()
    wrong |= (ended.cumsum(1) - ended) > 0
    return Draft(ids.masked_fill(wrong.long().cumsum(1) > 0, -1), log_probs)


def judge(log_probs: Tensor, ids: Tensor, search: AggressiveSearch) -> Judgement:
    """GAD keeps what the verifier ranks first (equation 4); GAD++ what is among its `ranks` best, ties with the last included, and
    not more than `gap` behind the first (equations 6 and 7)."""
    best = log_probs.topk(max(2, search.top_k if search.strategy == "gad++" else 2)).values
    own = log_probs.argmax(2)  # of equals the first, as greedy decoding has it; topk promises none
    asked = log_probs.gather(2, ids.clamp(min=0)[:, :, None])[:, :, 0]
    kept = ids == own
    if search.strategy == "gad++" and search.top_k > 1:
        close = (asked >= best[..., search.top_k - 1]) & (best[..., 0] - asked <= search.max_logprob_gap) & asked.isfinite()
        kept |= close & ~((ids == EOS) & search.require_top1_eos)
    gaps = torch.where(best[..., 1].isfinite(), best[..., 0] - best[..., 1], torch.inf)
    return Judgement(kept & (ids >= 0), own, torch.stack((asked, best[..., 0]), 2), gaps)


def judge_by_chance(log_probs: Tensor, ids: Tensor, drafted: Tensor | None, numbers: Tensor, slots: Tensor) -> Judgement:
    """Lossless sampling (Leviathan et al. 2023): a draft x from q is kept with probability min(1, p(x) / q(x)), else the token is
    drawn from max(0, p - q), normalised: whatever q is, tokens are distributed as p says. A draft without `drafted` [R,W,V] was
    certain."""
    p = log_probs.exp()
    q = torch.zeros_like(p)
    real = ids >= 0
    if drafted is None:
        q.scatter_(2, ids.clamp(min=0)[:, :, None], real[:, :, None].to(q.dtype))
    else:
        width = min(drafted.size(1), q.size(1))
        q[:, :width] = drafted[:, :width].exp()
        q *= real[:, :, None]
    chosen = ids.clamp(min=0)[:, :, None]
    p_x, q_x = p.gather(2, chosen)[:, :, 0], q.gather(2, chosen)[:, :, 0]
    places = slots.clamp(max=numbers.size(1) - 1)[:, :, None].expand(-1, -1, 3)
    _, accepting, drawing = numbers.gather(1, places).unbind(2)
    kept = real & (accepting * q_x < p_x)
    residual = torch.where(real[:, :, None], (p - q).clamp(min=0), p)
    empty = residual.sum(2, keepdim=True) <= 0  # p = q: nothing is ever rejected but by rounding
    own = pick(torch.where(empty, p, residual), drawing)
    scores = torch.stack((log_probs.gather(2, chosen)[:, :, 0], log_probs.gather(2, own[:, :, None])[:, :, 0]), 2)
    return Judgement(kept, own, scores, torch.full_like(p_x, torch.inf))


def _write(state: State, rows: Tensor, ids: Tensor, counts: Tensor, judgement: Judgement, search: AggressiveSearch) -> None:
    """Append the drafts that are kept and the verifier's own token behind them, up to the first EOS."""
    offsets = torch.arange(ids.size(1), device=rows.device)
    right = judgement.kept.long().cumprod(1).bool()
    number = right.sum(1)
    inside = offsets <= number[:, None]
    written = torch.where(right, ids, judgement.own)
    ends = ((written == EOS) & inside).long()
    inside &= ends.cumsum(1) - ends == 0
    tokens = inside & (written != EOS)
    lengths = state.lengths[rows]
    places = torch.where(tokens, lengths[:, None] + offsets, state.tokens.size(1) - 1)
    state.tokens[rows[:, None], places] = written
    charged = torch.where(right, judgement.scores[..., 0], judgement.scores[..., 1])
    state.scores[rows] += charged.double().masked_fill(~inside, 0.0).sum(1)
    gaps = judgement.gaps.masked_fill(~inside, torch.inf).amin(1)
    state.margins[rows] = torch.minimum(state.margins[rows], gaps)
    state.lengths[rows] = lengths + tokens.sum(1)
    state.ended[rows] = (ends.bool() & inside).any(1)
    state.steps[rows] += 1
    _count(state, rows, counts, right & inside, inside, tokens.sum(1), search)


def _count(
    state: State, rows: Tensor, counts: Tensor, right: Tensor, inside: Tensor, gained: Tensor, search: AggressiveSearch
) -> None:
    """What drafting brought; how wide the next blocks are, and whether there are any."""
    width = min(state.tried.size(1), right.size(1))
    offsets = torch.arange(width, device=rows.device)
    state.tried[rows, :width] += (inside[:, :width] & (offsets < counts[:, None])).long()
    state.right[rows, :width] += right[:, :width].long()
    state.drafted[rows] += counts
    accepted = right.sum(1)
    state.accepted[rows] += accepted
    if search.strategy == "greedy":
        return
    drafting = ~state.fell_back[rows]
    state.blocks[rows] += drafting.long()
    state.yielded[rows] += gained * drafting
    if search.adaptive:
        changed = torch.where(accepted == counts, state.widths[rows] + 2, state.widths[rows] - 1)
        state.widths[rows] = changed.clamp(1, state.tried.size(1))
    poor = (state.blocks[rows] >= TRIALS) & (state.yielded[rows] < search.min_tokens_per_pass * state.blocks[rows])
    state.fell_back[rows] |= poor


def random_numbers(sources: Sequence[Sequence[int]], search: AggressiveSearch, slots: int) -> Tensor:
    """[B,slots,3] even in [0, 1): to draft, to keep and to draw the token of each slot. They depend on the seed and on the sentence
    alone. A slot that is drafted again takes the same ones: what was dropped had no say in what was kept."""
    drawn = [
        np.random.Generator(np.random.Philox(seed_of(search.sampling.seed, *ids, "aggressive sampling"))).random((slots, 3))
        for ids in sources
    ]
    return torch.from_numpy(np.stack(drawn)).float()
