"""The searches in buffers of fixed shapes: drafting and verification (Xia et al. 2022, section 3.2), and drafting alone.

Dimensions are named as in `models.family`; W drafted tokens, Q queries of the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.options import block_width
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS
from models.aggressive.drafters import BlockDrafter, Draft, Drafter, HeadDrafter, network_drafter, pick
from models.aggressive.on_verifier import DraftHead, MedusaHeads
from models.aggressive.precision import Network
from models.aggressive.state import DraftState, up_to_eos
from models.aggressive.tokens import ban, writable_prefix
from models.aggressive.tree import DraftTree, accepted_path, depths
from models.aggressive.verifier import CachedDecoder
from models.common import buffers
from models.common.buffers import Inputs, Size
from models.training.seeds import seed_of

EXACT_ROWS = 4
"""Queries of a sentence on a CPU are a multiple of this number in the mode `exact`: a CPU sums the last 1 to 3 rows of a product,
and of the part of each thread, in another order than four rows."""
TRIALS = 3
"""Number of blocks of a sentence after which drafting may be given up."""


class Verification(NamedTuple):
    """The verifier's result of a pass."""

    accepted: Tensor
    """A mask [B,Q], True at drafts that are accepted, provided that all before them are accepted."""
    own: Tensor
    """The verifier's own tokens [B,Q]."""
    scores: Tensor
    """The log-probabilities [B,Q,2] of the draft and of the verifier's own token."""
    margins: Tensor
    """The gaps [B,Q] between the log-probabilities of the best and the second token."""


