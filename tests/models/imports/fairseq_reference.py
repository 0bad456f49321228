"""The forward pass and the searches of fairseq's Transformer from their formulae, and small random checkpoints.

Written for tests without fairseq: one sentence at a time, by the names and the ids of fairseq.
"""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models.imports.marian_networks import pieces_of, spm

BOS, PAD, EOS, UNK = range(4)
WIDTH, INNER, HEADS, LAYERS, POSITIONS = 16, 24, 2, 2, 64
OPTIONS = {
    "arch": "transformer_iwslt_de_en",
    **{f"{side}_embed_dim": WIDTH for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": INNER for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")},
    **{f"{side}_layers": LAYERS for side in ("encoder", "decoder")},
    "max_source_positions": POSITIONS,
    "max_target_positions": POSITIONS,
    "share_decoder_input_output_embed": True,
}
SHARED = {"share_all_embeddings": True}
PRE = {"encoder_normalize_before": True, "decoder_normalize_before": True}
LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}


class Reference:
    """A random network with its vocabularies."""

    def __init__(self, seed: int = 0, end: float = 4.0, **options: Any) -> None:
        """`end` raises the logit of EOS, so that outputs end."""
        self.options = OPTIONS | options
        self.models = {side: spm(side) for side in ("source", "target")}
        own = {side: pieces_of(model) for side, model in self.models.items()}
        if self.options.get("share_all_embeddings"):
            joined = list(dict.fromkeys([*own["source"], *own["target"], "madeupword0000"]))
            own = {"source": joined, "target": joined}
        self.symbols = own
        self.rows = {side: ["<s>", "<pad>", "</s>", "<unk>", *pieces] for side, pieces in own.items()}
        self.tensors = self._random(torch.Generator().manual_seed(seed), end)

    def _random(self, generator: torch.Generator, end: float) -> dict[str, Tensor]:
        def normal(*shape: int, scale: float = 0.35) -> Tensor:
            return torch.randn(*shape, generator=generator) * scale

        made: dict[str, Tensor] = {}
        for side, rows in (("encoder", self.rows["source"]), ("decoder", self.rows["target"])):
            made[f"{side}.version"] = torch.tensor([3.0])
            made[f"{side}.embed_tokens.weight"] = normal(len(rows), WIDTH, scale=0.5)
            if self.options.get("encoder_learned_pos"):
                made[f"{side}.embed_positions.weight"] = normal(POSITIONS + 2, WIDTH)
            else:
                made[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
            norms = [""] if self.options.get("encoder_normalize_before") else []
            for layer in range(LAYERS):
                start = f"{side}.layers.{layer}."
                for block in ("self_attn", "encoder_attn") if side == "decoder" else ("self_attn",):
                    norms.append(f"layers.{layer}.{block}_")
                    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                        made |= {
                            f"{start}{block}.{name}.weight": normal(WIDTH, WIDTH),
                            f"{start}{block}.{name}.bias": normal(WIDTH),
                        }
                norms.append(f"layers.{layer}.final_")
                made |= {f"{start}fc1.weight": normal(INNER, WIDTH), f"{start}fc1.bias": normal(INNER)}
                made |= {f"{start}fc2.weight": normal(WIDTH, INNER), f"{start}fc2.bias": normal(WIDTH)}
            for name in norms:
                made[f"{side}.{name}layer_norm.weight"] = 1.0 + normal(WIDTH)
                made[f"{side}.{name}layer_norm.bias"] = normal(WIDTH)
        if self.options.get("share_all_embeddings"):
            made["encoder.embed_tokens.weight"] = made["decoder.embed_tokens.weight"]
        made["decoder.output_projection.weight"] = table = made["decoder.embed_tokens.weight"]
        last = "" if self.options.get("encoder_normalize_before") else f"layers.{LAYERS - 1}.final_"
        made[f"decoder.{last}layer_norm.bias"] += end * table[EOS] / table[EOS].square().sum()
        return made

    def write(self, directory: Path, *, legacy: bool = False, tensors: dict[str, Tensor] | None = None, **extra: Any) -> None:
        """Write checkpoint, dictionaries and SentencePiece models. `legacy`: the file format and the settings of old versions."""
        directory.mkdir(parents=True, exist_ok=True)
        for side, language in (("source", "en"), ("target", "de")):
            (directory / f"{side}.model").write_bytes(self.models[side])
            (directory / f"dict.{language}.txt").write_text("".join(f"{symbol} 1\n" for symbol in self.symbols[side]))
        options = {"args": Namespace(**self.options)} if legacy else {"args": None, "cfg": {"model": Namespace(**self.options)}}
        content = {"model": self.tensors if tensors is None else tensors, **options, **extra}
        torch.save(content, directory / "model.pt", _use_new_zipfile_serialization=not legacy)

    def encoded(self, line: str) -> list[int]:
        """Return the ids of a source without EOS."""
        pieces = sentencepiece.SentencePieceProcessor(model_proto=self.models["source"]).encode(line, out_type=str)
        return [self.rows["source"].index(piece) if piece in self.rows["source"] else UNK for piece in pieces]

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"])

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def _attention(self, name: str, x: Tensor, memory: Tensor, causal: bool) -> Tensor:
        heads = [self._linear(f"{name}.{part}_proj", of) for part, of in (("q", x), ("k", memory), ("v", memory))]
        query, key, value = (tensor.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1) for tensor in heads)
        scores = (query / math.sqrt(WIDTH // HEADS)) @ key.transpose(1, 2)
        if causal:
            scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).reshape(-1, WIDTH)
        return self._linear(f"{name}.out_proj", mixed)

    def _inner(self, name: str, x: Tensor) -> Tensor:
        activation = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}[self.options.get("activation_fn", "relu")]
        return self._linear(f"{name}.fc2", activation(self._linear(f"{name}.fc1", x)))

    def _stack(self, side: str, ids: list[int], memory: Tensor | None) -> Tensor:
        pre, decoder = bool(self.options.get(f"{side}_normalize_before")), memory is not None
        scale = 1.0 if self.options.get("no_scale_embedding") else math.sqrt(WIDTH)
        x = self.tensors[f"{side}.embed_tokens.weight"][ids] * scale + self._positions(side, len(ids))
        for layer in range(LAYERS):
            start = f"{side}.layers.{layer}"
            blocks = [("self_attn_layer_norm", lambda y, s=start: self._attention(f"{s}.self_attn", y, y, decoder))]
            if decoder:
                blocks.append(
                    ("encoder_attn_layer_norm", lambda y, s=start: self._attention(f"{s}.encoder_attn", y, memory, False))
                )
            blocks.append(("final_layer_norm", lambda y, s=start: self._inner(s, y)))
            for norm, block in blocks:
                name = f"{start}.{norm}"
                x = x + block(self._norm(name, x)) if pre else self._norm(name, x + block(x))
        return self._norm(f"{side}.layer_norm", x) if pre else x

    def _positions(self, side: str, count: int) -> Tensor:
        """Return the codes of the positions 2, 3, ..., since padding is 1."""
        positions = torch.arange(2, count + 2)
        if self.options.get(f"{side}_learned_pos"):
            return self.tensors[f"{side}.embed_positions.weight"][positions]
        half = WIDTH // 2
        rates = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        angles = positions[:, None] * rates
        return torch.cat((angles.sin(), angles.cos()), 1)

    def logits(self, source: list[int], prefix: list[int]) -> Tensor:
        """Return the logits [T+1,V] after a prefix of T target ids."""
        memory = self._stack("encoder", [*source, EOS], None)
        return self._stack("decoder", [EOS, *prefix], memory) @ self.tensors["decoder.output_projection.weight"].T

    def search(self, source: list[int], size: int, limit: int) -> list[int]:
        """Return the best output of beam search, without EOS: its score is the mean log-probability of a token.

        The search stops when `size` outputs have ended. Raises AssertionError if the output does not end within the limit.
        """
        alive: list[tuple[float, list[int]]] = [(0.0, [])]
        ended: list[tuple[float, list[int]]] = []
        for step in range(limit):
            scored: list[tuple[float, list[int]]] = []
            for score, prefix in alive:
                chances = self.logits(source, prefix)[-1].log_softmax(-1)
                chances[[BOS, PAD] + ([EOS] if step == 0 else [])] = -torch.inf
                best = chances.topk(2 * size)
                pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                scored += [(score + chance, [*prefix, token]) for chance, token in pairs]
            scored = sorted(scored, key=lambda pair: -pair[0])[: 2 * size]
            ended += [(score / len(ids), ids[:-1]) for score, ids in scored[:size] if ids[-1] == EOS]
            alive = [pair for pair in scored if pair[1][-1] != EOS][:size]
            if len(ended) >= size:
                return max(ended[:size], key=lambda pair: pair[0])[1]
        raise AssertionError(f"no end within {limit} tokens: raise `end`")
