"""Checkpoints of SpecDec's drafter (Xia et al. 2022), the architecture `block` of the authors' code.

D width, P positions.
"""

from __future__ import annotations

from torch import Tensor

from fewstep.families.aggressive.config import AggressiveConfig
from fewstep.vocabulary import MASK
from models.imports.fairseq import closing_norms, drop_constants
from models.imports.fairseq_options import Options, check_network, shape_of
from models.imports.fairseq_parallel import POSITIONS, positions, scale_of, token_tables
from models.imports.pieces import PieceOrder
from models.imports.tensors import ForeignTensors, layer_weights

UNKNOWN_ROW = 3
"""Row of `<unk>`, the input of empty slots."""
USUAL_WIDTH = 5
"""Tokens of a block where the checkpoint states none, as in the authors' task."""
LENGTH = "decoder.embed_length.weight"


def block_network(options: Options) -> AggressiveConfig:
    """Return the network of a checkpoint's options.

    Raises ForeignModelError for an option that changes the computation in a way that no network here has.
    """
    width = options.get("block_size")
    config = AggressiveConfig(
        **shape_of(options),
        draft_width=USUAL_WIDTH if width is None else options.count("block_size"),
        positions="learned",
        max_positions=min(options.count("max_source_positions"), options.count("max_target_positions")),
        scale_embeddings=False,  # the authors' code embeds without a factor, whatever `no_scale_embedding` says
        soft_copy=options.flag("src_embedding_copy"),
        logits_bias=True,
    )
    check_network(options, config)
    return config


def block_weights(
    tensors: ForeignTensors, options: Options, config: AggressiveConfig, orders: tuple[PieceOrder, PieceOrder]
) -> dict[str, Tensor]:
    """Return the weights by their names here. Raises ForeignModelError for tensors that are missing, left over, or of other
    shapes."""
    drop_constants(tensors, config)
    width = config.width
    weights, inputs = token_tables(tensors, options, orders, width)
    if not (options.flag("share_all_embeddings") or options.flag("share_decoder_input_output_embed")):
        raise options.error(
            "share_decoder_input_output_embed", "true, or share_all_embeddings; drafters here have one table", False
        )
    weights["target_embedding.weight"][MASK] = inputs[UNKNOWN_ROW]  # the bias excludes it from outputs
    for side, own in (("encoder", "source_positions"), ("decoder", "slot_positions")):
        learned = options.flag(f"{side}_learned_pos")
        weights[f"{own}.table.weight"] = positions(tensors, POSITIONS.format(side), config.max_positions, width, learned=learned)
    if config.soft_copy:
        # Scores are divided by sqrt(D) here, and not in the authors' code.
        weights["copy.weight"] = tensors.take("decoder.copy_attn.weight", (width, width)) * scale_of(width, scaled=True)
    weights["words.counts"] = weights["logits_bias"].new_zeros(len(orders[1]))
    tensors.drop(LENGTH)  # fairseq's decoder always has one, which drafters do not use
    weights |= layer_weights(tensors, "", config) | closing_norms(tensors, config)
    tensors.finish()
    return weights
