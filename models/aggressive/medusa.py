"""Heads on a verifier that predict the tokens after its next one (Stern et al. 2018; Medusa, Cai et al. 2024)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from models.aggressive.extension import VerifierExtension
from models.common.layers.dropout import Dropout
from models.common.layers.initialisation import initialise
from models.common.layers.linear import Linear


class MedusaHeads(VerifierExtension):
    """The verifier's network, and `draft_width` heads on its states.

    From the state h_t of slot t, which predicts token t, head i = 1..k predicts token t + i from h_t + SiLU(W_i h_t + b_i), by the
    verifier's own output projection (Cai et al. 2024, section 2.1.1). W_i and b_i are 0 at first.
    """

    def __init__(self, config: AggressiveConfig, sizes: Sizes) -> None:
        """Create the network. Raises ValueError if the width is not an even multiple of the number of heads of attention."""
        super().__init__(config, sizes)
        self.medusa = Linear(config.width, config.draft_width * config.width)
        self.medusa_dropout = Dropout(config.dropout)
        initialise(self)
        nn.init.zeros_(self.medusa.weight)
        self.freeze_shared()

    def drafting_states(self, states: Tensor) -> Tensor:
        """Return the states [...,k,D] of all heads for the verifier's states [...,D]."""
        residual: Tensor = F.silu(self.medusa(self.medusa_dropout(states)))
        return states.unsqueeze(-2) + residual.reshape(*states.shape[:-1], -1, states.size(-1))
