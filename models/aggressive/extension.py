"""The network that drafters on top of a verifier extend: the verifier's own network, whose states they read."""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from fewstep.families.aggressive.pair import is_shared
from models.aggressive.tokens import CommonTokens
from models.common.layers.attention import Memory
from models.common.layers.backbone import Backbone
from models.common.layers.embeddings import Positions, embed


class VerifierExtension(Backbone):
    """A verifier's network, which is not trained unless the config says so, with parts on its states.

    Slot t predicts token t; its input is token t - 1.
    """

    def __init__(self, config: AggressiveConfig, sizes: Sizes) -> None:
        """Create the network. Raises ValueError if the width is not an even multiple of the number of heads."""
        super().__init__(config, sizes)
        self.config = config
        self.target_positions = Positions.of(config, config.max_positions)
        self.words = CommonTokens(sizes.target)

    def freeze_shared(self) -> None:
        """Exclude the verifier's weights from training."""
        shared = self.shared_parameters()
        for name, weight in self.named_parameters():
            weight.requires_grad_(name not in shared)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the parts on top; a verifier that is not trained stays in evaluation mode."""
        super().train(mode)
        if not self.config.train_verifier:
            parts: tuple[nn.Module, ...] = (self.encoder, self.decoder, self.dropout)
            for part in parts:
                part.eval()
        return self

    def verifier_states(self, tokens: Tensor, memories: list[Memory]) -> Tensor:
        """Return the states [B,T,D] from which the verifier predicts tokens [B,T]."""
        carried = F.pad(embed(tokens[:, :-1], self.target_embedding), (0, 0, 1, 0))
        states: Tensor = self.decoder(self.dropout(carried + self.slot_codes(tokens.size(1))), memories, causal=True)
        return states

    def shared_parameters(self) -> list[str]:
        """Return the names of the verifier's tensors, which are not trained."""
        return [name for name in self.state_dict() if is_shared(name, self.config, self.sizes.joint)]

    def codes(self) -> dict[str, Tensor]:
        """Return the tensors that native code reads in addition to the weights."""
        return {**super().codes(), "slot_codes": self.slot_codes(self.max_positions)}

    def slot_codes(self, count: int) -> Tensor:
        """Return the position codes [count,D] of the first slots."""
        weight = self.target_embedding.weight
        codes: Tensor = self.target_positions(torch.arange(count, device=weight.device)).to(weight.dtype)
        return codes
