"""Other engines with networks of the same shapes on the device: transformers and CTranslate2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from benchmarks.decoding.networks import VOCABULARY, Layers, network
from fewstep.config.network import SIZES
from fewstep.config.options import Precision
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.vocabulary import EOS, PAD

Decode = Callable[[list[list[int]]], object]


def ctranslate2(size: str, layers: Layers, search: StepwiseSearch, device: str) -> Decode:
    """Return CTranslate2 on the device. Raises ImportError without it, and RuntimeError if it was built without CUDA."""
    from models.stepwise.ctranslate2 import CTranslate2Search

    found = CTranslate2Search(network(size, layers), precision=search.precision, device=device)
    theirs = replace(search, engine="ctranslate2")
    return lambda sources: found(sources, theirs, [search.output_limits.max_tokens or 1] * len(sources))


def transformers(size: str, layers: Layers, search: StepwiseSearch, device: str) -> Decode:
    """Return the Marian network of transformers, of random weights, with its own generation. Raises ImportError without it."""
    from transformers import GenerationConfig

    model = marian(size, layers, search.precision, device)
    tokens = search.output_limits.max_tokens or 1
    beam = search.beam_size if search.strategy == "beam" else 1
    options = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        num_beams=beam,
        do_sample=False,
        use_cache=True,
        decoder_start_token_id=PAD,
        pad_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=EOS,
    )

    @torch.inference_mode()
    def decode(sources: list[list[int]]) -> list[list[int]]:
        rows = torch.tensor([[*source, EOS] for source in sources], device=device)
        found = model.generate(rows, attention_mask=torch.ones_like(rows), generation_config=options)
        written: list[list[int]] = found[:, 1:].tolist()
        assert len(written[0]) == tokens, f"expected {tokens} tokens, got {len(written[0])}"
        return written

    return decode


@cache
def marian(size: str, layers: Layers, precision: Precision, device: str) -> Any:
    """Return a MarianMTModel of the size's shape, its output tied to one embedding of both sides."""
    from transformers import MarianConfig, MarianMTModel

    shape, tokens = SIZES[size], VOCABULARY[size]
    sides: dict[str, Any] = {
        f"{side}_{name}": value
        for side, count in zip(("encoder", "decoder"), layers, strict=True)
        for name, value in (("layers", count), ("attention_heads", shape["heads"]), ("ffn_dim", shape["feed_forward"]))
    }
    config = MarianConfig(
        vocab_size=tokens,
        decoder_vocab_size=tokens,
        d_model=shape["width"],
        max_position_embeddings=1024,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        **sides,
    )
    torch.manual_seed(1)
    model: Any = MarianMTModel(config)
    return model.eval().to(device, getattr(torch, precision))
