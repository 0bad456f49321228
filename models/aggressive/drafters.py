"""Who drafts, through torch: a block decoder, or what follows the last n-gram elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from models.aggressive.config import AggressiveSearch
from models.aggressive.head import DraftHead
from models.aggressive.model import AggressiveModel, Source, sequences
from models.aggressive.rules import ban
from models.aggressive.words import shortlists
from models.common.layers.attention import Memory
from models.family import BOS, EOS, PAD


class Draft(NamedTuple):
    """What is proposed for R sentences."""

    ids: Tensor
    """[R,W]; -1 where nothing is"""
    log_probs: Tensor | None
    """[R,W,V] what each was drawn from; None: from a single token"""


class Drafter(Protocol):
    """Proposes the next tokens."""

    def propose(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        """For the sentences `rows` [R], of whose tokens [R,T] the first `lengths` [R] are written, up to `widths` [R] tokens. With
        `numbers` [R,W] even in [0, 1) they are drawn, else the likeliest."""
        ...

    def learn(self, rows: Tensor, slots: Tensor, states: Tensor) -> None:
        """Be told what the verifier writes from: states [R,Q,D] of slots [R,Q] of the sentences `rows` [R]."""
        ...


class _Unlearning:
    """Whoever drafts from what is written alone."""

    def learn(self, rows: Tensor, slots: Tensor, states: Tensor) -> None:
        """Nothing is made of it."""


class BlockDrafter(_Unlearning):
    """A block decoder."""

    def __init__(
        self, model: AggressiveModel, source: Tensor, source_lengths: Tensor, search: AggressiveSearch, linked: Tensor | None
    ) -> None:
        self.model, self.search = model, search
        self.listed = shortlists(model.words, linked, source, source_lengths, search)
        self.source = model.read(source, source_lengths)

    def log_probs(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """[R,W,V] with minus infinity at what must not be written."""
        source = Source(
            [Memory.select(memory, rows) for memory in self.source.memories],
            self.source.words[rows],
            None if self.source.mask is None else self.source.mask[rows],
        )
        ids = sequences(tokens, lengths, widths)
        states = self.model.states(ids, lengths, lengths + widths, source)
        places = lengths[:, None] + torch.arange(int(widths.max()), device=rows.device)
        picked = places.clamp(max=ids.size(1) - 1)[:, :, None].expand(-1, -1, states.size(2))
        return ban(self.model.logits(states.gather(1, picked)).float().log_softmax(2), self.search, places)

    def propose(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        found = self.log_probs(rows, tokens, lengths, widths)
        found = among(found, self.listed, rows)
        ids = found.argmax(2) if numbers is None else pick(found.softmax(2), numbers)
        real = torch.arange(ids.size(1), device=ids.device) < widths[:, None]
        return Draft(torch.where(real, ids, -1), None if numbers is None else found.log_softmax(2))


class HeadDrafter:
    """Token after token, from the verifier's states as far as they are known, and from its own behind."""

    def __init__(
        self, model: DraftHead, source: Tensor, source_lengths: Tensor, search: AggressiveSearch, slots: int, linked: Tensor | None
    ) -> None:
        """`slots`: the longest output."""
        self.model, self.search = model, search
        self.listed = shortlists(model.words, linked, source, source_lengths, search)
        self.memories = model.read(source, source_lengths).head
        self.written_from = torch.zeros((len(source), slots + 1, model.config.width), device=source.device)

    def learn(self, rows: Tensor, slots: Tensor, states: Tensor) -> None:
        self.written_from[rows[:, None], slots] = states

    def log_probs(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """[R,1,V] of the next token alone, with minus infinity at what must not be written; its state is kept as if that were
        written."""
        size = int(lengths.max()) + 1
        ids = torch.nn.functional.pad(tokens, (0, max(0, size - tokens.size(1))), value=PAD)[:, :size]
        memories = [memory.select(rows) for memory in self.memories]
        here = torch.arange(len(rows), device=rows.device)
        states = self.model.states(ids, self.written_from[rows, :size], memories)[here, lengths]
        self.written_from[rows, lengths] = states
        return ban(self.model.logits(states).float().log_softmax(1)[:, None], self.search, lengths[:, None])

    def propose(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        width = int(widths.max())
        ids = torch.full((len(rows), width), -1, device=rows.device)
        written = torch.nn.functional.pad(tokens, (0, width), value=PAD)
        going, likelihood = torch.arange(len(rows), device=rows.device), torch.ones(len(rows), device=rows.device)
        found = []
        for place in range(width):
            going = going[widths[going] > place]
            scores = torch.zeros((len(rows), self.model.sizes.target), device=rows.device)
            if len(going):
                own = self.log_probs(rows[going], written[going], lengths[going] + place, widths[going])
                scores[going] = among(own, self.listed, rows[going])[:, 0].log_softmax(1)
                chosen = scores[going].argmax(1) if numbers is None else pick(scores[going].softmax(1), numbers[going, place])
                ids[going, place] = written[going, lengths[going] + place] = chosen
                likelihood[going] *= scores[going].gather(1, chosen[:, None])[:, 0].exp()
                going = going[(chosen != EOS) & (likelihood[going] >= self.search.confidence)]
            found.append(scores)
        return Draft(ids, None if numbers is None else torch.stack(found, 1))


def among(log_probs: Tensor, listed: Tensor | None, rows: Tensor) -> Tensor:
    """The same [R,W,V], with minus infinity at words that are not `listed` [B,V] for the sentences `rows` [R]."""
    return log_probs if listed is None else log_probs.masked_fill(~listed[rows][:, None], -torch.inf)


def network_drafter(
    model: AggressiveModel | DraftHead,
    source: Tensor,
    source_lengths: Tensor,
    search: AggressiveSearch,
    slots: int,
    linked: Tensor | None = None,
) -> BlockDrafter | HeadDrafter:
    """The network at work on a batch; `slots`: the longest output; `linked` as `models.common.shortlist.linked_tokens` has it."""
    if isinstance(model, DraftHead):
        return HeadDrafter(model, source, source_lengths, search, slots, linked)
    return BlockDrafter(model, source, source_lengths, search, linked)


class LookupDrafter(_Unlearning):
    """No network: what follows, in the hint of a sentence or earlier in its output, the last n-gram."""

    def __init__(self, hints: Sequence[Sequence[int]], longest: int) -> None:
        self.hints, self.longest = hints, longest

    def propose(self, rows: Tensor, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        ids = torch.full((len(rows), max(1, int(widths.max()))), -1)
        columns = zip(rows.tolist(), tokens.tolist(), lengths.tolist(), widths.tolist(), strict=True)
        for place, (row, written, length, width) in enumerate(columns):
            found = look_up(self.hints[row], written[:length], self.longest, width)
            ids[place, : len(found)] = torch.tensor(found, dtype=torch.int64)
        return Draft(ids.to(tokens.device), None)


def look_up(hint: Sequence[int], written: Sequence[int], longest: int, width: int) -> list[int]:
    """At most `width` tokens that follow, in `hint` or else in `written`, the longest n-gram (up to `longest` tokens) that
    `written` ends with. Both begin with BOS. Of several places in the hint the one nearest to the output's own length, of several
    in the output the last."""
    text, before = [BOS, *hint], [BOS, *written]
    end = len(before) - 1
    for size in range(min(longest, len(before)), 0, -1):
        last = before[-size:]
        places = [place for place in range(size - 1, len(text) - 1) if text[place - size + 1 : place + 1] == last]
        if places:
            nearest = min(places, key=lambda place: (abs(place - end), place))
            return list(text[nearest + 1 : nearest + 1 + width])
        for place in range(end - 1, size - 2, -1):
            if before[place - size + 1 : place + 1] == last:
                return before[place + 1 : place + 1 + width]
    return []


def pick(probabilities: Tensor, numbers: Tensor) -> Tensor:
    """[...]: the ids that `numbers` [...] in [0, 1) choose by `probabilities` [...,V], which need not sum to 1."""
    until = probabilities.double().cumsum(-1)
    threshold = numbers.double()[..., None] * until[..., -1:]
    place = (until <= threshold).sum(-1)
    last = (probabilities > 0).long().mul(torch.arange(1, probabilities.size(-1) + 1, device=numbers.device)).amax(-1) - 1
    return torch.minimum(place, last).clamp(min=0)
