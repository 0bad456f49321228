"""BART networks in the format of Hugging Face's transformers: `BartForConditionalGeneration` (Lewis et al. 2020).

D width, V vocabulary, P positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.pieces import BytePieces
from fewstep.vocabulary import BOS, EOS, MASK, PAD, UNK
from models.imports.files import ForeignModelError, content_of, read_object, required, shown
from models.imports.foreign import ForeignModel
from models.imports.hugging_face import bart_network, licence, search_of, whole
from models.imports.pieces import PieceOrder, numbered, piece_order
from models.imports.tensors import PARTS, ForeignTensors, layer_weights, read_tensors

RESERVED_PIECES = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNK: "<unk>", MASK: "<mask>"}
FIRST_POSITION = 2
"""Row of the first position in tables of positions."""
FRONT = 2
"""Tokens of an output in transformers before the first one of its text: the start token and BOS."""
SHARED = "shared.weight"


def read_bart(files: Mapping[str, Path], *, name: str, digests: Mapping[str, str]) -> ForeignModel:
    """Return the network in the files of a directory, which are given by name, and whose sha256 are `digests`.

    Raises ForeignModelError for another architecture, missing files, and weights or vocabularies that do not fit the config.
    """
    values = read_object(required(files, "config.json"))
    generation = read_object(files["generation_config.json"]) if "generation_config.json" in files else {}
    merged = values | {key: value for key, value in generation.items() if value is not None}
    config = bart_network(values)
    order = _order(files, merged)
    merges = content_of(required(files, "merges.txt"))
    pieces = numbered(order)
    _check_merges(pieces, merges)
    tensors = ForeignTensors(read_tensors(required(files, "model.safetensors")), "config.json")
    return ForeignModel(
        network=config,
        sizes=Sizes(len(order), len(order), True),
        weights=_weights(tensors, config, order),
        pieces={"source": pieces, "target": pieces},
        merges=merges,
        unmapped={},
        search=search_of(merged, FRONT),
        origin={"kind": "bart", "name": name, "files": dict(digests), "importer": 1, **licence(files)},
    )


def _order(files: Mapping[str, Path], values: Mapping[str, Any]) -> PieceOrder:
    rows = whole(values, "vocab_size")
    ids = read_object(required(files, "vocab.json"))
    mask = RESERVED_PIECES[MASK]
    if ids.get(mask) == rows:  # networks that were trained on summaries have no row for it
        del ids[mask]
    reserved = {token: piece for token, piece in RESERVED_PIECES.items() if token != MASK or mask in ids}
    order = piece_order("vocab.json", ids, reserved, rows)
    for key, token in (
        ("pad_token_id", PAD),
        ("bos_token_id", BOS),
        ("forced_bos_token_id", BOS),
        ("eos_token_id", EOS),
        ("decoder_start_token_id", EOS),
    ):
        if values.get(key) != order.rows[token]:
            raise ForeignModelError(
                f"config.json: {key}: expected {order.rows[token]}, the id of {RESERVED_PIECES[token]} in vocab.json, got "
                f"{shown(values.get(key))}; state it there or in generation_config.json"
            )
    return order


def _check_merges(pieces: bytes, merges: bytes) -> None:
    try:
        BytePieces(pieces, merges.decode("utf-8"))
    except (ImportError, ValueError) as error:
        raise ForeignModelError(str(error)) from error


def _weights(tensors: ForeignTensors, config: StepwiseConfig, order: PieceOrder) -> dict[str, Tensor]:
    prefix = "model." if f"model.{SHARED}" in tensors else ""  # a network without the language-modelling head has none
    old = sum(row is not None for row in order.rows)
    width = config.width
    table = tensors.take(f"{prefix}{SHARED}", (old, width))
    for alias in (f"{prefix}encoder.embed_tokens.weight", f"{prefix}decoder.embed_tokens.weight", "lm_head.weight"):
        tensors.check_alias(alias, f"{prefix}{SHARED}", table, "tie_word_embeddings")
    bias = tensors.take("final_logits_bias", (1, old))[0] if "final_logits_bias" in tensors else torch.zeros(old)
    weights = {"target_embedding.weight": order.permuted(table), "logits_bias": order.bias(bias)}
    scale = math.sqrt(width) if config.scale_embeddings else 1.0
    begin, end = (table[order.rows[token]] * scale for token in (BOS, EOS))
    weights["start.table.weight"] = begin[None] / math.sqrt(width)
    fronts = []
    for side, own, vector in (("encoder", "source", begin), ("decoder", "target", end)):
        positions = tensors.take(f"{prefix}{side}.embed_positions.weight", (config.max_positions + 1 + FIRST_POSITION, width))
        fronts.append(vector + positions[FIRST_POSITION])
        weights[f"{own}_positions.table.weight"] = positions[FIRST_POSITION + 1 :].clone()
        for part in PARTS:
            weights[f"{own}_norm.{part}"] = tensors.take(f"{prefix}{side}.layernorm_embedding.{part}", (width,))
    weights["begin.weight"] = torch.stack(fronts)
    weights |= layer_weights(tensors, prefix, config)
    tensors.finish()
    return weights
