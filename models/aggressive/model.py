"""The block drafter: a Transformer whose decoder fills empty slots behind a prefix (Xia et al. 2022, section 3.1)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from fewstep.families.aggressive.pair import is_shared
from fewstep.vocabulary import MASK, PAD
from models.aggressive.tokens import CommonTokens
from models.common.layers.attention import Memory, padding_mask
from models.common.layers.backbone import NO_WEIGHTS, Backbone, initialise
from models.common.layers.embeddings import Positions, embed
from models.common.layers.linear import Linear


class Source(NamedTuple):
    """The encoder's output for a batch of sources, with their embeddings."""

    memories: list[Memory]
    embedded: Tensor
    """The embeddings [B,S,D] of the source tokens, without position codes."""
    mask: Tensor | None
    """A mask [B,1,1,S], True at real tokens. None: all are real."""

    def select(self, rows: Tensor) -> Source:
        """Return the sentences `rows`, which may repeat."""
        mask = None if self.mask is None else self.mask[rows]
        return Source([memory.select(rows) for memory in self.memories], self.embedded[rows], mask)


class AggressiveModel(Backbone):
    """A network that fills a block of slots with one call of its decoder. There is no start symbol: token t stands at position t,
    and slot t predicts it."""

    def __init__(self, config: AggressiveConfig, sizes: Sizes) -> None:
        """Create the network. Raises ValueError if the width is not an even multiple of the number of heads."""
        super().__init__(config, sizes)
        self.config = config
        self.slot_positions = Positions.of(config, config.max_positions)
        self.copy = Linear(config.width, config.width, bias=False) if config.soft_copy else None
        self.words = CommonTokens(sizes.target)
        initialise(self, normal=config.initialisation == "normal")
        shared = self.shared_parameters()
        for name, weight in self.named_parameters():
            weight.requires_grad_(name not in shared)

    def shared_parameters(self) -> list[str]:
        """Return the names of the verifier's tensors, which are not trained."""
        return [name for name in self.state_dict() if is_shared(name, self.config, self.sizes.joint)]

    def init_aliases(self) -> dict[str, str]:
        """Initialise the decoder at random, unless the config asks for all of the other network's weights."""
        if self.config.copied_weights == "all":
            return {}
        return {name: NO_WEIGHTS for name in self.state_dict() if name.startswith("decoder.")}

    def codes(self) -> dict[str, Tensor]:
        """Return the tensors that native code reads in addition to the weights."""
        codes = self.slot_codes(self.max_positions)
        found = {**super().codes(), "slot_codes": codes}
        return found if self.copy is None else {**found, "copy_queries": self.copy_queries(codes)}

    def read(self, source: Tensor, source_lengths: Tensor) -> Source:
        """Encode sources [B,S] with EOS. A shared encoder runs in evaluation mode and without gradients."""
        embedded = embed(source, self.source_embedding or self.target_embedding)
        if self.config.encoder == "separate":
            states, mask = self.encoded(source, source_lengths)
            return Source(self.decoder.memories(states, mask), embedded, mask)
        training = self.encoder.training
        with torch.no_grad():
            mask = padding_mask(source_lengths, source.size(1))
            states = self.encoder.eval()(embedded + self._source_codes(source.size(1)), mask)
        self.encoder.train(training)
        return Source(self.decoder.memories(states, mask), embedded, mask)

    def states(self, ids: Tensor, prefix_lengths: Tensor, lengths: Tensor, source: Source) -> Tensor:
        """Return the states [B,T,D] of sequences [B,T] of `prefix_lengths` [B] tokens followed by slots, up to `lengths` [B].

        A slot with `MASK` is empty; in training other slots show their token.
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
        """Return [B,T,D], the embedding of the last token of each prefix at empty slots, and 0 elsewhere or without a prefix."""
        last = ids.gather(1, (prefix_lengths - 1).clamp(min=0)[:, None])
        carries = (ids == MASK) & (prefix_lengths > 0)[:, None]
        return embed(last, self.target_embedding) * carries[:, :, None]

    def slot_codes(self, count: int) -> Tensor:
        """Return the position codes [count,D] of the first slots."""
        weight = self.target_embedding.weight
        codes: Tensor = self.slot_positions(torch.arange(count, device=weight.device)).to(weight.dtype)
        return codes

    def copy_queries(self, codes: Tensor) -> Tensor:
        """Return W P_t [...,D] of codes P_t [...,D], times sqrt(D) where scores are not scaled: the attention divides by it."""
        assert self.copy is not None
        queries: Tensor = self.copy(codes)
        return queries if self.config.copy_scale else queries * math.sqrt(self.config.width)

    def soft_copy(self, codes: Tensor, source: Source) -> Tensor:
        """Return [B,T,D], sum_s softmax_s(W P_t . (e_s + P_s) / sqrt(D)) e_s, a function of the slot's position and the source."""
        keys = source.embedded + self._source_codes(source.embedded.size(1))
        scores = self.copy_queries(codes) @ keys.transpose(1, 2) / math.sqrt(self.config.width)
        if source.mask is not None:
            scores = scores.masked_fill(~source.mask[:, 0], -torch.inf)
        mixed: Tensor = scores.softmax(2).to(source.embedded.dtype) @ source.embedded
        return mixed

    def _source_codes(self, count: int) -> Tensor:
        weight = self.target_embedding.weight
        codes: Tensor = self.source_positions(torch.arange(count, device=weight.device)).to(weight.dtype)
        return codes

    def _mask(self, prefix_lengths: Tensor, lengths: Tensor, size: int) -> Tensor | None:
        """Return the attention mask [B,1,1 or T,T]."""
        if self.config.prefix_attention == "all":
            return padding_mask(lengths, size)
        position = torch.arange(size, device=lengths.device)
        end = torch.where(position < prefix_lengths[:, None], position + 1, lengths[:, None])
        return (position < end[:, :, None])[:, None]


def sequences(tokens: Tensor, prefix_lengths: Tensor, widths: Tensor, size: int | None = None) -> Tensor:
    """Return [B,T], the first `prefix_lengths` [B] of `tokens` [B,M], then `widths` [B] times MASK, then PAD.

    T is `size`; None: that of the longest sequence.
    """
    ends = prefix_lengths + widths
    position = torch.arange(int(ends.max()) if size is None else size, device=tokens.device)
    prefix = torch.nn.functional.pad(tokens, (0, max(0, len(position) - tokens.size(1))), value=PAD)[:, : len(position)]
    empty = torch.where(position < ends[:, None], MASK, PAD)
    return torch.where(position < prefix_lengths[:, None], prefix, empty)


def fits(config: AggressiveConfig, source_length: int, target_length: int) -> bool:
    """Return whether each side, with its EOS, has at most `max_positions` tokens, including a block behind the target's last
    prefix."""
    widest = max(config.draft_width, config.widths[1])  # validation has blocks of draft_width, whatever training draws
    return source_length < config.max_positions and target_length + widest <= config.max_positions
