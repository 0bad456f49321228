"""Random networks of the papers' authors, as tensors and settings of their checkpoints.

`authors.json` has values that the authors' code computed with these networks in float32 on a CPU, in evaluation mode and a
sentence at a time: thu-coai/DA-Transformer, branches v1.0 (`v1`) and main at bc13499 (`v2`, `predat`, `other`), and
hemingkx/SpecDec at 1ae8018 (`block`, `verifier`). Their classes were built from `options`, took the `tensors` by name, and ran
`extract_features`, `forward_decoder` (greedy, lookahead, and jointviterbi with an exponent of 1), the drafter's decoder, and
`specdec_forward` with blocks of 5, at most 30 tokens, and beta 1, tau 0 (`gad`) or beta 12, tau 4 (`gad++`). For Python 3.11
the mutable defaults of dataclasses in their copies of fairseq became factories, and calls of CUDA were left out. Left out are
values of joint-Viterbi search by `other`, where their cap of lengths holds, and sources of `predat` whose last vertex writes
another token than `</s>`, which it may not here.
"""

from __future__ import annotations

import zlib
from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

SYMBOLS, WIDTH, INNER, HEADS, LAYERS = 36, 16, 24, 2, 2
SOURCE_POSITIONS, TARGET_POSITIONS = 20, 90
LENGTHS = 256
ROWS = SYMBOLS + 4
"""Rows of a table: `<s>`, `<pad>`, `</s>`, `<unk>` and the symbols of the dictionary."""
COMMON = {
    **{f"{side}_layers": LAYERS for side in ("encoder", "decoder")},
    **{f"{side}_embed_dim": WIDTH for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": INNER for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")},
    "max_source_positions": SOURCE_POSITIONS,
    "max_target_positions": TARGET_POSITIONS,
    "share_all_embeddings": True,
    "activation_fn": "gelu",
    "dropout": 0.1,
}
LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}
UNSHARED = {"share_all_embeddings": False, "share_decoder_input_output_embed": False}
V2 = {
    "arch": "glat_decomposed_link_base",
    **LEARNED,
    "upsample_base": "source_old",
    "upsample_scale": "4",
    "decode_upsample_scale": 4.0,
    "links_feature": "feature:position",
    "max_transition_length": 99999,
    "segment_embedding": False,
    "seg_tokens": 0,
}
V1 = {
    "arch": "glat_decomposed_link_base",
    **LEARNED,
    "src_upsample_scale": 4.0,
    "links_feature": "feature:position",
    "max_transition_length": 99999,
}
PREDAT = V2 | {
    "arch": "glat_decomposed_link_pretrain",
    "upsample_base": "predict",
    "upsample_scale": "4~8",
    "decode_upsample_scale": 6.0,
    "segment_embedding": True,
    "seg_tokens": 4,
    "prepend_bos": True,
}
OTHER = (
    V2
    | UNSHARED
    | {
        "upsample_base": "fixed",
        "upsample_scale": "30",
        "decode_upsample_scale": 30.0,
        "links_feature": "feature:sinposition",
        "max_transition_length": 5,
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "encoder_learned_pos": False,
        "decoder_learned_pos": False,
        "activation_fn": "relu",
    }
)
BLOCK = {"arch": "block", **LEARNED, "src_embedding_copy": True, "block_size": 5}
VERIFIER = {"arch": "transformer"}