class DraftAndVerify:
    """A search in passes over all sentences, each at its own length. One that has ended neither drafts nor writes.

    When drafting has been given up for all sentences, passes have no drafter. In the mode `exact` every pass over a chain has the
    same number of queries per sentence, with or without drafts.
    """

    def __init__(
        self,
        verifier: CachedDecoder,
        drafter: Drafter | None,
        search: AggressiveSearch,
        size: Size,
        width: int,
        device: torch.device,
    ) -> None:
        """Allocate the buffers. `width` is the largest number of tokens in a block; without a drafter every pass writes one
        token."""
        self.verifier = verifier
        self.drafter = drafter
        self.search = search
        self.width = width
        self.state = DraftState(size, width, device)
        self.needed = torch.zeros_like(self.state.lengths)
        self.numbers: Tensor | None = None
        """Random numbers [B,T,3] to draft, to accept and to draw the token of each slot; None: nothing is drawn."""
        queries = max(width, search.tree_nodes) + 1
        self.exact_queries = queries if buffers.captures(device) else buffers.round_up(queries, EXACT_ROWS)

    @property
    def passes(self) -> list[Callable[[], None]]:
        """A pass without drafts; and one with drafts, if any sentence may ever have one."""
        return [self.verify] if self.drafter is None else [self.verify, self.draft_and_verify]

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first pass."""
        self.state.start(inputs.slots)
        self.numbers = inputs.numbers
        self.verifier.start(inputs)
        if self.drafter is not None:
            self.drafter.start(inputs)
        self._look()

    def draft_and_verify(self) -> None:
        """Draft and verify a block of every sentence that has not ended."""
        assert self.drafter is not None
        state = self.state
        widths = self._widths()
        draft = self.drafter.propose(state.tokens, state.lengths, widths, self._drafting_numbers())
        if draft.parents is None:
            chain = Draft(writable_prefix(draft.ids, self.search), draft.log_probs)
            self._verify_chain(chain, self.drafter, self.width + 1)
        else:  # without banned tokens, and without children of EOS
            self._verify_tree(DraftTree(draft.ids, draft.parents), self.drafter)
        self._look()

    def verify(self) -> None:
        """Write the verifier's next token of every sentence that has not ended. None has a draft any more."""
        self._verify_chain(Draft(torch.full_like(self.state.lengths[:, None], -1), None), None, 1)
        self._look()

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypothesis of each of the first `sentences`."""
        return [[hypothesis] for hypothesis in self.state.hypotheses()[:sentences]]

    def _look(self) -> None:
        """Note which pass each sentence needs next."""
        going = self.state.going().long()
        self.needed.copy_(going if self.drafter is None else going + going * ~self.state.fell_back)

    def _widths(self) -> Tensor:
        """Return the numbers of tokens to draft [B]: the verifier adds one of its own."""
        state = self.state
        widths = torch.minimum(state.widths, state.limits - state.lengths - 1)
        return widths.masked_fill(state.fell_back | ~state.going(), 0).clamp(min=0)

    def _drafting_numbers(self) -> Tensor | None:
        """Return the random numbers [B,W] of the next tokens."""
        if self.numbers is None:
            return None
        offsets = torch.arange(self.width, device=self.needed.device)
        positions = (self.state.lengths[:, None] + offsets).clamp(max=self.numbers.size(1) - 1)
        return self.numbers[..., 0].gather(1, positions)

    def _verify_chain(self, draft: Draft, drafter: Drafter | None, queries: int) -> None:
        """Verify a chain of drafts with `queries` slots of the verifier in the mode `fast`, and write what is accepted."""
        queries = self.exact_queries if self.search.mode == "exact" else queries
        ids = F.pad(draft.ids, (0, max(0, queries - draft.ids.size(1))), value=-1)[:, :queries]
        counts = (ids >= 0).long().cumprod(1).sum(1)
        offsets = torch.arange(queries, device=ids.device)
        slots = torch.where(offsets <= counts[:, None], self.state.lengths[:, None] + offsets, self.verifier.padding)
        states = self.verifier.step(torch.cat((self.state.last_tokens(), ids[:, :-1].clamp(min=0)), 1), slots)
        logits = self.verifier.logits(states)
        if self.numbers is None:
            verification = verify(ban(logits.log_softmax(2), self.search, slots), ids, self.search)
        else:
            scaled = ban(logits / self.search.sampling.temperature, self.search, slots).log_softmax(2)
            verification = verify_by_rejection_sampling(scaled, ids, draft.log_probs, self.numbers, slots)
        if drafter is not None:
            drafter.observe(slots, states, verification.own)
        self._write(ids, counts, counts, verification)

    def _verify_tree(self, tree: DraftTree, drafter: Drafter) -> None:
        """Verify a tree of drafts in one pass, write the path that greedy decoding takes in it, and keep the path in the cache."""
        state = self.state
        verifier = self.verifier
        states = verifier.step_tree(torch.cat((state.last_tokens(), tree.ids.clamp(min=0)), 1), state.lengths, tree)
        logits = verifier.logits(states)
        log_probs = ban(logits.log_softmax(2), self.search, state.lengths[:, None] + depths(tree))
        deepest = min(self.width, self.search.tree_nodes)
        path = accepted_path(tree, log_probs.argmax(2), deepest + 1)
        along = path.nodes[:, :, None]
        verifier.keep(state.lengths, path.nodes)
        slots = state.lengths[:, None] + torch.arange(path.nodes.size(1), device=along.device)
        verification = verify(log_probs.gather(1, along.expand(-1, -1, log_probs.size(2))), path.ids, self.search)
        drafter.observe(slots, states.gather(1, along.expand(-1, -1, states.size(2))), verification.own)
        counts = (path.ids >= 0).long().cumprod(1).sum(1)
        self._write(path.ids, counts, (tree.ids >= 0).sum(1), verification)

    def _write(self, ids: Tensor, counts: Tensor, drafted: Tensor, verification: Verification) -> None:
        """Append the accepted ones of `counts` [B] drafts [B,Q] and the verifier's own token after them, up to the first EOS.
        Outputs that are finished stay as they are.

        `drafted` [B] are the numbers of verified tokens: `counts`, or the size of a tree that the drafts are a path of.
        """
        state = self.state
        going = self.state.going()
        offsets = torch.arange(ids.size(1), device=ids.device)
        accepted = verification.accepted.long().cumprod(1).bool()
        inside = (offsets <= accepted.sum(1)[:, None]) & going[:, None]
        written = torch.where(accepted, ids, verification.own)
        ends = written == EOS
        inside &= up_to_eos(ends & inside)
        scores = torch.where(accepted, verification.scores[..., 0], verification.scores[..., 1])
        tokens = state.write(written, inside, ends, scores, verification.margins)
        state.steps += going
        state.drafted += drafted * going
        self._count(counts, accepted & inside, inside, tokens.sum(1))

    def _count(self, counts: Tensor, accepted: Tensor, inside: Tensor, gained: Tensor) -> None:
        """Update the statistics of drafting and the width of the next blocks, and stop drafting where it gains too little."""
        state = self.state
        search = self.search
        width = min(state.proposed.size(1), accepted.size(1))
        offsets = torch.arange(width, device=counts.device)
        state.proposed[:, :width] += inside[:, :width] & (offsets < counts[:, None])
        state.accepted_at[:, :width] += accepted[:, :width]
        num_accepted = accepted.sum(1)
        state.accepted += num_accepted
        if search.strategy == "greedy":
            return
        counted = ~state.fell_back & inside[:, 0] & (state.steps > 1)
        state.blocks += counted
        state.gained += gained * counted
        if search.adaptive:
            changed = torch.where(num_accepted == counts, state.widths + 2, state.widths - 1)
            state.widths.copy_(changed.clamp(1, state.proposed.size(1)))
        poor = (state.blocks >= TRIALS) & (state.gained < (search.min_tokens_per_pass or 0.0) * state.blocks)
        state.fell_back |= poor


def verify(log_probs: Tensor, ids: Tensor, search: AggressiveSearch) -> Verification:
    """Accept drafts [B,Q] by the verifier's log-probabilities [B,Q,V].

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
    Tokens then follow p for any q. Without the distributions `drafted` [B,W,V], each draft had probability 1.
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
