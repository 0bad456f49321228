"""Parts that the authors' checkpoints of graphs and of drafters have in common: both are fairseq's non-autoregressive
Transformer.

D width, V vocabulary, P positions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.common.layers.embeddings import sinusoids
from models.imports.fairseq import FIRST_POSITION, OUTPUT, SOURCE, TARGET
from models.imports.fairseq_options import Options
from models.imports.pieces import PieceOrder
from models.imports.tensors import ForeignTensors

POSITIONS = "{}.embed_positions"
SIDES = ("encoder", "decoder")


def token_tables(
    tensors: ForeignTensors, options: Options, orders: tuple[PieceOrder, PieceOrder], width: int
) -> tuple[dict[str, Tensor], Tensor]:
    """Take the tables of tokens; return those of sources and of outputs with the bias of the logits by their names here, and the
    inputs of the decoder [V,D], with rows as the checkpoint has them.

    With `share_all_embeddings` these are one table; a checkpoint may also have one for each. Raises ForeignModelError.
    """
    source, target = orders
    rows = [sum(row is not None for row in order.rows) for order in orders]
    inputs = tensors.take(TARGET, (rows[1], width))
    joint = options.flag("share_all_embeddings")
    shared = joint or options.flag("share_decoder_input_output_embed")
    if shared:
        outputs = inputs
        for name in OUTPUT:
            tensors.check_alias(name, TARGET, inputs, "share_all_embeddings or share_decoder_input_output_embed")
    else:
        outputs = tensors.take(OUTPUT[0], (rows[1], width))
    found = {
        "target_embedding.weight": target.permuted(outputs),
        "logits_bias": target.permuted(torch.zeros(rows[1]), -torch.inf),
    }
    if joint:
        tensors.check_alias(SOURCE, TARGET, inputs, "share_all_embeddings")
    else:
        found["source_embedding.weight"] = source.permuted(tensors.take(SOURCE, (rows[0], width)))
    return found, inputs


def positions(tensors: ForeignTensors, name: str, rows: int, width: int, *, learned: bool) -> Tensor:
    """Return the codes [P,D] of `rows` positions from the first one on: a learned table that is taken, or sinusoids.

    Raises ForeignModelError.
    """
    if not learned:
        return sinusoids(torch.arange(FIRST_POSITION, rows + FIRST_POSITION), width)
    return tensors.take_rows(f"{name}.weight", rows + FIRST_POSITION, width)[FIRST_POSITION:].clone()


def scale_of(width: int, *, scaled: bool) -> float:
    """Return the factor of embeddings."""
    return math.sqrt(width) if scaled else 1.0
