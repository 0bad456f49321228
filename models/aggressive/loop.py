"""Drafting and verification of batches in torch (Xia et al. 2022, section 3.2).

Dimensions are named as in `models.family`; R unfinished sentences, W drafted tokens, Q = W + 1 queries of the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.vocabulary import EOS
from models.aggressive.drafters import Draft, Drafter, pick
from models.aggressive.rules import ban, writable_prefix
from models.aggressive.state import State
from models.aggressive.tree import DraftTree, accepted_path, depths
from models.aggressive.verifier import Verifying
from models.training.seeds import seed_of

EXACT_ROWS = 4
"""Queries of a sentence are a multiple of this number in the mode `exact`: a CPU sums the last 1 to 3 rows of a product, and of the
part of each thread, in another order than four rows."""
TRIALS = 3
"""Number of blocks of a sentence after which drafting may be given up."""


class Verification(NamedTuple):
    """The verifier's result of a pass."""

    accepted: Tensor
    """A mask [R,Q], True at drafts that are accepted, provided that all before them are accepted."""
    own: Tensor
    """The verifier's own tokens [R,Q]."""
    scores: Tensor
    """The log-probabilities [R,Q,2] of the draft and of the verifier's own token."""
    margins: Tensor
    """The gaps [R,Q] between the log-probabilities of the best and the second token."""


def draft_and_verify(
    verifying: Verifying,
    drafter: Drafter | None,
    limits: Tensor,
    search: AggressiveSearch,
    width: int,
    sources: Sequence[Sequence[int]],
) -> State:
    """Decode a batch; `limits` [B] are maximum output lengths in tokens with EOS. Without a drafter every pass writes one token.

    In the mode `exact` every pass has the same number of queries per sentence, with or without drafts: `width` + 1, or with trees
    `tree_nodes` + 1, and then up to the next multiple of `EXACT_ROWS`.
    """
    state = State(limits, width)
    numbers = random_numbers(sources, search, int(limits.max())).to(limits.device) if search.strategy == "sample" else None
    rows = torch.arange(len(limits), device=limits.device)
    while len(rows):
        draft = _draft(state, rows, drafter, search, width, numbers)
        if draft.parents is not None:
            verify_tree(verifying, drafter, state, rows, DraftTree(draft.ids, draft.parents), search)
        else:
            most = max(width, search.tree_nodes) + 1
            queries = most + -most % EXACT_ROWS if search.mode == "exact" else None
            verify_chain(verifying, drafter, state, rows, draft, search, queries, numbers)
        going = state.going()[rows]
        if not bool(going.all()):
            remaining = going.nonzero()[:, 0]
            rows = rows[remaining]
            if len(rows):
                verifying.select(remaining)
    return state


def verify_chain(
    verifying: Verifying,
    drafter: Drafter | None,
    state: State,
    rows: Tensor,
    draft: Draft,
    search: AggressiveSearch,
    queries: int | None,
    numbers: Tensor | None = None,
) -> None:
    """Verify a chain of drafts and write what is accepted. The verifier has `queries` slots; None: as few as possible."""
    counts = (draft.ids >= 0).long().cumprod(1).sum(1)
    queries = int(counts.max()) + 1 if queries is None else queries
    ids = torch.nn.functional.pad(draft.ids, (0, max(0, queries - draft.ids.size(1))), value=-1)[:, :queries]
    lengths = state.lengths[rows]
    offsets = torch.arange(queries, device=rows.device)
    slots = torch.where(offsets <= counts[:, None], lengths[:, None] + offsets, verifying.padding)
    states = verifying.step(torch.cat((state.last_tokens(rows), ids[:, :-1].clamp(min=0)), 1), slots)
    if drafter is not None:
        drafter.observe(rows, slots, states)
    logits = verifying.logits(states).float()
    if numbers is None:
        verification = verify(ban(logits.log_softmax(2), search, slots), ids, search)
    else:
        verification = verify_by_rejection_sampling(
            ban(logits / search.sampling.temperature, search, slots).log_softmax(2), ids, draft.log_probs, numbers[rows], slots
        )
    _write(state, rows, ids, counts, counts, verification, search)


