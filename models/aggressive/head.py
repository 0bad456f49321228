"""The draft head: an autoregressive drafter of one layer that reads the verifier's states (EAGLE, Li et al. 2024)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from models.aggressive.extension import VerifierExtension
from models.aggressive.tree import DraftTree, ancestors, depths
from models.common.layers.attention import Memory
from models.common.layers.backbone import layer_shape
from models.common.layers.blocks import Decoder
from models.common.layers.dropout import Dropout
from models.common.layers.embeddings import embed
from models.common.layers.initialisation import initialise
from models.common.layers.linear import Linear
from models.common.losses.cross_entropy import cross_entropy
from models.family import Loss
from models.training.batch import Batch


class HeadSource(NamedTuple):
    """The encoder's output for a batch of sources."""

    verifier: list[Memory]
    """Keys and values for each layer of the verifier's decoder."""
    head: list[Memory]
    """Keys and values for the drafting layer."""


class DraftHead(VerifierExtension):
    """The verifier's network, which is not trained, and a layer on its states.

    The input of slot t is token t - 1 plus a projection of the state from which that token was predicted: the verifier's state if
    it is known, otherwise the state of this layer.
    """

    def __init__(self, config: AggressiveConfig, sizes: Sizes) -> None:
        """Create the network. Raises ValueError if the width is not an even multiple of the number of heads."""
        super().__init__(config, sizes)
        self.features = Linear(config.width, config.width, bias=False)
        self.head_dropout = Dropout(config.dropout)
        self.head = Decoder(1, layer_shape(config))
        initialise(self)
        nn.init.zeros_(self.features.weight)
        self.freeze_shared()

    def read(self, source: Tensor, source_lengths: Tensor) -> HeadSource:
        """Encode sources [B,S] with EOS."""
        states, mask = self.encoded(source, source_lengths)
        return HeadSource(self.decoder.memories(states, mask), self.head.memories(states, mask))

    def states(self, tokens: Tensor, origins: Tensor, memories: list[Memory]) -> Tensor:
        """Return the states [B,T,D] of the first T slots.

        Slot t reads token t - 1 of `tokens` [B,T] and the state of `origins` [B,T,D] from which it was predicted; the last token
        and state are not read.
        """
        carried = embed(tokens[:, :-1], self.target_embedding) + self.features(origins[:, :-1])
        x = self.head_dropout(F.pad(carried, (0, 0, 1, 0)) + self.slot_codes(tokens.size(1)))
        states: Tensor = self.head(x, memories, causal=True)
        return states

    def tree_states(
        self, tokens: Tensor, origins: Tensor, memories: list[Memory], lengths: Tensor, tree: DraftTree, tree_origins: Tensor
    ) -> Tensor:
        """Return the states [B,N,D] of the nodes of trees whose root is slot `lengths` [B].

        Tokens and origins [B,T,D] of the slots are those of `states`; `tree_origins` [B,N,D] are the states from which the tokens
        of the nodes were predicted, those of their parents.
        """
        slots, nodes = tokens.size(1), tree.ids.size(1)
        carried = embed(tokens[:, :-1], self.target_embedding) + self.features(origins[:, :-1])
        x = F.pad(carried, (0, 0, 1, 0)) + self.slot_codes(slots)
        codes = self.slot_codes(self.max_positions)
        position = (lengths[:, None] + depths(tree)[:, 1:]).clamp(max=len(codes) - 1)
        below = embed(tree.ids, self.target_embedding) + self.features(tree_origins) + codes[position]
        slot = torch.arange(slots, device=tokens.device)
        causal = (slot <= slot[:, None]).expand(len(tokens), -1, -1)
        above = (slot <= lengths[:, None])[:, None].expand(-1, nodes, -1)
        mask = torch.cat((F.pad(causal, (0, nodes)), torch.cat((above, ancestors(tree)[:, 1:, 1:]), 2)), 1)
        states: Tensor = self.head(torch.cat((x, below), 1), memories, mask[:, None])
        return states[:, slots:]

    def init_aliases(self) -> dict[str, str]:
        """Initialise the layer and its norm from the verifier's last layer and norm."""
        last = f"decoder.layers.{len(self.decoder.layers) - 1}."
        names = {name: name.replace("head.layers.0.", last) for name in self.state_dict() if name.startswith("head.layers.")}
        return names | {name: name.replace("head.", "decoder.") for name in self.state_dict() if name.startswith("head.norm.")}


def head_loss(network: DraftHead, batch: Batch, label_smoothing: float) -> Loss:
    """Return (1 - eps) (-log p(y)) + eps mean_v (-log p(v)), summed over all tokens with EOS; in nats, float32 (section 3.2).

    All slots carry the verifier's states, so one pass trains all slots. (The paper's distance to the verifier's next state made no
    difference.) Statistics: `nll` (without smoothing), `correct` (tokens that the network ranks first).
    """
    source = network.read(batch.source, batch.source_lengths)
    states = network.states(batch.target, network.verifier_states(batch.target, source.verifier), source.head)
    rows, slots = (torch.arange(states.size(1), device=states.device) < batch.target_lengths[:, None]).nonzero(as_tuple=True)
    labels = batch.target[rows, slots]
    if network.training:
        network.words.add(labels)
    sums = cross_entropy(states[rows, slots], network.target_embedding.weight, labels, label_smoothing)
    return Loss(sums.total, torch.tensor(len(labels), device=labels.device), {"nll": sums.nll, "correct": sums.correct})
