"""Marian networks in the format of Hugging Face's transformers (opus-mt): `MarianMTModel`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.vocabulary import EOS, PAD, UNK
from models.imports.files import ForeignModelError, content_of, read_object, required, shown
from models.imports.foreign import ForeignModel
from models.imports.hugging_face import TIED, licence, marian_network, search_of, whole
from models.imports.pieces import PieceOrder, is_language_token, piece_order, reordered
from models.imports.tensors import ForeignTensors, layer_weights, read_tensors

RESERVED_PIECES = {PAD: "<pad>", EOS: "</s>", UNK: "<unk>"}
SHARED = "model.shared.weight"
FRONT = 1
"""Tokens of an output in transformers before the first one of its text: the start token."""


def read_marian(files: Mapping[str, Path], *, name: str, digests: Mapping[str, str], target_token: str = "") -> ForeignModel:
    """Return the network in the files of a directory, which are given by name, and whose sha256 are `digests`.

    `target_token` is the token of the target language, such as `>>deu<<`, for a vocabulary that has such tokens. Raises
    ForeignModelError for another architecture, missing files, and weights or vocabularies that do not fit the config.
    """
    values = read_object(required(files, "config.json"))
    config = marian_network(values)
    search = search_of(values | (read_object(files["generation_config.json"]) if "generation_config.json" in files else {}), FRONT)
    weights_file = required(files, "model.safetensors", "pytorch_model.bin")
    source, target = _orders(files, values)
    prefix = _prefix(source, target_token)
    tensors = ForeignTensors(read_tensors(weights_file), "config.json")
    joint = bool(values.get("share_encoder_decoder_embeddings", True))
    weights, config = _weights(tensors, values, config, (source, target), joint)
    models = {side: content_of(required(files, f"{side}.spm")) for side in ("source", "target")}
    pieces = {side: reordered(models[side], order, f"{side}.spm") for side, order in (("source", source), ("target", target))}
    return ForeignModel(
        network=config,
        sizes=Sizes(len(source), len(target), joint),
        weights=weights,
        pieces={side: model for side, (model, _) in pieces.items()},
        unmapped={side: count for side, (_, count) in pieces.items()},
        search=search,
        source_prefix=prefix,
        origin={"kind": "marian", "name": name, "files": dict(digests), "importer": 1, **licence(files)},
    )


def _orders(files: Mapping[str, Path], values: Mapping[str, Any]) -> tuple[PieceOrder, PieceOrder]:
    rows = whole(values, "vocab_size")
    source = piece_order("vocab.json", read_object(required(files, "vocab.json")), RESERVED_PIECES, rows)
    target = source
    if not values.get("share_encoder_decoder_embeddings", True):
        vocabulary = read_object(required(files, "target_vocab.json"))
        target = piece_order("target_vocab.json", vocabulary, RESERVED_PIECES, whole(values, "decoder_vocab_size", rows))
    for key, token in (("pad_token_id", PAD), ("eos_token_id", EOS)):
        if values.get(key) != target.rows[token]:
            raise ForeignModelError(
                f"config.json: {key}: expected {target.rows[token]}, the id of {RESERVED_PIECES[token]} in {target.file}, "
                f"got {shown(values.get(key))}"
            )
    return source, target


def _prefix(source: PieceOrder, target_token: str) -> tuple[int, ...]:
    tokens = [piece for piece in source.names if is_language_token(piece)]
    if not tokens and not target_token:
        return ()
    if target_token not in tokens:
        expected = f"one of {', '.join(tokens[:20])}" if tokens else "none, for a vocabulary without language tokens"
        raise ForeignModelError(f"languages.target_token: expected {expected}, got {target_token or 'none'}")
    return (source.names.index(target_token),)


def _weights(
    tensors: ForeignTensors, values: Mapping[str, Any], config: StepwiseConfig, orders: tuple[PieceOrder, PieceOrder], joint: bool
) -> tuple[dict[str, Tensor], StepwiseConfig]:
    """Return the weights by our names, and the config with the kind of start that they need."""
    source, target = orders
    old_target, old_source = sum(row is not None for row in target.rows), sum(row is not None for row in source.rows)
    encoder, decoder = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    table = tensors.take(SHARED if joint else decoder, (old_target, config.width))
    if joint:
        for alias in (encoder, decoder):
            tensors.check_alias(alias, SHARED, table, "share_encoder_decoder_embeddings")
    tensors.check_alias("lm_head.weight", SHARED if joint else decoder, table, TIED)
    bias = tensors.take("final_logits_bias", (1, old_target))[0]
    weights = {"target_embedding.weight": target.permuted(table), "logits_bias": target.bias(bias)}
    if not joint:
        weights["source_embedding.weight"] = source.permuted(tensors.take(encoder, (old_source, config.width)))
    _check_positions(tensors, config)
    weights |= layer_weights(tensors, "model.", config)
    tensors.finish()
    row = whole(values, "decoder_start_token_id", least=0)
    if row >= old_target:
        raise ForeignModelError(f"config.json: decoder_start_token_id: expected an id below {old_target}, got {row}")
    start = table[row]
    if not bool(start.any()):
        return weights, config
    scale = 1.0 if config.scale_embeddings else math.sqrt(config.width)
    weights["start.table.weight"] = start[None] / scale
    return weights, StepwiseConfig(**{**vars(config), "start": "shared"})


def _check_positions(tensors: ForeignTensors, config: StepwiseConfig) -> None:
    """Compare stored position codes, which are constants, with the formula."""
    from models.common.layers.embeddings import sinusoids

    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        if name not in tensors:
            continue
        found = tensors.take(name, (config.max_positions, config.width))
        if not torch.allclose(found, sinusoids(torch.arange(config.max_positions), config.width, "paper"), atol=1e-3):
            raise ForeignModelError(f"{name}: expected the sinusoids of Marian, got other codes")
