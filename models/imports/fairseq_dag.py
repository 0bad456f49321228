"""DA-Transformer's checkpoints (Huang et al. 2022; Huang, Ke and Huang 2023): the authors' code of version 1, and the later one
with PreDAT.

D width, L vertices, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fewstep.families.dag.config import DagConfig
from fewstep.families.dag.graph_size import LENGTHS
from models.imports.fairseq import END_ROW, FIRST_POSITION, closing_norms, drop_constants
from models.imports.fairseq_options import Options, check_network, shape_of
from models.imports.fairseq_parallel import POSITIONS, SIDES, positions, scale_of, token_tables
from models.imports.files import shown
from models.imports.pieces import PieceOrder
from models.imports.tensors import ForeignTensors, layer_weights

BEGIN_ROW, UNKNOWN_ROW = 0, 3
"""Rows of `<s>` and `<unk>`, the inputs of the first vertex and of empty ones."""
UNLIMITED = 99999
"""The length of transitions that the authors' scripts state for none."""
LINKS = {"queries": "query_linear", "keys": "key_linear", "gates": "gate_linear"}
LINK_POSITIONS, SEGMENTS, LENGTH = "decoder.link_positional", "decoder.embed_seg.weight", "decoder.embed_length.weight"
OLD_LINKS = "decoder.link_predictor."
"""Beginning of the names of links in checkpoints of pre-training."""
INNER_SEGMENT, LAST_SEGMENT = 1, 2
"""Rows of segments in decoding: of all vertices but the last one, and of this one."""
PRETRAINED: dict[str, Any] = {
    "arch": "glat_decomposed_link_pretrain",
    "encoder_learned_pos": True,
    "decoder_learned_pos": True,
    "share_all_embeddings": True,
    "activation_fn": "gelu",
    "upsample_base": "predict",
    "upsample_scale": "4~8",
    "links_feature": "feature:position",
    "max_transition_length": UNLIMITED,
}
"""Settings of the authors' scripts for PreDAT, whose published file holds tensors alone."""


def dag_network(options: Options) -> DagConfig:
    """Return the network of a checkpoint's options.

    Raises ForeignModelError for an option that changes the computation in a way that no network here has.
    """
    if options.flag("src_embedding_copy"):
        raise options.error("src_embedding_copy", "false, since vertices here have no copy of the source", True)
    longest = options.count("max_target_positions")
    band = options.get("max_transition_length")
    config = DagConfig(
        **shape_of(options),
        **_graph(options, longest),
        positions="learned",
        max_positions=options.count("max_source_positions"),
        max_transition_length=None if band is None or band < 0 or band >= longest - 1 else band,
        scale_embeddings=not options.flag("no_scale_embedding"),
        vertex_inputs="own",
        logits_bias=True,
    )
    check_network(options, config)
    return config


def _graph(options: Options, longest: int) -> dict[str, Any]:
    """Return the keys of the size of graphs, of sources, and of pinning. Version 1 has other names for them."""
    scale, fixed = options.get("src_upsample_scale"), options.get("src_upsample_fixed")
    if options.get("upsample_base") is None:
        if scale is None and fixed is None:
            raise options.error("upsample_base", "source_old, predict or fixed, or a src_upsample_scale", None)
        if scale is not None:
            size = {"graph_size": "source", "graph_factor": _number(options, "src_upsample_scale")}
        else:
            size = {"graph_size": "fixed", "graph_factor": _number(options, "src_upsample_fixed") - 2}
        return {"conventions": "paper", "source_bos": True, "max_vertices": longest, **size}
    base = options.get("upsample_base")
    bos = options.flag("prepend_bos")
    kinds = {"source_old": "source", "predict": "predicted", "fixed": "fixed"}
    if base not in kinds:
        raise options.error("upsample_base", f"{', '.join(kinds)}; graphs of other sizes are not read", base)
    if base == "predict" and options.flag("pred_length_offset"):
        raise options.error("pred_length_offset", "false, since networks here predict the length itself", True)
    counts_bos = bos and base == "source_old"
    return {
        "conventions": "paper" if counts_bos else "v2",
        "pin": "row",
        "source_bos": bos,
        "graph_size": kinds[base],
        "max_vertices": longest - 1,
        **_factors(options),
    }


def _factors(options: Options) -> dict[str, Any]:
    """Return the factor of graphs in decoding, with the range of training where decoding uses its mean."""
    stated = options.get("upsample_scale")
    low, _, high = str(stated if stated is not None else options.get("decode_upsample_scale")).partition("~")
    try:
        bounds = float(low), float(high or low)
    except ValueError:
        raise options.error("upsample_scale", "a factor or a range such as 4~8", stated) from None
    decoding = options.get("decode_upsample_scale")
    factor = sum(bounds) / 2 if decoding is None else _number(options, "decode_upsample_scale")
    ranged = bounds[0] < bounds[1] and factor == sum(bounds) / 2
    return {"graph_factor": factor, "graph_factor_range": bounds if ranged else None}


