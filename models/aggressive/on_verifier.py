"""Drafters on top of a verifier, whose states they read, with their losses: a layer (EAGLE, Li et al. 2024), or heads that predict
the tokens after the verifier's next one (Stern et al. 2018; Medusa, Cai et al. 2024)."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from fewstep.families.aggressive.pair import is_shared
from models.aggressive.tokens import CommonTokens
from models.aggressive.tree import DraftTree, ancestors, depths
from models.common.layers.attention import Memory
from models.common.layers.backbone import Backbone, initialise, layer_shape
from models.common.layers.blocks import Decoder
from models.common.layers.dropout import Dropout
from models.common.layers.embeddings import Positions, embed
from models.common.layers.linear import Linear
from models.common.losses.cross_entropy import CrossEntropy, cross_entropy
from models.family import Loss
from models.training.batch import Batch


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


RANKED_SLOTS = 1024
"""Number of slots whose logits are held at a time."""


def medusa_loss(network: MedusaHeads, batch: Batch, label_smoothing: float) -> Loss:
    """Return sum_i lambda^i CE_i over the heads i = 1..k (equation 1), with CE = (1 - eps) (-log p(y)) + eps mean_v (-log p(v)),
    summed over all slots t whose token t + i exists, EOS included; in nats, float32. With `train_verifier`, CE_0 of the network's
    own next token is added (equation 2).

    lambda is `head_loss_decay`. The count is the number of target tokens with EOS. Statistics, as sums over tokens: `nll` of the
    first head without smoothing; `top1_I`, the tokens that head I ranks first; outside training also `top3_I`, those that it ranks
    among its three best, and `accepted`, the heads of all slots that are right together with all heads before them, which a
    verifier that writes the target would accept.
    """
    memories = network.encode(batch.source, batch.source_lengths)
    states = network.verifier_states(batch.target, memories)
    real = torch.arange(states.size(1), device=states.device) < batch.target_lengths[:, None]
    if network.training:
        network.words.add(batch.target[real])
    parts = [_cross_entropy(network, states, batch.target, real, 0, label_smoothing)] if network.config.train_verifier else []
    total = parts[0].total if parts else torch.zeros((), device=states.device)
    drafting = network.drafting_states(states)
    statistics: dict[str, Tensor] = {}
    for head in range(1, network.config.draft_width + 1):
        found = _cross_entropy(network, drafting[:, :, head - 1], batch.target, real, head, label_smoothing)
        total = total + network.config.head_loss_decay**head * found.total
        statistics |= {"nll": found.nll} if head == 1 else {}
        statistics[f"top1_{head}"] = found.correct
        if not network.training:
            statistics[f"top3_{head}"] = _in_best_three(network, drafting[:, :, head - 1], batch.target, real, head)
    if not network.training:
        statistics["accepted"] = _accepted(network, drafting, batch.target, real)
    return Loss(total, real.sum(), statistics)


def _cross_entropy(
    network: MedusaHeads, states: Tensor, target: Tensor, real: Tensor, head: int, label_smoothing: float
) -> CrossEntropy:
    """Return the cross-entropy of tokens t + `head` from states [B,T,D] of slots t; `real` [B,T] is True at tokens."""
    labelled = real[:, head:]
    size = labelled.size(1)
    return cross_entropy(
        states[:, :size][labelled], network.target_embedding.weight, target[:, head:][labelled], label_smoothing, bias=None
    )


def _in_best_three(network: MedusaHeads, states: Tensor, target: Tensor, real: Tensor, head: int) -> Tensor:
    """Return the number of tokens t + `head` that are among the three best of slots t with states [B,T,D]."""
    labelled = real[:, head:]
    rows = states[:, : labelled.size(1)][labelled], target[:, head:][labelled]
    count = torch.zeros((), dtype=torch.int64, device=states.device)
    for part, labels in zip(*(torch.split(values, RANKED_SLOTS) for values in rows), strict=True):
        logits = network.logits(part)
        count = count + ((logits > logits.gather(1, labels[:, None])).sum(1) < 3).sum()
    return count


def _accepted(network: MedusaHeads, drafting: Tensor, target: Tensor, real: Tensor) -> Tensor:
    """Return the number of heads of all slots that are right together with all heads before them."""
    before = real
    count = torch.zeros((), dtype=torch.int64, device=real.device)
    for head in range(1, network.config.draft_width + 1):
        labelled = real[:, head:]
        before = before[:, : labelled.size(1)] & labelled
        rows, slots = before.nonzero(as_tuple=True)
        right = network.logits(drafting[rows, slots, head - 1]).argmax(1) == target[rows, slots + head]
        before = before.index_put((rows, slots), right)
        count = count + right.sum()
    return count
