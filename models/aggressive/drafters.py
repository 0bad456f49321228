"""Who drafts, through torch: a block decoder, or what follows the last n-gram elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from models.aggressive.config import AggressiveSearch
from models.aggressive.model import AggressiveModel, Source, sequences
from models.aggressive.rules import ban
from models.common.attention import Memory
from models.family import BOS


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


class NetworkDrafter:
    """A block decoder."""

    def __init__(self, model: AggressiveModel, source: Tensor, source_lengths: Tensor, search: AggressiveSearch) -> None:
        self.model, self.search = model, search
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
        if self.search.draft_words is not None:
            found[..., self.search.draft_words :] = -torch.inf
        ids = found.argmax(2) if numbers is None else pick(found.softmax(2), numbers)
        real = torch.arange(ids.size(1), device=ids.device) < widths[:, None]
        return Draft(torch.where(real, ids, -1), None if numbers is None else found.log_softmax(2))


class LookupDrafter:
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