def _number(options: Options, key: str) -> float:
    value = options.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise options.error(key, "a number", value)
    return float(value)


def dag_weights(
    tensors: ForeignTensors, options: Options, config: DagConfig, orders: tuple[PieceOrder, PieceOrder]
) -> dict[str, Tensor]:
    """Return the weights by their names here. Raises ForeignModelError for tensors that are missing, left over, or of other
    shapes."""
    drop_constants(tensors, config)
    width = config.width
    scale = scale_of(config.width, scaled=config.scale_embeddings)
    weights, inputs = token_tables(tensors, options, orders, width)
    source, vertices = (
        positions(tensors, POSITIONS.format(side), rows, width, learned=options.flag(f"{side}_learned_pos"))
        for side, rows in (("encoder", config.max_positions), ("decoder", config.max_vertices))
    )
    kinds = inputs[[BEGIN_ROW, UNKNOWN_ROW, END_ROW]] * scale
    if options.flag("segment_embedding"):
        segments = tensors.take_rows(SEGMENTS, LAST_SEGMENT + 1, width)
        vertices = vertices + segments[INNER_SEGMENT]
        kinds[2] += segments[LAST_SEGMENT] - segments[INNER_SEGMENT]
    weights |= {"source_positions.table.weight": source, "vertex_positions.table.weight": vertices, "vertex_inputs.weight": kinds}
    if config.graph_size == "predicted":
        weights["length.weight"] = tensors.take(LENGTH, (LENGTHS, width))
    tensors.drop(LENGTH)  # fairseq's decoder always has one
    weights |= _links(tensors, options, config) | layer_weights(tensors, "", config) | closing_norms(tensors, config)
    tensors.finish()
    return weights


def _links(tensors: ForeignTensors, options: Options, config: DagConfig) -> dict[str, Tensor]:
    """Return the weights of transitions [.,2D], with zeros for a part of their input that the checkpoint does not have."""
    stated = options.get("links_feature")
    features = ("feature:position" if stated is None else str(stated)).split(":")
    if not features or set(features) - {"feature", "position", "sinposition"}:
        raise options.error("links_feature", "feature, position or sinposition, separated by colons", shown(stated))
    width = config.width
    has_states = "feature" in features
    has_codes = len(set(features) - {"feature"}) > 0
    codes = torch.zeros(config.max_vertices, width)
    if has_codes:
        codes = positions(tensors, LINK_POSITIONS, config.max_vertices, width, learned="position" in features)
        tensors.drop(f"{LINK_POSITIONS}._float_tensor")
    found = {"links.positions.table.weight": codes}
    for name, foreign in LINKS.items():
        rows = config.heads if name == "gates" else width
        matrix = tensors.take(f"decoder.{foreign}.weight", (rows, width * (has_states + has_codes)))
        parts = iter(matrix.reshape(rows, -1, width).unbind(1))
        whole = [next(parts) if has else torch.zeros(rows, width) for has in (has_states, has_codes)]
        found[f"links.{name}.weight"] = torch.cat(whole, 1)
        found[f"links.{name}.bias"] = tensors.take(f"decoder.{foreign}.bias", (rows,))
    return found


def of_pretraining(tensors: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """Return the settings of a file of PreDAT that holds tensors alone, after their shapes and the authors' scripts; None for other
    tensors."""
    tables = {side: tensors.get(f"{POSITIONS.format(side)}.weight") for side in SIDES}
    tensors = renamed_links(tensors)
    gates = tensors.get(f"decoder.{LINKS['gates']}.weight")
    inner = tensors.get("encoder.layers.0.fc1.weight")
    if gates is None or inner is None:
        return None
    found = dict(PRETRAINED) | {"segment_embedding": SEGMENTS in tensors}
    for (side, table), key in zip(tables.items(), ("max_source_positions", "max_target_positions"), strict=True):
        if table is None or table.ndim != 2:
            return None
        layers = {name.split(".")[2] for name in tensors if name.startswith(f"{side}.layers.")}
        sizes = {"layers": len(layers), "embed_dim": table.size(1), "ffn_embed_dim": len(inner), "attention_heads": len(gates)}
        found |= {f"{side}_{name}": size for name, size in sizes.items()} | {key: len(table) - FIRST_POSITION}
    return found


def renamed_links(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with the links' names of finished networks."""
    return {name.replace(OLD_LINKS, "decoder.", 1) if name.startswith(OLD_LINKS) else name: one for name, one in tensors.items()}
