"""Sources of drafts in torch: a block decoder, a draft head, heads, and the continuation of the last n-gram in a text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.vocabulary import BOS, EOS, PAD
from models.aggressive.common_tokens import draft_mask
from models.aggressive.head import DraftHead
from models.aggressive.medusa import MedusaHeads
from models.aggressive.model import AggressiveModel, sequences
from models.aggressive.rules import ban
from models.aggressive.tree import best_tree


class Draft(NamedTuple):
    """Proposals for R sentences."""

    ids: Tensor
    """The proposed tokens [R,W], -1 where nothing is proposed."""
    log_probs: Tensor | None
    """The distributions [R,W,V] from which the ids were drawn. None: each id had probability 1."""
    parents: Tensor | None = None
    """The parents [R,N] of the nodes of a tree (`DraftTree`), whose tokens are `ids` [R,N]. None: a chain."""


class BlockSizes(NamedTuple):
    """Sizes of tensors that do not depend on the lengths of outputs, for programs of fixed shapes."""

    width: int
    """The largest width of a block."""
    slots: int
    """The largest length of an output with the block behind it."""


class Drafter(Protocol):
    """A source of drafts."""

    def propose(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        """Propose up to `widths` [R] tokens for each of the sentences `rows` [R].

        The first `lengths` [R] of their `tokens` [R,T] are written. With `numbers` [R,W], uniform in [0, 1), tokens are drawn;
        otherwise they are the most probable ones.
        """
        ...

    def observe(self, rows: Tensor, slots: Tensor, states: Tensor) -> None:
        """Receive the verifier's states [R,Q,D] of slots [R,Q] of the sentences `rows` [R]."""
        ...


