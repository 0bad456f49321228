"""Transformers that fairseq trained: a checkpoint, dictionaries and SentencePiece models.

D width, V vocabulary, P positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fewstep.config.network import NetworkConfig, Sizes
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.vocabulary import BOS, EOS, PAD, UNK
from models.imports.fairseq_checkpoint import read_checkpoint
from models.imports.fairseq_options import Options, network_of
from models.imports.files import ForeignModelError, content_of
from models.imports.foreign import ForeignModel
from models.imports.pieces import PieceOrder, piece_order, reordered
from models.imports.tensors import PARTS, ForeignTensors, layer_weights

RESERVED_PIECES = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNK: "<unk>"}
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
"""Symbols of the first rows, which dictionaries do not list."""
END_ROW = 2
"""Row of `</s>`, which is also the first input of the decoder."""
FIRST_POSITION = 2
"""Index of the first position."""
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
OUTPUT = ("decoder.output_projection.weight", "decoder.embed_out")
VERSION = "{}.version"
"""A tensor of each side."""
MIN_PRE_NORM_VERSION = 3
"""The version since which a norm closes stacks whose layers begin with norms."""
CONSTANTS = ("version", "embed_positions._float_tensor", "embed_positions.weights")


@dataclass(frozen=True)
class Dictionary:
    """A dictionary of fairseq."""

    file: str
    """Name of the file."""
    symbols: Sequence[str]
    """The symbols in the order of their rows, without the first four."""


@dataclass(frozen=True)
class FairseqSide:
    """The vocabulary of one side."""

    pieces: Path
    """SentencePiece model."""
    dictionary: Dictionary


def read_fairseq(
    checkpoint: Path, source: FairseqSide, target: FairseqSide, *, name: str, digests: Mapping[str, str]
) -> ForeignModel:
    """Return the network in a checkpoint; `digests` are the sha256 of all files by name.

    Raises ForeignModelError for another architecture, a pickle that names code, and dictionaries or tensors that do not fit each
    other.
    """
    read = read_checkpoint(checkpoint)
    options = Options(read.options, checkpoint.name)
    config = network_of(options)
    joint = options.flag("share_all_embeddings")
    orders = (_order(source.dictionary, read.tensors, SOURCE), _order(target.dictionary, read.tensors, TARGET))
    if joint and list(source.dictionary.symbols) != list(target.dictionary.symbols):
        raise options.error("share_all_embeddings", "equal dictionaries of both sides", "dictionaries that differ")
    tensors = ForeignTensors(read.tensors, checkpoint.name)
    weights = transformer_weights(tensors, config, orders, joint)
    models = {
        name: reordered(content_of(side.pieces), order, side.pieces.name)
        for name, side, order in (("source", source, orders[0]), ("target", target, orders[1]))
    }
    return ForeignModel(
        network=config,
        sizes=Sizes(len(orders[0]), len(orders[1]), joint),
        weights=weights,
        pieces={side: model for side, (model, _) in models.items()},
        unmapped={side: count for side, (_, count) in models.items()},
        search=StepwiseSearch(strategy="beam"),
        origin={
            "kind": "fairseq",
            "name": name,
            "files": dict(digests),
            "importer": 1,
            "licence": "unknown",
            "licence_from": "",
        },
    )


def _order(dictionary: Dictionary, tensors: Mapping[str, Tensor], table: str) -> PieceOrder:
    if table not in tensors:
        raise ForeignModelError(f"{table}: expected a tensor, got none; the checkpoint is not one of a Transformer")
    rows = tensors[table].size(0)
    listed = len(dictionary.symbols)
    if listed + len(SPECIAL) != rows:
        raise ForeignModelError(
            f"{dictionary.file}: expected {rows - len(SPECIAL)} symbols for {rows} rows, got {listed}; use the dictionary of this "
            "network"
        )
    ids = {symbol: row for row, symbol in enumerate((*SPECIAL, *dictionary.symbols))}
    return piece_order(dictionary.file, ids, RESERVED_PIECES, rows)


def transformer_weights(
    tensors: ForeignTensors, config: StepwiseConfig, orders: tuple[PieceOrder, PieceOrder], joint: bool
) -> dict[str, Tensor]:
    """Return the weights of a Transformer, with rows in the order of source and target vocabularies; `joint`: they share a table.

    Raises ForeignModelError for tensors that are missing, left over, or of other shapes.
    """
    source, target = orders
    drop_constants(tensors, config)
    rows = [sum(row is not None for row in order.rows) for order in orders]
    table = tensors.take(TARGET, (rows[1], config.width))
    for name in OUTPUT:
        tensors.check_alias(name, TARGET, table, "share_decoder_input_output_embed; other output tables are not read")
    weights = {
        "target_embedding.weight": target.permuted(table),
        "logits_bias": target.permuted(torch.zeros(rows[1]), -torch.inf),
        "start.table.weight": table[END_ROW][None] / (1.0 if config.scale_embeddings else math.sqrt(config.width)),
    }
    if joint:
        tensors.check_alias(SOURCE, TARGET, table, "share_all_embeddings")
    else:
        weights["source_embedding.weight"] = source.permuted(tensors.take(SOURCE, (rows[0], config.width)))
    weights |= _positions(tensors, config) | layer_weights(tensors, "", config) | closing_norms(tensors, config)
    tensors.finish()
    return weights


def drop_constants(tensors: ForeignTensors, config: NetworkConfig) -> None:
    """Remove tensors that hold no weights. Raises ForeignModelError for a version without norms after the last layers that it
    needs."""
    for side in ("encoder", "decoder"):
        version = VERSION.format(side)
        found = float(tensors.take(version, (1,))) if version in tensors else 1.0
        if config.norm == "pre" and found < MIN_PRE_NORM_VERSION:
            raise ForeignModelError(
                f"{version}: expected at least {MIN_PRE_NORM_VERSION} with {side}_normalize_before, got {found:g}; older versions "
                "have no norm after the last layer"
            )
        tensors.drop(*(f"{side}.{name}" for name in CONSTANTS))


def _positions(tensors: ForeignTensors, config: StepwiseConfig) -> dict[str, Tensor]:
    """Return the learned tables [P,D] from the first position on; nothing for sinusoids."""
    if config.positions != "learned":
        return {}
    found: dict[str, Tensor] = {}
    for side, own in (("encoder", "source_positions"), ("decoder", "target_positions")):
        table = tensors.take_rows(f"{side}.embed_positions.weight", config.max_positions + FIRST_POSITION, config.width)
        found[f"{own}.table.weight"] = table[FIRST_POSITION:].clone()
    return found


def closing_norms(tensors: ForeignTensors, config: NetworkConfig) -> dict[str, Tensor]:
    """Return the norms after the last layers, which stacks have whose layers begin with norms."""
    sides = ("encoder", "decoder") if config.norm == "pre" else ()
    return {f"{side}.norm.{part}": tensors.take(f"{side}.layer_norm.{part}", (config.width,)) for side in sides for part in PARTS}