def verify_tree(
    verifying: Verifying,
    drafter: Drafter | None,
    state: State,
    rows: Tensor,
    tree: DraftTree,
    search: AggressiveSearch,
    depth: int | None = None,
) -> None:
    """Verify a tree of drafts in one pass, write the path that greedy decoding takes in it, and keep the path in the cache.

    No node is deeper than `depth`; None: the depth of the deepest node.
    """
    lengths, levels = state.lengths[rows], depths(tree)
    states = verifying.step_tree(torch.cat((state.last_tokens(rows), tree.ids.clamp(min=0)), 1), lengths, tree)
    log_probs = ban(verifying.logits(states).float().log_softmax(2), search, lengths[:, None] + levels)
    path = accepted_path(tree, log_probs.argmax(2), (int(levels.max()) if depth is None else depth) + 1)
    along = path.nodes[:, :, None]
    verifying.keep(lengths, path.nodes)
    if drafter is not None:
        slots = lengths[:, None] + torch.arange(path.nodes.size(1), device=rows.device)
        drafter.observe(rows, slots, states.gather(1, along.expand(-1, -1, states.size(2))))
    verification = verify(log_probs.gather(1, along.expand(-1, -1, log_probs.size(2))), path.ids, search)
    counts = (path.ids >= 0).long().cumprod(1).sum(1)
    _write(state, rows, path.ids, counts, (tree.ids >= 0).sum(1), verification, search)


def _draft(
    state: State, rows: Tensor, drafter: Drafter | None, search: AggressiveSearch, width: int, numbers: Tensor | None
) -> Draft:
    """Return drafts that could all be accepted: the verifier adds a token of its own, nothing follows an EOS, and no token is
    banned."""
    lengths = state.lengths[rows]
    widths = torch.minimum(state.widths[rows], state.limits[rows] - lengths - 1).masked_fill(state.fell_back[rows], 0)
    if drafter is None or not bool((widths > 0).any()):
        return Draft(torch.full((len(rows), 1), -1, device=rows.device), None)
    drafting = (widths > 0).nonzero()[:, 0]
    drawn = None
    if numbers is not None:
        positions = (lengths[drafting, None] + torch.arange(int(widths.max()), device=rows.device)).clamp(max=numbers.size(1) - 1)
        drawn = numbers[rows[drafting, None], positions, 0]
    draft = drafter.propose(rows[drafting], state.tokens[rows[drafting]], lengths[drafting], widths[drafting], drawn)
    ids = torch.full((len(rows), draft.ids.size(1)), -1, device=rows.device)
    ids[drafting] = draft.ids
    if draft.parents is not None:  # without banned tokens, and without children of EOS
        return Draft(ids, None, torch.zeros_like(ids).index_copy(0, drafting, draft.parents))
    log_probs = draft.log_probs
    if log_probs is not None and len(drafting) < len(rows):
        log_probs = log_probs.new_zeros((len(rows), *log_probs.shape[1:])).index_copy(0, drafting, log_probs)
    return Draft(writable_prefix(ids, search), log_probs)


def verify(log_probs: Tensor, ids: Tensor, search: AggressiveSearch) -> Verification:
    """Accept drafts [R,Q] by the verifier's log-probabilities [R,Q,V].

    GAD accepts the verifier's best token (equation 4). GAD++ accepts a token among its `top_k` best, including ties with the last
    of them, that is at most `max_logprob_gap` below the best (equations 6 and 7).
    """
    best = log_probs.topk(max(2, search.top_k if search.strategy == "gad++" else 2)).values
    own = log_probs.argmax(2)  # the first of equal scores, as in greedy decoding; topk does not promise that
    drafted = log_probs.gather(2, ids.clamp(min=0)[:, :, None])[:, :, 0]
    accepted = ids == own
    if search.strategy == "gad++" and search.top_k > 1:
        near = (best[..., 0] - drafted <= search.max_logprob_gap) & drafted.isfinite()
        close = (drafted >= best[..., search.top_k - 1]) & near
        accepted |= close & ~((ids == EOS) & search.require_top1_eos)
    margins = torch.where(best[..., 1].isfinite(), best[..., 0] - best[..., 1], torch.inf)
    return Verification(accepted & (ids >= 0), own, torch.stack((drafted, best[..., 0]), 2), margins)


