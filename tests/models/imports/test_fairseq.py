"""The forward pass and the searches of fairseq's Transformer from their formulae, and small random checkpoints.

Written for tests without fairseq: one sentence at a time, by the names and the ids of fairseq."""

from __future__ import annotations

import math
import sys
import types
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
import torch.nn.functional as F
from torch import Tensor

import fewstep
from models.bundle.directory import load_system
from models.imports.fairseq import Dictionary, FairseqSide, read_fairseq
from models.imports.files import ForeignModelError
from models.imports.foreign import write_foreign
from tests.models.imports.marian_networks import LIMIT, LINES, pieces_of, spm
from tests.models.imports.test_marian import Payload, search

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


# ---- imported networks of fairseq against an independent forward pass, greedy and beam search


VARIANTS = {
    "post-norm, one table": (21, 3.0, SHARED),
    "pre-norm, two vocabularies": (10, 3.0, PRE),
    "learned positions": (27, 5.0, LEARNED | SHARED),
    "pre-norm, learned, gelu, unscaled": (5, 3.0, PRE | LEARNED | {"activation_fn": "gelu", "no_scale_embedding": True}),
}
"""Seeds and logits of EOS with which all outputs end, and options."""


def read(directory, **dictionaries):
    def side(name, language):
        listed = (directory / f"dict.{language}.txt").read_text().splitlines()
        symbols = dictionaries.get(name, [line.rpartition(" ")[0] for line in listed])
        return FairseqSide(directory / f"{name}.model", Dictionary(f"dict.{language}.txt", symbols))

    return read_fairseq(directory / "model.pt", side("source", "en"), side("target", "de"), name="random", digests={})


def check(reference, foreign, output):
    write_foreign(foreign, output, name="fairseq", source_language="en", target_language="de")
    system, native = load_system(output), fewstep.load(output)
    new = [native.target_pieces.id_to_piece(token) for token in range(foreign.sizes.target)]
    old, network = reference.rows["target"], system.decoder.model
    encoded, sources = native.encode(LINES), [reference.encoded(line) for line in LINES]
    names = [[native.source_pieces.id_to_piece(token) for token in row] for row in encoded]
    assert names == [[reference.rows["source"][token] for token in row] for row in sources]
    prefix = list(range(4, 12))
    columns, own_prefix = [new.index(name) for name in old], [new.index(old[token]) for token in prefix]
    for row, source in zip(encoded, sources, strict=True):
        with torch.no_grad():
            memory = network.encode(torch.tensor([[*row, 2]]), torch.tensor([len(row) + 1]))
            logits = network.logits(network.hidden(torch.tensor([[*own_prefix, 2]]), memory))[0]
        assert torch.allclose(logits[:, columns], reference.logits(source, prefix), atol=1e-4)
        assert bool((logits[:, [4, 5, 6]] == -torch.inf).all())
    for strategy, size in (("greedy", 1), ("beam", 4)):
        wanted = [[new.index(old[token]) for token in reference.search(source, size, LIMIT - 1)] for source in sources]
        for engine, decoder in (("torch", system), ("auto", system), ("auto", native)):
            found = decoder.decode(encoded, search(strategy, engine=engine))
            assert [ranked[0].ids for ranked in found] == wanted


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_searches_are_those_of_fairseq(variant, tmp_path):
    seed, end, options = VARIANTS[variant]
    reference = Reference(seed=seed, end=end, **options)
    reference.write(tmp_path / "fairseq")
    check(reference, read(tmp_path / "fairseq"), tmp_path / "system")


def old_names(tensors):
    """Return tensors as versions before 0.6 stored them."""
    old = {name: tensor for name, tensor in tensors.items() if "_proj." not in name or "out" in name}
    old.pop("decoder.output_projection.weight")
    for name, tensor in tensors.items():
        if ".q_proj." in name:
            parts = [tensors[name.replace("q_proj", f"{letter}_proj")] for letter in "kv"]
            old[name.replace("q_proj.", "in_proj_")] = torch.cat([tensor, *parts])
    numbers = {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1, "final_layer_norm": 2}
    renamed = {}
    for name, tensor in old.items():
        found = next((norm for norm in numbers if f".{norm}." in name), "")
        number = 1 if found == "final_layer_norm" and name.startswith("encoder") else numbers.get(found)
        renamed[name.replace(found, f"layer_norms.{number}") if found else name] = tensor
    return renamed