@dataclass(frozen=True)
class Network:
    """A random network."""

    seed: int
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The settings of the checkpoint."""
        return COMMON | self.changes

    @property
    def is_graph(self) -> bool:
        """Whether it is a DA-Transformer."""
        return "glat" in self.options["arch"]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the checkpoint."""
        found = {name: self._drawn(name, shape) for name, shape in self._shapes().items()}
        for names in self._aliases():
            for other in names[1:]:
                found[other] = found[names[0]]
        return found | {f"{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")}

    def checkpoint(self) -> dict[str, Any]:
        """Return the content of the checkpoint, as fairseq writes it."""
        return {"args": None, "cfg": {"model": Namespace(**self.options)}, "model": self.tensors()}

    def _drawn(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Return random numbers, which depend on seed and name alone.

        The first two units carry `<s>` and `</s>`: a vertex with such an input writes it, as in trained networks.
        """
        draw = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        values = draw.standard_normal(shape)
        if "norm" in name:
            values = values * 0.2 + name.endswith("weight")
        elif len(shape) == 1:
            values *= 0.1
        elif "embed_tokens" in name or "output_projection" in name:
            values *= 0.8
            values[:4] *= 0.1  # so that outputs are of symbols
            if self.options["arch"] == "transformer":
                values[2] *= 10  # so that outputs end
        elif "embed_length" in name:
            values[:8] *= 0.05  # so that predicted lengths are some of the others
            values[16:] *= 0.05
        elif "link_positional" in name:
            values += 2 * waves(shape[0])
        elif "embed" in name:
            values *= 2.5
        else:
            values *= 1.3 * shape[1] ** -0.5
        if self.is_graph:
            self._mark_ends(name, values)
        elif "out_proj" in name or "fc2" in name:
            values *= 0.6
        return torch.from_numpy(values).float()

    def _mark_ends(self, name: str, values: np.ndarray) -> None:
        if name.endswith(("query_linear.weight", "key_linear.weight")):
            values[:, WIDTH:] += 1.5 * np.eye(WIDTH)  # so that paths have many vertices
        elif "link" in name or "linear" in name or "embed_length" in name:
            return
        elif "norm" in name:
            values[:2] = name.endswith("weight")
        elif "out_proj" in name or "fc2" in name:
            values *= 0.25
            values[:2] = 0
        elif "embed" in name or "output_projection" in name:
            values[:, :2] = 0
            if "tokens" in name or "output" in name:
                values[0, 0] = values[2, 1] = 5

    def _rows(self) -> int:
        return ROWS + self.options.get("seg_tokens", 0)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        options, shapes = self.options, {}
        for side, positions in (("encoder", SOURCE_POSITIONS), ("decoder", TARGET_POSITIONS)):
            shapes[f"{side}.embed_tokens.weight"] = (self._rows(), WIDTH)
            if options.get(f"{side}_learned_pos"):
                shapes[f"{side}.embed_positions.weight"] = (positions + 2, WIDTH)
            for layer in range(LAYERS):
                start = f"{side}.layers.{layer}."
                blocks = ["self_attn", *(["encoder_attn"] if side == "decoder" else [])]
                for block in blocks:
                    for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                        shapes |= {f"{start}{block}.{part}.weight": (WIDTH, WIDTH), f"{start}{block}.{part}.bias": (WIDTH,)}
                for part in (*(f"{block}_layer_norm" for block in blocks), "final_layer_norm"):
                    shapes |= {f"{start}{part}.{kind}": (WIDTH,) for kind in ("weight", "bias")}
                shapes |= {f"{start}fc1.weight": (INNER, WIDTH), f"{start}fc1.bias": (INNER,)}
                shapes |= {f"{start}fc2.weight": (WIDTH, INNER), f"{start}fc2.bias": (WIDTH,)}
            if options.get(f"{side}_normalize_before"):
                shapes |= {f"{side}.layer_norm.{kind}": (WIDTH,) for kind in ("weight", "bias")}
        shapes["decoder.output_projection.weight"] = (self._rows(), WIDTH)
        return shapes | (self._links() if self.is_graph else {}) | self._further()

    def _links(self) -> dict[str, tuple[int, ...]]:
        learned = "sinposition" not in self.options["links_feature"]
        shapes: dict[str, tuple[int, ...]] = {"decoder.embed_length.weight": (LENGTHS, WIDTH)}
        if learned:
            shapes["decoder.link_positional.weight"] = (TARGET_POSITIONS + 2, WIDTH)
        if self.options.get("segment_embedding"):
            shapes["decoder.embed_seg.weight"] = (self.options["seg_tokens"] + 1, WIDTH)
        for name, rows in (("query", WIDTH), ("key", WIDTH), ("gate", HEADS)):
            shapes |= {f"decoder.{name}_linear.weight": (rows, 2 * WIDTH), f"decoder.{name}_linear.bias": (rows,)}
        return shapes

    def _further(self) -> dict[str, tuple[int, ...]]:
        return {"decoder.copy_attn.weight": (WIDTH, WIDTH)} if self.options.get("src_embedding_copy") else {}

    def _aliases(self) -> list[tuple[str, ...]]:
        tables = ("decoder.embed_tokens.weight", "decoder.output_projection.weight", "encoder.embed_tokens.weight")
        return [tables] if self.options["share_all_embeddings"] else []


NETWORKS = {
    "v1": Network(1, V1),
    "v2": Network(2, V2),
    "predat": Network(3, PREDAT),
    "other": Network(4, OTHER),
    "block": Network(5, BLOCK),
    "verifier": Network(5, VERIFIER),
}


def waves(rows: int) -> np.ndarray:
    """Return codes [rows,WIDTH] of which near ones are alike."""
    angles = np.arange(rows)[:, None] / np.geomspace(1, 30, WIDTH // 2)
    return np.concatenate((np.sin(angles), np.cos(angles)), 1)


def sources(count: int, seed: int = 0) -> list[list[int]]:
    """Return random sources as numbers of symbols, from 0."""
    draw = np.random.default_rng(seed)
    return [draw.integers(0, SYMBOLS, int(draw.integers(1, 15))).tolist() for _ in range(count)]
