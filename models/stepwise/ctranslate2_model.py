"""Conversion of a finished autoregressive network to a CTranslate2 model, with CTranslate2's own specification classes."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from fewstep.vocabulary import BOS, EOS, RESERVED, UNK
from models.common.layers.attention import CrossAttention, SelfAttention
from models.common.layers.blocks import DecoderLayer, EncoderLayer, FeedForward
from models.stepwise.model import StepwiseModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fewstep.config.options import Shortlist
    from fewstep.shortlist import Lexicon

INSTALL = "pip install ctranslate2"
MAP = "vmap.txt"
"""CTranslate2's name of the file with a vocabulary map."""


class EngineError(ImportError):
    """The error of calls that need CTranslate2 where it is not installed."""


def ctranslate2() -> Any:
    """Import and return the package. Raises EngineError that names the extra which installs it.

    The choice of a backend is the package's own, or that of the user's `CT2_USE_MKL`.
    """
    try:
        import ctranslate2
        import ctranslate2.specs
    except ImportError as error:
        raise EngineError(f"engine ctranslate2: expected the package ctranslate2, got: {error}; install it: {INSTALL}") from error
    return ctranslate2


def may_saturate(precision: str) -> bool:
    """Return whether 8-bit products may overflow on this processor: oneDNN, which CTranslate2 chooses on processors of other
    vendors than Intel, adds pairs of products in 16 bits where the processor lacks VNNI. MKL does not, and takes much longer."""
    if not precision.startswith("int8") or torch.cpu._is_vnni_supported() or platform.machine() != "x86_64":
        return False
    intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return os.environ.get("CT2_USE_MKL", str(intel)).lower() not in ("1", "true")


def convertible(model: nn.Module) -> StepwiseModel:
    """Return the network. Raises ValueError unless it is a single Transformer that writes one token per step from left to right."""
    if not isinstance(model, StepwiseModel):
        raise ValueError(f"CTranslate2: expected a single autoregressive network, got a {type(model).__name__}")
    if model.config.needs_torch:
        raise ValueError(
            "CTranslate2: expected a network without embedding_norm and begin_vectors and with tied_output, got another one"
        )
    order = model.order
    if (order.arrangement, order.step_size) != ("l2r", 1):
        raise ValueError(
            f"CTranslate2: expected a network that writes one token a step from left to right (order: autoregressive), "
            f"got {order.arrangement} with {order.step_size} tokens per step"
        )
    return model


def write_model(
    network: nn.Module,
    directory: Path,
    *,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    precision: str = "float32",
) -> None:
    """Write the network into `directory`: `model.bin`, `config.json` and the vocabularies, in the order of their ids.

    `precision` is that of the weights in the file. Sources must be given without EOS, which CTranslate2 appends. Raises
    EngineError, and ValueError for a network that CTranslate2 cannot express.
    """
    spec = specification(network)
    for token, name in ((BOS, "bos_token"), (EOS, "eos_token"), (UNK, "unk_token")):
        setattr(spec.config, name, RESERVED[token])
    spec.config.decoder_start_token = RESERVED[BOS]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    spec.register_source_vocabulary(list(source_pieces))
    spec.register_target_vocabulary(list(target_pieces))
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    directory.mkdir(parents=True, exist_ok=True)
    spec.save(str(directory))


def vocabulary_map(shortlist: Shortlist, lexicon: Lexicon, *, source_pieces: Sequence[str], target_pieces: Sequence[str]) -> str:
    """Return CTranslate2's vocabulary map of a shortlist of stated size, a line for each source token with its links.

    The line of the empty token holds for all sources. It has the frequent tokens, and the links of EOS, which ends every source.
    """
    linked = np.zeros((0, 0), np.int64) if lexicon.linked_tokens is None else lexicon.linked_tokens[:, : shortlist.links]
    always = dict.fromkeys([*lexicon.common_tokens[: shortlist.tokens], *linked[EOS : EOS + 1].ravel()])
    rows = [("", always), *zip(source_pieces, linked, strict=False)]
    return "".join(f"{piece}\t{' '.join(target_pieces[int(id_)] for id_ in ids if id_ >= 0)}\n" for piece, ids in rows)


@torch.no_grad()
def specification(network: nn.Module) -> Any:
    """Return the network's `TransformerSpec`. Position codes of any kind become tables, and the input of the first slot becomes the
    embedding of BOS, which no text contains."""
    model = convertible(network)
    config = model.config
    specs = ctranslate2().specs
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=getattr(specs.Activation, config.activation.upper()),
    )
    targets = model.target_embedding.weight
    spec.encoder.embeddings[0].weight = _array(targets if model.source_embedding is None else model.source_embedding.weight)
    spec.encoder.position_encodings.encodings = _array(
        model.source_positions(torch.arange(config.max_positions, device=targets.device))
    )
    codes = model.target_positions(torch.arange(model.max_slots, device=targets.device))
    # One arbitrary row more, for the EOS after the longest outputs, which scoring computes and does not count.
    spec.decoder.position_encodings.encodings = _array(torch.nn.functional.pad(codes, (0, 0, 0, 1)))
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config.scale_embeddings
    inputs = _array(targets).copy()
    inputs[BOS] = 0.0
    if model.start is not None:
        # the network scales start vectors in any case, CTranslate2 only where it scales embeddings
        inputs[BOS] = _array(model.start.table.weight)[0] * (1.0 if config.scale_embeddings else math.sqrt(config.width))
    spec.decoder.embeddings.weight = inputs
    spec.decoder.projection.weight = _array(targets)
    if model.logits_bias is not None:
        spec.decoder.projection.bias = _array(model.logits_bias)
    for target, layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        assert isinstance(layer, EncoderLayer)
        _self_attention(target.self_attention, layer.attention, layer.attention_residual.norm)
        _feed_forward(target.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    for target, layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        assert isinstance(layer, DecoderLayer)
        _self_attention(target.self_attention, layer.attention, layer.attention_residual.norm)
        _cross_attention(target.attention, layer.cross_attention, layer.cross_attention_residual.norm)
        _feed_forward(target.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    for target, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        if isinstance(stack.norm, nn.LayerNorm):
            _norm(target.layer_norm, stack.norm)
    return spec


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().float().cpu().contiguous().numpy()
    return array


def _linear(spec: Any, layer: nn.Linear) -> None:
    spec.weight = _array(layer.weight)
    spec.bias = _array(layer.bias)


def _norm(spec: Any, layer: nn.LayerNorm) -> None:
    spec.gamma = _array(layer.weight)
    spec.beta = _array(layer.bias)


def _self_attention(spec: Any, layer: SelfAttention, norm: nn.LayerNorm) -> None:
    _norm(spec.layer_norm, norm)
    for target, linear in zip(spec.linear, (layer.projection, layer.output), strict=True):
        _linear(target, linear)


def _cross_attention(spec: Any, layer: CrossAttention, norm: nn.LayerNorm) -> None:
    _norm(spec.layer_norm, norm)
    for target, linear in zip(spec.linear, (layer.queries, layer.projection, layer.output), strict=True):
        _linear(target, linear)


def _feed_forward(spec: Any, layer: FeedForward, norm: nn.LayerNorm) -> None:
    _norm(spec.layer_norm, norm)
    _linear(spec.linear_0, layer.widen)
    _linear(spec.linear_1, layer.narrow)