def test_old_checkpoints_have_other_names_and_objects_of_fairseq(tmp_path, monkeypatch):
    meters = types.ModuleType("fairseq.meters")
    meters.AverageMeter = type("AverageMeter", (), {"__module__": "fairseq.meters"})
    meter = meters.AverageMeter()
    meter.sum = 3.0
    reference = Reference(seed=21, end=3.0, **SHARED)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
        patched.setitem(sys.modules, "fairseq.meters", meters)
        reference.write(
            tmp_path / "old", legacy=True, tensors=old_names(reference.tensors), extra_state={"train_meters": {"loss": meter}}
        )
    reference.write(tmp_path / "new")
    old, new = read(tmp_path / "old"), read(tmp_path / "new")
    assert old.weights.keys() == new.weights.keys()
    assert all(torch.equal(old.weights[name], weight) for name, weight in new.weights.items())
    check(reference, old, tmp_path / "system")


def test_sizes_that_a_checkpoint_does_not_state_are_those_of_its_architecture(tmp_path):
    reference = Reference(**SHARED)
    del reference.options["decoder_attention_heads"], reference.options["encoder_attention_heads"]
    reference.write(tmp_path)
    assert read(tmp_path).network.heads == 4  # transformer_iwslt_de_en
    reference.options["arch"] = "transformer_of_this_group"
    reference.write(tmp_path)
    with pytest.raises(ForeignModelError, match=r"model\.pt: encoder_attention_heads: expected a positive number, got none"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"arch": "fconv_wmt_en_de"}, "arch: expected transformer or one of its sizes, got fconv_wmt_en_de"),
        ({"arch": "transformer_lm_gpt"}, "arch: expected transformer"),
        ({"layernorm_embedding": True}, "layernorm_embedding: expected false or none"),
        ({"adaptive_softmax_cutoff": "100,200"}, "adaptive_softmax_cutoff: expected false"),
        ({"decoder_learned_pos": True}, "decoder_learned_pos: expected none, as in the encoder, got True"),
        ({"decoder_output_dim": 8}, "decoder_output_dim: expected decoder_embed_dim, 16, got 8"),
        ({"activation_fn": "tanh"}, "activation_fn: expected one of relu, gelu, swish, got tanh"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "heads: expected a divisor of width 16, got 3"),
        ({"encoder_layers": "2"}, "encoder_layers: expected a positive number, got 2"),
        ({"decoder_layers": 1}, "expected no such tensor"),
        (
            {"encoder_ffn_embed_dim": 32, "decoder_ffn_embed_dim": 32},
            r"fc1\.weight: expected \[32, 16\] by model\.pt, got \[24, 16\]",
        ),
        (PRE, r"encoder\.layer_norm\.weight: expected a tensor \[16\]"),
    ],
)
def test_other_networks_are_refused(options, match, tmp_path):
    reference = Reference(**SHARED)
    reference.options = reference.options | options
    reference.write(tmp_path)
    with pytest.raises(ForeignModelError, match=match):
        read(tmp_path)


def test_dictionaries_and_tables_must_fit(tmp_path):
    reference = Reference(**SHARED)
    reference.write(tmp_path)
    symbols = reference.symbols["target"]
    with pytest.raises(ForeignModelError, match=rf"dict\.de\.txt: expected {len(symbols)} symbols for .* rows, got 3"):
        read(tmp_path, target=symbols[:3])
    with pytest.raises(ForeignModelError, match="share_all_embeddings: expected equal dictionaries"):
        read(tmp_path, target=symbols[::-1])
    changed = {**reference.tensors, "decoder.output_projection.weight": reference.tensors["decoder.embed_tokens.weight"] + 1}
    reference.write(tmp_path, tensors=changed)
    with pytest.raises(ForeignModelError, match=r"output_projection\.weight: expected equal to decoder\.embed_tokens\.weight"):
        read(tmp_path)
    old = {**Reference(**SHARED, **PRE).tensors, "encoder.version": torch.tensor([1.0])}
    Reference(**SHARED, **PRE).write(tmp_path, tensors=old)
    with pytest.raises(ForeignModelError, match=r"encoder\.version: expected at least 3"):
        read(tmp_path)


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_checkpoint_is_refused(legacy, tmp_path):
    Reference(**SHARED).write(tmp_path, legacy=legacy, extra_state={"meter": Payload(tmp_path / "ran")})
    with pytest.raises(ForeignModelError, match=r"model\.pt: refused global .*open; only tensors and settings are read"):
        read(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_other_files_are_refused(tmp_path):
    Reference(**SHARED).write(tmp_path)
    torch.save({"weights": torch.zeros(1)}, tmp_path / "model.pt")
    with pytest.raises(
        ForeignModelError, match=r"model\.pt: expected a checkpoint of fairseq, with a key 'model', got the keys weights"
    ):
        read(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"nothing")
    with pytest.raises(ForeignModelError, match=r"model\.pt: "):
        read(tmp_path)
