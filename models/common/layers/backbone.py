"""The encoder-decoder that the networks of all families extend: embeddings, source positions and the two stacks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewstep.config.network import NetworkConfig, Sizes
from fewstep.system.networks import has_logits_bias
from models.common.layers.attention import Memory, padding_mask
from models.common.layers.blocks import Decoder, Encoder, Shape
from models.common.layers.dropout import Dropout
from models.common.layers.embeddings import Embedding, Positions, embed
from models.common.layers.linear import TokenTable


def layer_shape(config: NetworkConfig) -> Shape:
    """Return the shape of the layers of both stacks."""
    return Shape(
        width=config.width,
        inner=config.feed_forward,
        heads=config.heads,
        dropout=config.dropout,
        attention_dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
        feed_forward_dropout=config.dropout if config.feed_forward_dropout is None else config.feed_forward_dropout,
        norm=config.norm,
        activation=config.activation,
    )


NO_WEIGHTS = ""
"""The name of no tensor."""


class Backbone(nn.Module):
    """A Transformer encoder-decoder without the inputs of its decoder. With a joint vocabulary both sides share one embedding."""

    logits_bias: Tensor | None
    """A bias [V] of the logits, for networks that have one."""

    def __init__(self, config: NetworkConfig, sizes: Sizes) -> None:
        """Create the network. Raises ValueError if the width is not an even multiple of the number of heads."""
        super().__init__()
        if config.width % config.heads or config.width % 2:
            raise ValueError(f"width: expected an even multiple of heads ({config.heads}), got {config.width}")
        self.sizes = sizes
        self.max_positions = config.max_positions
        self.register_buffer("logits_bias", torch.zeros(sizes.target) if has_logits_bias(config) else None)
        shape = layer_shape(config)
        scaled = config.scale_embeddings
        self.target_embedding = TokenTable(sizes.target, config.width, scaled=scaled)
        self.output = None if getattr(config, "tied_output", True) else TokenTable(sizes.target, config.width)
        self.source_embedding = None if sizes.joint else Embedding(sizes.source, config.width, scaled=scaled)
        self.source_positions = Positions.of(config, config.max_positions)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config.encoder_layers, shape)
        self.decoder = Decoder(config.decoder_layers, shape)

    def source_inputs(self, source: Tensor) -> Tensor:
        """Return the inputs [B,N+S,D] of the encoder for sources [B,S]; N vectors may stand in front of the tokens."""
        positions = self.source_positions(torch.arange(source.size(1), device=source.device))
        embedded = embed(source, self.source_embedding or self.target_embedding)
        inputs: Tensor = embedded + positions.to(embedded.dtype)
        return inputs

    def encoded(self, source: Tensor, source_lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the states [B,N+S,D] of sources [B,S] with EOS and the mask [B,1,1,N+S] of real tokens (None: all), where N is the
        number of vectors in front of them."""
        inputs = self.source_inputs(source)
        mask = padding_mask(source_lengths + (inputs.size(1) - source.size(1)), inputs.size(1))
        states: Tensor = self.encoder(self.dropout(inputs), mask)
        return states, mask

    def encode(self, source: Tensor, source_lengths: Tensor) -> list[Memory]:
        """Return the keys and values that the decoder's layers read of sources [B,S] with EOS."""
        return self.decoder.memories(*self.encoded(source, source_lengths))

    def codes(self) -> dict[str, Tensor]:
        """Return the tensors that are computed from the config and the weights for native code (`fewstep.system.networks`)."""
        return {"source_positions": self.source_positions(torch.arange(self.max_positions))}

    def init_aliases(self) -> dict[str, str]:
        """Return names in another network's weights, by the tensors of this network that are initialised from them; `NO_WEIGHTS`
        for a tensor that keeps its random values."""
        return {}

    @property
    def output_table(self) -> TokenTable:
        """The table [V,D] that logits are computed by: the target embedding, unless the network has one of its own."""
        return self.target_embedding if self.output is None else self.output

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits [...,V] of states [...,D], with the network's bias if it has one."""
        return self.output_table.logits(states, self.logits_bias)


BERT_STD = 0.02
"""Standard deviation of all weights of BERT (Devlin et al. 2019)."""


def initialise(module: nn.Module, *, normal: bool = False) -> None:
    """Initialise embeddings with N(0, 1/width), matrices Glorot uniform (a fused projection is one matrix) and biases with 0.

    With `normal`, embeddings and matrices are drawn from N(0, 0.02²) as in BERT.
    """
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=BERT_STD if normal else part.embedding_dim**-0.5)
        elif isinstance(part, nn.Linear):
            if normal:
                nn.init.normal_(part.weight, std=BERT_STD)
            else:
                nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