def verify_by_rejection_sampling(
    log_probs: Tensor, ids: Tensor, drafted: Tensor | None, numbers: Tensor, slots: Tensor
) -> Verification:
    """Accept drafts so that tokens follow the verifier's distribution (Leviathan et al. 2023).

    A draft x from q is accepted with probability min(1, p(x) / q(x)); otherwise the token is drawn from max(0, p - q), normalised.
    Tokens then follow p for any q. Without the distributions `drafted` [R,W,V], each draft had probability 1.
    """
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
    positions = slots.clamp(max=numbers.size(1) - 1)[:, :, None].expand(-1, -1, 3)
    _, accepting, drawing = numbers.gather(1, positions).unbind(2)
    accepted = real & (accepting * q_x < p_x)
    residual = torch.where(real[:, :, None], (p - q).clamp(min=0), p)
    empty = residual.sum(2, keepdim=True) <= 0  # p = q: only rounding can reject a draft
    own = pick(torch.where(empty, p, residual), drawing)
    scores = torch.stack((log_probs.gather(2, chosen)[:, :, 0], log_probs.gather(2, own[:, :, None])[:, :, 0]), 2)
    return Verification(accepted, own, scores, torch.full_like(p_x, torch.inf))


def _write(
    state: State,
    rows: Tensor,
    ids: Tensor,
    counts: Tensor,
    drafted: Tensor,
    verification: Verification,
    search: AggressiveSearch,
) -> None:
    """Append the accepted ones of `counts` [R] drafts [R,Q] and the verifier's own token after them, up to the first EOS. Outputs
    that are finished stay as they are.

    `drafted` [R] are the numbers of verified tokens: `counts`, or the size of a tree that the drafts are a path of.
    """
    offsets, going = torch.arange(ids.size(1), device=rows.device), state.going()[rows]
    accepted = verification.accepted.long().cumprod(1).bool()
    inside = (offsets <= accepted.sum(1)[:, None]) & going[:, None]
    written = torch.where(accepted, ids, verification.own)
    ends = ((written == EOS) & inside).long()
    inside &= ends.cumsum(1) - ends == 0
    tokens = inside & (written != EOS)
    lengths = state.lengths[rows]
    positions = torch.where(tokens, lengths[:, None] + offsets, state.tokens.size(1) - 1)
    state.tokens[rows[:, None], positions] = written
    scores = torch.where(accepted, verification.scores[..., 0], verification.scores[..., 1])
    state.scores[rows] += scores.double().masked_fill(~inside, 0.0).sum(1)
    margins = verification.margins.masked_fill(~inside, torch.inf).amin(1)
    state.margins[rows] = torch.minimum(state.margins[rows], margins)
    state.lengths[rows] = lengths + tokens.sum(1)
    state.ended[rows] |= (ends.bool() & inside).any(1)
    state.steps[rows] += going.long()
    state.drafted[rows] += drafted
    _count(state, rows, counts, accepted & inside, inside, tokens.sum(1), search)


def _count(
    state: State, rows: Tensor, counts: Tensor, accepted: Tensor, inside: Tensor, gained: Tensor, search: AggressiveSearch
) -> None:
    """Update the statistics of drafting and the width of the next blocks, and stop drafting where it gains too little."""
    width = min(state.proposed.size(1), accepted.size(1))
    offsets = torch.arange(width, device=rows.device)
    state.proposed[rows, :width] += (inside[:, :width] & (offsets < counts[:, None])).long()
    state.accepted_at[rows, :width] += accepted[:, :width].long()
    num_accepted = accepted.sum(1)
    state.accepted[rows] += num_accepted
    if search.strategy == "greedy":
        return
    drafting = ~state.fell_back[rows] & inside[:, 0]
    state.blocks[rows] += drafting.long()
    state.gained[rows] += gained * drafting
    if search.adaptive:
        changed = torch.where(num_accepted == counts, state.widths[rows] + 2, state.widths[rows] - 1)
        state.widths[rows] = changed.clamp(1, state.proposed.size(1))
    poor = (state.blocks[rows] >= TRIALS) & (state.gained[rows] < (search.min_tokens_per_pass or 0.0) * state.blocks[rows])
    state.fell_back[rows] |= poor


def random_numbers(sources: Sequence[Sequence[int]], search: AggressiveSearch, slots: int) -> Tensor:
    """Return uniform numbers [B,slots,3] in [0, 1), to draft, to accept and to draw the token of each slot.

    They depend on the seed and on the sentence alone. A slot that is drafted again uses the same numbers, because its rejected
    draft had no influence on the accepted tokens.
    """
    drawn = [
        np.random.Generator(np.random.Philox(seed_of(search.sampling.seed, *ids, "aggressive sampling"))).random((slots, 3))
        for ids in sources
    ]
    return torch.from_numpy(np.stack(drawn)).float()
