"""The draft head: an autoregressive drafter of one layer that reads the verifier's states (EAGLE, Li et al. 2024)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from fewstep.families.aggressive.pair import is_shared
from models.aggressive.common_tokens import CommonTokens
from models.common.layers.attention import Memory
from models.common.layers.backbone import Backbone, layer_shape
from models.common.layers.dropout import Dropout
from models.common.layers.embeddings import Positions, embed
from models.common.layers.initialisation import initialise
from models.common.layers.linear import Linear
from models.common.layers.stacks import Decoder


class HeadSource(NamedTuple):
    """The encoder's output for a batch of sources."""

    verifier: list[Memory]
    """Keys and values for each layer of the verifier's decoder."""
    head: list[Memory]
    """Keys and values for the drafting layer."""


class DraftHead(Backbone):
    """The verifier's network, which is not trained, and a layer on its states.

    Slot t predicts token t, as in the verifier. Its input is token t - 1 plus a projection of the state from which that token was
    predicted: the verifier's state if it is known, otherwise the state of this layer.
    """

    def __init__(self, config: AggressiveConfig, sizes: Sizes) -> None:
        """Create the network. Raises ValueError if the width is not an even multiple of the number of heads."""
        super().__init__(config, sizes)
        self.config = config
        self.target_positions = Positions.of(config, config.max_positions)
        self.features = Linear(config.width, config.width, bias=False)
        self.head_dropout = Dropout(config.dropout)
        self.head = Decoder(1, layer_shape(config))
        self.words = CommonTokens(sizes.target)
        initialise(self)
        nn.init.zeros_(self.features.weight)
        shared = self.shared_parameters()
        for name, weight in self.named_parameters():
            weight.requires_grad_(name not in shared)

    def train(self, mode: bool = True) -> DraftHead:
        """Set the mode of the head; the verifier stays in evaluation mode."""
        super().train(mode)
        for part in (self.encoder, self.decoder, self.dropout):
            part.eval()
        return self

    def read(self, source: Tensor, source_lengths: Tensor) -> HeadSource:
        """Encode sources [B,S] with EOS."""
        states, mask = self.encoded(source, source_lengths)
        return HeadSource(self.decoder.memories(states, mask), self.head.memories(states, mask))

    def verifier_states(self, tokens: Tensor, source: HeadSource) -> Tensor:
        """Return the states [B,T,D] from which the verifier predicts tokens [B,T]."""
        carried = F.pad(embed(tokens[:, :-1], self.target_embedding), (0, 0, 1, 0))
        states: Tensor = self.decoder(carried + self.slot_codes(tokens.size(1)), source.verifier, causal=True)
        return states

    def states(self, tokens: Tensor, origins: Tensor, memories: list[Memory]) -> Tensor:
        """Return the states [B,T,D] of the first T slots.

        Slot t reads token t - 1 of `tokens` [B,T] and the state of `origins` [B,T,D] from which it was predicted; the last token
        and state are not read.
        """
        carried = embed(tokens[:, :-1], self.target_embedding) + self.features(origins[:, :-1])
        x = self.head_dropout(F.pad(carried, (0, 0, 1, 0)) + self.slot_codes(tokens.size(1)))
        states: Tensor = self.head(x, memories, causal=True)
        return states

    def shared_parameters(self) -> list[str]:
        """Return the names of the verifier's tensors."""
        return [name for name in self.state_dict() if is_shared(name, self.config, self.sizes.joint)]

    def codes(self) -> dict[str, Tensor]:
        """Return the tensors that native code reads in addition to the weights."""
        return {**super().codes(), "slot_codes": self.slot_codes(self.max_positions)}

    def init_aliases(self) -> dict[str, str]:
        """Initialise the layer and its norm from the verifier's last layer and norm."""
        last = f"decoder.layers.{len(self.decoder.layers) - 1}."
        names = {name: name.replace("head.layers.0.", last) for name in self.state_dict() if name.startswith("head.layers.")}
        return names | {name: name.replace("head.", "decoder.") for name in self.state_dict() if name.startswith("head.norm.")}

    def slot_codes(self, count: int) -> Tensor:
        """Return the position codes [count,D] of the first slots."""
        codes: Tensor = self.target_positions(torch.arange(count, device=self.target_embedding.weight.device))
        return codes
