"""Small random BART networks with vocabularies of byte-level BPE, written as directories by transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

TEXT = [
    "The small house stands near the old river, and it's cold.",
    "A dog runs in the green garden; we'll see 12 dogs.",
    "Two old men drink cold water in 1999.",
]
LINES = ["The old dog drinks cold water.", "A small house", "Two men don't stand near the river in 2024!", "Zürich — ça va?"]
PREFIX = list(range(5, 11))
"""Target tokens, by the ids of BART, whose logits are compared."""
LIMIT = 24
"""Longest output in tokens, with the start token and BOS."""


def write_vocabulary(directory: Path, *, mask: bool = True) -> dict[str, int]:
    """Write `vocab.json` and `merges.txt`, and return the ids. Without `mask` that piece has an id behind the rows."""
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXT * 4, vocab_size=320, min_frequency=1, show_progress=False)
    trained.save_model(str(directory))
    own = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    names = ["<s>", "<pad>", "</s>", "<unk>", *sorted(own, key=own.__getitem__), "<mask>"]
    ids = {name: number for number, name in enumerate(names)}
    (directory / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    return ids if mask else {name: number for name, number in ids.items() if name != "<mask>"}


def write_bart(directory: Path, *, seed: int = 0, mask: bool = True, end_bias: float = 9.0, **options: Any) -> Any:
    """Write a random network into `directory`, and return it. `end_bias` is added to the logit of EOS, so that outputs end."""
    from transformers import BartConfig, BartForConditionalGeneration

    directory.mkdir(parents=True, exist_ok=True)
    rows = len(write_vocabulary(directory, mask=mask))
    settings = {
        "vocab_size": rows,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        **options,
    }
    torch.manual_seed(seed)
    model = BartForConditionalGeneration(BartConfig(**settings)).eval()
    _shake(model, end_bias, rows if mask else 0)
    model.save_pretrained(directory)
    path = directory / "generation_config.json"
    generation = {"num_beams": 4, "max_length": LIMIT, "length_penalty": 2.0, "min_length": 5, "forced_bos_token_id": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | generation))
    (directory / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n\n# A random network\n")
    return model


@torch.no_grad()
def _shake(model: Any, end_bias: float, mask_rows: int) -> None:
    """Give the network sharp outputs that end, without the reserved pieces that this project never writes."""
    for name, weight in model.named_parameters():
        if "layer_norm" in name or "layernorm" in name:
            weight.add_(torch.randn_like(weight) * 0.3)
        else:
            weight.copy_(torch.randn_like(weight) * (0.5 if "embed" in name or "shared" in name else 0.35))
    bias = torch.randn_like(model.final_logits_bias) * 0.5
    bias[0, 2] += end_bias
    bias[0, [0, 1]] = -1e9
    if mask_rows:
        bias[0, mask_rows - 1] = -1e9
    model.final_logits_bias.copy_(bias)


@torch.no_grad()
def expectations(model: Any, ids: list[list[int]], length_penalty: float = 1.0) -> dict[str, Any]:
    """Return what transformers computes for sources with `<s>` and `</s>`: logits after a prefix, and outputs with their scores."""
    longest = max(map(len, ids))
    padded = torch.tensor([[*row, *[1] * (longest - len(row))] for row in ids])
    mask = (padded != 1).long()
    logits = model(input_ids=padded, attention_mask=mask, decoder_input_ids=torch.tensor([[2, 0, *PREFIX]] * len(ids))).logits
    rules = {"max_length": LIMIT, "min_new_tokens": 2, "do_sample": False, "forced_bos_token_id": 0, "forced_eos_token_id": None}
    given = {"input_ids": padded, "attention_mask": mask, "return_dict_in_generate": True, **rules}
    greedy = model.generate(**given, num_beams=1)
    beam = model.generate(
        **given,
        num_beams=4,
        num_return_sequences=4,
        early_stopping=True,
        length_penalty=length_penalty,
        output_scores=True,
    )
    rows = [_text(row) for row in beam.sequences.tolist()]
    scores = beam.sequences_scores.tolist()
    return {
        "logits": logits[:, 1:],
        "greedy": [_text(row) for row in greedy.sequences.tolist()],
        "beam": [list(zip(rows[4 * i : 4 * i + 4], scores[4 * i : 4 * i + 4], strict=True)) for i in range(len(ids))],
    }


def _text(row: list[int]) -> list[int]:
    """Return the tokens of an output after the start token and BOS, before EOS."""
    assert row[:2] == [2, 0]
    tokens = row[2:]
    return tokens[: tokens.index(2)] if 2 in tokens else [token for token in tokens if token != 1]