class SlotDrafter(ABC):
    """A drafter that predicts the tokens of a block independently of one another."""

    allowed: Tensor | None
    """The tokens [B,V] that may be drafted; None: all."""
    search: AggressiveSearch
    fixed: BlockSizes | None = None
    """The sizes of tensors; None: as small as the batch allows, for which the host waits. With fixed sizes `rows` are all
    sentences."""

    @abstractmethod
    def log_probs(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """Return the log-probabilities [R,W,V], minus infinity at banned tokens."""

    def propose(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        log_probs = mask_tokens(self.log_probs(rows, tokens, lengths, widths), self.allowed, rows)
        if self.search.tree_nodes:
            tree = best_tree(log_probs.log_softmax(2), widths, self.search.tree_branches, self.search.tree_nodes)
            return Draft(tree.ids, None, tree.parents)
        ids = log_probs.argmax(2) if numbers is None else pick(log_probs.softmax(2), numbers)
        real = torch.arange(ids.size(1), device=ids.device) < widths[:, None]
        return Draft(torch.where(real, ids, -1), None if numbers is None else log_probs.log_softmax(2))


class BlockDrafter(SlotDrafter):
    """A block decoder for a batch of sources."""

    def __init__(
        self, model: AggressiveModel, source: Tensor, source_lengths: Tensor, search: AggressiveSearch, linked: Tensor | None
    ) -> None:
        self.model, self.search = model, search
        self.allowed = draft_mask(model.words, linked, source, source_lengths, search)
        self.source = model.read(source, source_lengths)

    def observe(self, rows: Tensor, slots: Tensor, states: Tensor) -> None:
        """Ignore the verifier's states: drafts depend on the written tokens alone."""

    def log_probs(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """Return the log-probabilities [R,W,V], minus infinity at banned tokens."""
        source = self.source if self.fixed else self.source.select(rows)
        ids = sequences(tokens, lengths, widths, self.fixed.slots if self.fixed else None)
        states = self.model.states(ids, lengths, lengths + widths, source)
        positions = lengths[:, None] + torch.arange(largest(widths, self.fixed), device=rows.device)
        selected = positions.clamp(max=ids.size(1) - 1)[:, :, None].expand(-1, -1, states.size(2))
        return ban(self.model.logits(states.gather(1, selected)).float().log_softmax(2), self.search, positions)


class MedusaDrafter(SlotDrafter):
    """Heads on the verifier for a batch of sources. They read the state from which the verifier predicted the last token, so there
    is no draft before the first pass."""

    def __init__(
        self,
        model: MedusaHeads,
        source: Tensor,
        source_lengths: Tensor,
        search: AggressiveSearch,
        slots: int,
        linked: Tensor | None,
    ) -> None:
        """Start with a batch; `slots` is the maximum output length."""
        self.model, self.search = model, search
        self.allowed = draft_mask(model.words, linked, source, source_lengths, search)
        self.states = model.target_embedding.weight.new_zeros((len(source), slots + 1, model.config.width))

    def observe(self, rows: Tensor, slots: Tensor, states: Tensor) -> None:
        """Store the verifier's states."""
        self.states[rows[:, None], slots.clamp(max=self.states.size(1) - 1)] = states.to(self.states.dtype)

    def log_probs(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """Return the log-probabilities [R,W,V], minus infinity at banned tokens."""
        width = largest(widths, self.fixed)
        states = self.model.drafting_states(self.states[rows, (lengths - 1).clamp(min=0)])[:, :width]
        positions = lengths[:, None] + torch.arange(width, device=rows.device)
        return ban(self.model.logits(states).float().log_softmax(2), self.search, positions)

    def propose(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        draft = super().propose(rows, tokens, lengths, widths, numbers)
        return draft._replace(ids=draft.ids.masked_fill(lengths[:, None] == 0, -1))


class HeadDrafter:
    """A draft head for a batch of sources. It writes token after token, from the verifier's states as far as they are known and
    from its own states after that."""

    fixed: BlockSizes | None = None
    """As in `SlotDrafter`."""

    def __init__(
        self, model: DraftHead, source: Tensor, source_lengths: Tensor, search: AggressiveSearch, slots: int, linked: Tensor | None
    ) -> None:
        """Start with a batch; `slots` is the maximum output length."""
        self.model, self.search = model, search
        self.allowed = draft_mask(model.words, linked, source, source_lengths, search)
        self.memories = model.read(source, source_lengths).head
        self.origins = model.target_embedding.weight.new_zeros((len(source), slots + 1, model.config.width))

    def observe(self, rows: Tensor, slots: Tensor, states: Tensor) -> None:
        """Store the verifier's states in place of the head's own."""
        self.origins[rows[:, None], slots] = states.to(self.origins.dtype)

    def log_probs(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """Return the log-probabilities [R,1,V] of the next token, minus infinity at banned tokens, and store its state where the
        width is not 0."""
        size = self.fixed.slots if self.fixed else int(lengths.max()) + 1
        ids = torch.nn.functional.pad(tokens, (0, max(0, size - tokens.size(1))), value=PAD)[:, :size]
        memories = self.memories if self.fixed else [memory.select(rows) for memory in self.memories]
        here = torch.arange(len(rows), device=rows.device)
        states = self.model.states(ids, self.origins[rows, :size], memories)[here, lengths]
        self.origins[rows, lengths] = torch.where(widths[:, None] > 0, states, self.origins[rows, lengths])
        return ban(self.model.logits(states).float().log_softmax(1)[:, None], self.search, lengths[:, None])

    def propose(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        width = largest(widths, self.fixed)
        written = torch.nn.functional.pad(tokens, (0, width), value=PAD)
        going, probability = widths > 0, torch.ones(len(rows), device=rows.device)
        ids, distributions = [], []
        for position in range(width):
            going = going & (widths > position)
            if position and self.fixed is None and not bool(going.any()):
                break
            here = torch.where(going, lengths + position, 0)
            scores = mask_tokens(self.log_probs(rows, written, here, going.long()), self.allowed, rows)[:, 0].log_softmax(1)
            chosen = scores.argmax(1) if numbers is None else pick(scores.softmax(1), numbers[:, position])
            ids.append(torch.where(going, chosen, -1))
            written.scatter_(1, here[:, None], torch.where(going, chosen, written[:, 0])[:, None])
            distributions.append(scores.masked_fill(~going[:, None], 0.0))
            probability = probability * scores.gather(1, chosen[:, None])[:, 0].exp()
            going = going & (chosen != EOS) & (probability >= self.search.confidence)
        return Draft(torch.stack(ids, 1), None if numbers is None else torch.stack(distributions, 1))


def largest(widths: Tensor, fixed: BlockSizes | None) -> int:
    """Return the largest of the widths [R] of blocks, or the one that is fixed."""
    return int(widths.max()) if fixed is None else fixed.width


def mask_tokens(log_probs: Tensor, allowed: Tensor | None, rows: Tensor) -> Tensor:
    """Return log-probabilities [R,W,V], minus infinity at tokens that are not `allowed` [B,V] for the sentences `rows` [R]."""
    return log_probs if allowed is None else log_probs.masked_fill(~allowed[rows][:, None], -torch.inf)


def network_drafter(
    model: AggressiveModel | DraftHead | MedusaHeads,
    source: Tensor,
    source_lengths: Tensor,
    search: AggressiveSearch,
    slots: int,
    linked: Tensor | None = None,
) -> BlockDrafter | HeadDrafter | MedusaDrafter:
    """Return the drafter of a batch.

    `slots` is the maximum output length; `linked` [U,L] are the translations of each source token for shortlists.
    """
    if isinstance(model, DraftHead):
        return HeadDrafter(model, source, source_lengths, search, slots, linked)
    if isinstance(model, MedusaHeads):
        return MedusaDrafter(model, source, source_lengths, search, slots, linked)
    return BlockDrafter(model, source, source_lengths, search, linked)


class LookupDrafter:
    """Drafts without a network: the continuation of the last n-gram in the hint of a sentence or earlier in its output."""

    def __init__(self, hints: Sequence[Sequence[int]], max_ngram: int) -> None:
        self.hints, self.max_ngram = hints, max_ngram

    def observe(self, rows: Tensor, slots: Tensor, states: Tensor) -> None:
        """Ignore the verifier's states: drafts depend on the written tokens alone."""

    def propose(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        ids = torch.full((len(rows), max(1, int(widths.max()))), -1)
        columns = zip(rows.tolist(), tokens.tolist(), lengths.tolist(), widths.tolist(), strict=True)
        for index, (row, written, length, width) in enumerate(columns):
            found = look_up(self.hints[row], written[:length], self.max_ngram, width)
            ids[index, : len(found)] = torch.tensor(found, dtype=torch.int64)
        return Draft(ids.to(tokens.device), None)


def look_up(hint: Sequence[int], written: Sequence[int], max_ngram: int, width: int) -> list[int]:
    """Return at most `width` tokens that follow, in `hint` or else in `written`, the longest n-gram that `written` ends with.

    The n-gram has up to `max_ngram` tokens; both texts begin with BOS. Of several occurrences in the hint, the one nearest to the
    output's own length is used; of several in the output, the last one.
    """
    text, before = [BOS, *hint], [BOS, *written]
    end = len(before) - 1
    for size in range(min(max_ngram, len(before)), 0, -1):
        last = before[-size:]
        positions = [index for index in range(size - 1, len(text) - 1) if text[index - size + 1 : index + 1] == last]
        if positions:
            nearest = min(positions, key=lambda index: (abs(index - end), index))
            return list(text[nearest + 1 : nearest + 1 + width])
        for index in range(end - 1, size - 2, -1):
            if before[index - size + 1 : index + 1] == last:
                return before[index + 1 : index + 1 + width]
    return []


def pick(probabilities: Tensor, numbers: Tensor) -> Tensor:
    """Return the ids [...] that uniform `numbers` [...] in [0, 1) choose by `probabilities` [...,V], which need not sum to 1."""
    until = probabilities.double().cumsum(-1)
    threshold = numbers.double()[..., None] * until[..., -1:]
    ids = (until <= threshold).sum(-1)
    last = (probabilities > 0).long().mul(torch.arange(1, probabilities.size(-1) + 1, device=numbers.device)).amax(-1) - 1
    return torch.minimum(ids, last).clamp(min=0)
