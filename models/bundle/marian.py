"""Export of autoregressive networks to the format of Marian in Hugging Face's transformers (`MarianMTModel`).

The inverse of `models.imports.marian`. Ids stay as they are: `vocab.json` names them.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.pieces import pieces_of
from fewstep.system.description import read_description
from fewstep.system.format import MERGES, SOURCE_PIECES, TARGET_PIECES, network_folders
from fewstep.system.integrity import check_parts
from fewstep.system.networks import sizes_of
from fewstep.vocabulary import EOS, PAD, RESERVED, UNK
from models.bundle.weights import make_model
from models.imports.tensors import foreign_layers
from models.stepwise.model import StepwiseModel

NAMES = {PAD: "<pad>", EOS: "</s>", UNK: "<unk>"}
"""The names of reserved pieces in transformers."""
EXPRESSIBLE = {
    "norm": "post", "positions": "sinusoidal", "sinusoids": "paper", "position_offset": 0, "embedding_norm": False,
    "begin_vectors": False, "source_bos": False,
}  # fmt: skip
"""The options of a network that `MarianMTModel` computes; it has no others."""


def export_marian(system: Path, directory: Path, verify: bool = True) -> None:
    """Write an autoregressive system into the new `directory` for `MarianMTModel` and `MarianTokenizer`.

    With `verify`, the system's files are compared with their digests first. Raises BundleError for a directory that does not hold a
    complete system, and ValueError for a network that Marian cannot express.
    """
    description = read_description(system, verify)
    if verify:
        check_parts(system, description)
    if problem := next(_problems(description), None):
        raise ValueError(f"marian: expected {problem}")
    model = make_model(system, description, "cpu")
    assert isinstance(model, StepwiseModel)
    sizes = sizes_of(system, description)
    directory.mkdir(parents=True)
    save_file(_weights(model), directory / "model.safetensors", {"format": "pt"})
    for side, file in (("source", SOURCE_PIECES), ("target", TARGET_PIECES)):
        shutil.copyfile(system / file, directory / file)
        pieces = pieces_of(system, description, side, getattr(sizes, side))
        names = [NAMES.get(token, pieces.id_to_piece(token)) for token in range(len(pieces))]
        if side == "source" or not sizes.joint:
            listed = "vocab.json" if side == "source" else "target_vocab.json"
            _write(directory / listed, {name: token for token, name in enumerate(names)})
    _write(directory / "config.json", _config(model, sizes.source, sizes.target))
    _write(directory / "generation_config.json", _generation(description, model.config))
    languages = {f"{side}_lang": description["languages"][side] for side in ("source", "target")}
    tokens = {"pad_token": NAMES[PAD], "eos_token": NAMES[EOS], "unk_token": NAMES[UNK]}
    settings = {"model_max_length": model.config.max_positions, "separate_vocabs": not sizes.joint}
    _write(directory / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", **languages, **tokens, **settings})


def _problems(description: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was expected of a system that Marian cannot express, and what was found."""
    if description["family"] != "stepwise" or len(network_folders(description)) > 1:
        yield f"a single autoregressive network, got {description['family']}"
        return
    network = description["network"]
    names = StepwiseConfig.__dataclass_fields__
    order = StepwiseConfig(**{key: value for key, value in network.items() if key in names}).generation()
    if (order.arrangement, order.step_size) != ("l2r", 1) or order.start not in ("zero", "shared"):
        yield f"one token a step from left to right, got the order {network['order']}"
    for key, value in EXPRESSIBLE.items():
        if (found := network.get(key, value)) != value:
            yield f"{key}: {value}, which is all that transformers computes, got {found}; train with this key to export"
    if MERGES in description["parts"]:
        yield "SentencePiece models, got byte-level BPE"


def _weights(model: StepwiseModel) -> dict[str, Tensor]:
    """Return the tensors by the names of transformers."""
    state = model.state_dict()
    config = model.config
    table = state["target_embedding.weight"].clone()
    table[PAD] = 0.0
    if "start.table.weight" in state:  # the first input of the decoder is the row of the pad token
        table[PAD] = state["start.table.weight"][0] * (1.0 if config.scale_embeddings else math.sqrt(config.width))
    bias = state["logits_bias"].clone() if config.logits_bias else torch.zeros(len(table))
    bias[[token for token in range(len(RESERVED)) if token != EOS]] = -math.inf
    found = {"final_logits_bias": bias[None], **foreign_layers(state, "model.", config)}
    if model.sizes.joint:
        found["model.shared.weight"] = table
    else:
        found |= {
            "model.decoder.embed_tokens.weight": table,
            "model.encoder.embed_tokens.weight": state["source_embedding.weight"],
        }
    return {name: tensor.contiguous() for name, tensor in found.items()}


def _config(model: StepwiseModel, source_size: int, target_size: int) -> dict[str, Any]:
    config = model.config
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (
            ("layers", getattr(config, f"{side}_layers")),
            ("ffn_dim", config.feed_forward),
            ("attention_heads", config.heads),
        )
    }
    return {
        "model_type": "marian", "architectures": ["MarianMTModel"], "d_model": config.width, **sides,
        "activation_function": config.activation, "scale_embedding": config.scale_embeddings, "dropout": config.dropout,
        "max_position_embeddings": config.max_positions, "vocab_size": source_size, "decoder_vocab_size": target_size,
        "share_encoder_decoder_embeddings": model.sizes.joint, "tie_word_embeddings": True, "pad_token_id": PAD,
        "eos_token_id": EOS, "decoder_start_token_id": PAD, "forced_eos_token_id": None, "is_encoder_decoder": True,
    }  # fmt: skip


def _generation(description: Mapping[str, Any], config: StepwiseConfig) -> dict[str, Any]:
    """Return the default search of the system. Transformers counts the start token in lengths."""
    search = StepwiseSearch.from_values(description["searches"][description["search"]])
    beams = search.beam_size if search.strategy == "beam" else 1
    return {
        "num_beams": beams, "length_penalty": search.length_penalty, "early_stopping": beams > 1, "bad_words_ids": [[PAD]],
        "max_length": 1 + min(search.output_limits.max_tokens or config.max_positions, config.max_positions - 1),
        "pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD, "do_sample": False,
    }  # fmt: skip


def _write(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
