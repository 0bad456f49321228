"""The drafter: a Transformer whose decoder fills empty slots behind a prefix (Xia et al. 2022, section 3.1)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from models.aggressive.config import AggressiveConfig
from models.aggressive.words import CommonWords
from models.common.layers.attention import Memory, padding_mask
from models.common.layers.backbone import Backbone
from models.common.layers.embeddings import Positions, embed
from models.common.layers.initialisation import initialise
from models.common.layers.linear import Linear
from models.family import MASK, PAD, Sizes


class Source(NamedTuple):
    """What is read of a batch of sources."""

    memories: list[Memory]
    words: Tensor
    """[B,S,D] embedded, without positions"""
    mask: Tensor | None
    """[B,1,1,S] True at real tokens (None: everything)"""

    def select(self, rows: Tensor) -> Source:
        """The same for some of the sentences, as often as they are named."""
        mask = None if self.mask is None else self.mask[rows]
        return Source([memory.select(rows) for memory in self.memories], self.words[rows], mask)


class AggressiveModel(Backbone):
    """Fills a block of slots with one call of its decoder. There is no start symbol: token t stands at place t, and slot t predicts
    it."""

    def __init__(self, config: AggressiveConfig, sizes: Sizes) -> None:
        """Raises ValueError when the width cannot be split into heads and into sine and cosine halves."""
        super().__init__(config, sizes)
        self.config = config
        self.slot_positions = Positions(config.positions, config.max_positions, config.width)
        self.copy = Linear(config.width, config.width, bias=False) if config.soft_copy else None
        self.words = CommonWords(sizes.target)
        initialise(self)
        lent = self.lent()
        for name, weight in self.named_parameters():
            weight.requires_grad_(name not in lent)

    def lent(self) -> list[str]:
        """Tensors that are the verifier's and stay as they are."""
        if self.config.encoder == "separate":
            return []
        table = "target_embedding." if self.sizes.joint else "source_embedding."
        return [name for name in self.state_dict() if name.startswith(("encoder.", "source_positions.", table))]

    def read(self, source: Tensor, source_lengths: Tensor) -> Source:
        """Sources [B,S] with EOS. A shared encoder reads as it does at work: without dropout, without gradient."""
        words = embed(source, self.source_embedding or self.target_embedding)
        if self.config.encoder == "separate":
            states, mask = self.encoded(source, source_lengths)
            return Source(self.decoder.memories(states, mask), words, mask)
        training = self.encoder.training
        with torch.no_grad():
            mask = padding_mask(source_lengths, source.size(1))
            states = self.encoder.eval()(words + self._source_codes(source.size(1)), mask)
        self.encoder.train(training)
        return Source(self.decoder.memories(states, mask), words, mask)

    def states(self, ids: Tensor, prefix_lengths: Tensor, lengths: Tensor, source: Source) -> Tensor:
        """States [B,T,D] of sequences [B,T] whose first `prefix_lengths` [B] are tokens and the others, up to `lengths` [B], slots.

        A slot with `MASK` is empty; in training others show their token.
        """
        codes = self.slot_codes(ids.size(1))
        x = embed(ids, self.target_embedding)
        if self.copy is not None:
            x = torch.where((ids == MASK)[:, :, None], self.soft_copy(codes, source).to(x.dtype), x)
        if self.config.feed_last_token:
            x = x + self._last_token(ids, prefix_lengths)
        x = self.dropout(x + codes)
        mask = self._mask(prefix_lengths, lengths, ids.size(1))
        for index, (layer, memory) in enumerate(zip(self.decoder.layers, source.memories, strict=True)):
            if index > 0 and self.config.layer_positions:
                x = self.dropout(x + codes)
            x = layer(x, memory, mask)
        found: Tensor = self.decoder.norm(x)
        return found

    def _last_token(self, ids: Tensor, prefix_lengths: Tensor) -> Tensor:
        """[B,T,D] of the last token of each prefix where a slot is empty, else 0; also without a prefix."""
        last = ids.gather(1, (prefix_lengths - 1).clamp(min=0)[:, None])
        carries = (ids == MASK) & (prefix_lengths > 0)[:, None]
        return embed(last, self.target_embedding) * carries[:, :, None]

    def slot_codes(self, count: int) -> Tensor:
        """[count,D]"""
        codes: Tensor = self.slot_positions(torch.arange(count, device=self.target_embedding.weight.device))
        return codes

    def copy_queries(self, codes: Tensor) -> Tensor:
        """W P_t: [...,D] to [...,D]"""
        assert self.copy is not None
        queries: Tensor = self.copy(codes)
        return queries

    def soft_copy(self, codes: Tensor, source: Source) -> Tensor:
        """[B,T,D]: sum_s softmax_s(W P_t . (e_s + P_s) / sqrt(D)) e_s, of a slot's position and the source alone."""
        keys = source.words + self._source_codes(source.words.size(1))
        scores = self.copy_queries(codes) @ keys.transpose(1, 2) / math.sqrt(self.config.width)
        if source.mask is not None:
            scores = scores.masked_fill(~source.mask[:, 0], -torch.inf)
        mixed: Tensor = scores.softmax(2).to(source.words.dtype) @ source.words
        return mixed

    def _source_codes(self, count: int) -> Tensor:
        codes: Tensor = self.source_positions(torch.arange(count, device=self.target_embedding.weight.device))
        return codes

    def _mask(self, prefix_lengths: Tensor, lengths: Tensor, size: int) -> Tensor | None:
        """[B,1,1 or T,T]"""
        if self.config.prefix_attention == "all":
            return padding_mask(lengths, size)
        place = torch.arange(size, device=lengths.device)
        end = torch.where(place < prefix_lengths[:, None], place + 1, lengths[:, None])
        return (place < end[:, :, None])[:, None]


def sequences(tokens: Tensor, prefix_lengths: Tensor, widths: Tensor) -> Tensor:
    """[B,T]: the first `prefix_lengths` [B] of `tokens` [B,M], then `widths` [B] times MASK, then PAD."""
    ends = prefix_lengths + widths
    place = torch.arange(int(ends.max()), device=tokens.device)
    known = torch.nn.functional.pad(tokens, (0, max(0, len(place) - tokens.size(1))), value=PAD)[:, : len(place)]
    empty = torch.where(place < ends[:, None], MASK, PAD)
    return torch.where(place < prefix_lengths[:, None], known, empty)


def fits(config: AggressiveConfig, source_length: int, target_length: int) -> bool:
    """Has each side, with its EOS, at most `max_positions` tokens, with room for a block behind the target's last prefix?"""
    widest = max(config.draft_width, config.widths[1])  # validation has blocks of draft_width, whatever training draws
    return source_length < config.max_positions and target_length + widest <= config.max_positions
