"""Networks in checkpoints of fairseq and of the papers' authors, for a vocabulary that dictionaries of fairseq number:
Transformers, DA-Transformers, and drafters of SpecDec."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from fewstep.config.network import NetworkConfig, Sizes
from fewstep.vocabulary import RESERVED
from models.imports.fairseq import RESERVED_PIECES, SOURCE, SPECIAL, TARGET, transformer_weights
from models.imports.fairseq_block import block_network, block_weights
from models.imports.fairseq_checkpoint import Checkpoint, read_checkpoint
from models.imports.fairseq_dag import dag_network, dag_weights, of_pretraining, renamed_links
from models.imports.fairseq_options import BLOCK, DAG, TRANSFORMER, Options, network_of
from models.imports.files import ForeignModelError
from models.imports.pieces import PieceOrder
from models.imports.tensors import ForeignTensors

KINDS = {"stepwise": TRANSFORMER, "dag": DAG, "aggressive": BLOCK}
"""Beginnings of the architectures that are read, by the family of networks here."""


@dataclass(frozen=True)
class CheckpointNetwork:
    """A network of a checkpoint in the terms of fewstep."""

    network: NetworkConfig
    sizes: Sizes
    weights: dict[str, Tensor]
    """Weights by the names of fewstep, float32."""


def read_network(checkpoint: Path, family: str, sizes: tuple[int, int], max_positions: int) -> CheckpointNetwork:
    """Return the network of a checkpoint for vocabularies of `sizes` (of source and target), whose tokens behind the reserved ones
    are the symbols of the dictionaries that the network was trained with, in their order.

    The network keeps at most `max_positions` positions. Raises ForeignModelError for another architecture, for a pickle that names
    code, and for tensors or vocabularies that do not fit each other.
    """
    read = read_checkpoint(checkpoint, of_pretraining if family == "dag" else None)
    if family == "dag":
        read = Checkpoint(read.options, renamed_links(read.tensors))
    options = Options(read.options, checkpoint.name, KINDS[family])
    tensors = ForeignTensors(read.tensors, checkpoint.name)
    orders = (_order(read, SOURCE, sizes[0], options), _order(read, TARGET, sizes[1], options))
    joint = options.flag("share_all_embeddings")
    if joint and sizes[0] != sizes[1]:
        raise options.error("share_all_embeddings", "vocabularies of one size", f"{sizes[0]} and {sizes[1]} tokens")
    if family == "dag":
        graphs = dag_network(options)
        graphs = replace(graphs, max_positions=min(graphs.max_positions, max_positions))
        network: NetworkConfig = graphs
        weights = dag_weights(tensors, options, graphs, orders)
    elif family == "aggressive":
        drafter = block_network(options)
        network = replace(drafter, max_positions=min(drafter.max_positions, max_positions))
        weights = block_weights(tensors, options, network, orders)
    else:
        transformer = network_of(options)
        network = replace(transformer, max_positions=min(transformer.max_positions, max_positions))
        weights = transformer_weights(tensors, network, orders, joint)
    return CheckpointNetwork(network, Sizes(*sizes, joint), weights)


def _order(read: Checkpoint, table: str, size: int, options: Options) -> PieceOrder:
    """Return the rows of a vocabulary's tokens."""
    if table not in read.tensors:
        raise ForeignModelError(f"{table}: expected a tensor, got none; the checkpoint is not one of a Transformer")
    listed = size - len(RESERVED)
    rows = len(read.tensors[table]) - len(SPECIAL)
    if listed != rows:
        plan = options.get("seg_tokens")
        behind = f", the last {plan} of them its plan tokens [P0], [P1], ..., which the file does not list" if plan else ""
        raise ForeignModelError(
            f"{table}: expected a vocabulary of {rows} symbols{behind}, got {listed}; name the dictionaries of this network "
            "(vocabulary: {source_dictionary: FILE, ...})"
        )
    own = {token: SPECIAL.index(name) for token, name in RESERVED_PIECES.items()}
    first = [own.get(token) for token in range(len(RESERVED))]
    return PieceOrder(options.file, (*first, *range(len(SPECIAL), len(SPECIAL) + rows)), ())
