"""Small random Marian networks, written as directories by transformers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch

TEXT = {
    "source": ["the small house stands near the old river", "a dog runs in the green garden", "two old men drink cold water"] * 8,
    "target": ["das kleine haus steht am alten fluss", "ein hund rennt im garten", "zwei alte frauen trinken kaltes wasser"] * 8,
}
LINES = ["the old dog drinks cold water", "a small house", "two men stand near the green river in the old garden", "zebra"]
PREFIX = list(range(2, 9))
"""Target tokens, by ids of Marian, whose logits are compared."""
LIMIT = 30
"""Longest output in tokens, with the start token of transformers."""


def spm(side: str, kind: str = "unigram", size: int = 44) -> bytes:
    """Return a SentencePiece model with the special pieces of Marian's."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT[side]),
        model_writer=model,
        vocab_size=size,
        model_type=kind,
        minloglevel=2,
        normalization_rule_name="identity",
        hard_vocab_limit=False,
        num_threads=1,
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    """Return the pieces of a model that are no special ones."""
    loaded = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [loaded.id_to_piece(token) for token in range(3, len(loaded))]


def vocabulary(*models: bytes, languages: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> dict[str, int]:
    """Return a map of pieces to ids as in `vocab.json`."""
    names = dict.fromkeys(piece for model in models for piece in pieces_of(model) if piece not in without)
    return {name: id_ for id_, name in enumerate(["</s>", "<unk>", *names, *languages, "<pad>"])}


def write_marian(
    directory: Path,
    *,
    seed: int = 0,
    shared: bool = True,
    start: bool = False,
    end_bias: float = 2.0,
    languages: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """Write a random network into `directory`, and return it. `start`: the pad row, which is the first input, is not zero.

    `end_bias` is added to the logit of EOS, so that outputs end.
    """
    from transformers import MarianConfig, MarianMTModel

    directory.mkdir(parents=True, exist_ok=True)
    models = {side: spm(side) for side in ("source", "target")}
    for side, model in models.items():
        (directory / f"{side}.spm").write_bytes(model)
    if shared:
        maps = [vocabulary(*models.values(), languages=languages, without=without)]
    else:
        maps = [vocabulary(models["source"]), vocabulary(models["target"])]
        size = max(map(len, maps))  # one id of the padding for both sides
        for ids in maps:
            pad = ids.pop("<pad>")
            ids |= {f"unused{token}": token for token in range(pad, size - 1)} | {"<pad>": size - 1}
        (directory / "target_vocab.json").write_text(json.dumps(maps[1]))
    (directory / "vocab.json").write_text(json.dumps(maps[0]))
    rows = len(maps[0])
    settings = {
        "vocab_size": rows,
        "decoder_vocab_size": rows,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 64,
        "pad_token_id": rows - 1,
        "eos_token_id": 0,
        "decoder_start_token_id": rows - 1,
        "activation_function": "swish",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": shared,
        "num_beams": 4,
        "max_length": LIMIT,
        **options,
    }
    torch.manual_seed(seed)
    beams = {key: settings.pop(key) for key in ("num_beams", "max_length")}
    model = MarianMTModel(MarianConfig(**settings)).eval()
    _shake(model, rows, start, end_bias)
    model.save_pretrained(directory)
    generation = json.loads((directory / "generation_config.json").read_text())
    (directory / "generation_config.json").write_text(json.dumps(generation | beams))
    (directory / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n\n# A random network\n")
    return model


@torch.no_grad()
def expectations(model: Any, directory: Path) -> dict[str, Any]:
    """Return the ids, the logits after a prefix, and the outputs that transformers computes for `LINES`."""
    from transformers import MarianTokenizer

    tokens = MarianTokenizer.from_pretrained(directory)(LINES, return_tensors="pt", padding=True)
    ids, mask = tokens["input_ids"], tokens["attention_mask"]
    prefix = [model.config.decoder_start_token_id, *PREFIX]
    logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=torch.tensor([prefix] * len(ids))).logits
    rules = {"length_penalty": 1.0, "max_length": LIMIT, "min_new_tokens": 1, "do_sample": False, "forced_eos_token_id": None}
    outputs = {
        name: model.generate(input_ids=ids, attention_mask=mask, num_beams=beams, early_stopping=beams > 1, **rules)
        for name, beams in (("greedy", 1), ("beam", 4))
    }
    return {
        "ids": [row[: int(length) - 1] for row, length in zip(ids.tolist(), mask.sum(1), strict=True)],
        "logits": logits.tolist(),
        **{name: [row[1:] for row in found.tolist()] for name, found in outputs.items()},
    }


@torch.no_grad()
def _shake(model: Any, rows: int, start: bool, end_bias: float) -> None:
    """Give the network sharp outputs that end."""
    for name, weight in model.named_parameters():
        if "embed_positions" in name:
            continue
        if "layer_norm" in name:
            weight.add_(torch.randn_like(weight) * 0.3)
        else:
            weight.copy_(torch.randn_like(weight) * (0.5 if "embed" in name or "shared" in name else 0.35))
    for table in {id(one): one for one in (model.get_input_embeddings(), model.model.decoder.embed_tokens)}.values():
        table.weight[rows - 1] = torch.randn(table.weight.size(1)) * 0.5 if start else 0.0
    bias = torch.randn_like(model.final_logits_bias) * 0.5
    bias[0, 0] += end_bias
    bias[0, rows - 1] = -1e9  # transformers may write its padding, which this project never does
    model.final_logits_bias.copy_(bias)
