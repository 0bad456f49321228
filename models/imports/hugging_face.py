"""Values of `config.json`, and the licence, in directories of Hugging Face's format. Plans read them, so torch is not imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fewstep.config.options import OutputLimits
from fewstep.config.values import value_problems
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from models.imports.files import ForeignModelError, content_of, read_object, shown

ACTIVATIONS: dict[str, Literal["relu", "gelu", "swish"]] = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}

TIED = "tie_word_embeddings"
MAX_WHOLE = 1 << 20
"""The largest size, row or length in a directory. Arrays of some of these sizes are made before weights are compared with them."""
BART_OTHERS = ("normalize_before", "add_final_layer_norm", "add_bias_logits", "static_position_embeddings")
"""Options of BART's relatives, which transformers does not implement for it."""
MARIAN_LEGACY = ("normalize_before", "normalize_embedding", "add_final_layer_norm")
"""Options of Marian's networks that transformers does not implement."""


def network_of(kind: Literal["marian", "bart"], directory: Path) -> StepwiseConfig | None:
    """Return the network that the `config.json` of a directory describes; None if it describes none that can be imported.

    A Marian network may have start vectors as well, which its weights decide.
    """
    try:
        values = read_object(directory / "config.json")
        network = bart_network(values) if kind == "bart" else marian_network(values)
        return None if any(network.problems()) else network
    except (ForeignModelError, TypeError):
        return None


def vocabulary_size(directory: Path) -> int:
    """Return the number of target pieces that the `config.json` of a directory states; 0 without one."""
    try:
        values = read_object(directory / "config.json")
        return whole(values, "decoder_vocab_size", whole(values, "vocab_size", 0, least=0))
    except ForeignModelError:
        return 0


def bart_network(values: Mapping[str, Any]) -> StepwiseConfig:
    """Return the network of a BART. Raises ForeignModelError for another architecture."""
    expect(values, "model_type", "bart")
    for key, expected in (("normalize_embedding", True), (TIED, True), *((key, False) for key in BART_OTHERS)):
        if values.get(key, expected) != expected:
            raise ForeignModelError(f"config.json: {key}: expected {expected}, as in BART, got {shown(values[key])}")
    shape = shape_of(values)
    shape["max_positions"] -= 1  # the first one is that of the begin vectors
    return _bounded(
        StepwiseConfig(**shape, positions="learned", start="shared", logits_bias=True, embedding_norm=True, begin_vectors=True)
    )


def marian_network(values: Mapping[str, Any]) -> StepwiseConfig:
    """Return the network of Marian without start vectors. Raises ForeignModelError for another architecture."""
    expect(values, "model_type", "marian")
    for key in MARIAN_LEGACY:
        if values.get(key, False):
            raise ForeignModelError(f"config.json: {key}: expected false, which is all that transformers implements, got true")
    if not values.get(TIED, True):
        raise ForeignModelError(f"config.json: {TIED}: expected true, got false; other output tables are not read")
    return _bounded(StepwiseConfig(**shape_of(values), sinusoids="paper", logits_bias=True))


def _bounded(config: StepwiseConfig) -> StepwiseConfig:
    """Return a network. Raises ForeignModelError for sizes that no network here has."""
    for problem in value_problems(config):
        name = ".".join(map(str, problem.path))
        raise ForeignModelError(f"config.json: {name}: expected {problem.expected}, got {shown(problem.got)}")
    return config


def whole(values: Mapping[str, Any], key: str, usual: int | None = None, *, least: int = 1) -> int:
    """Return a whole number, which is `usual` without a value. Raises ForeignModelError for another value, and for none at all."""
    value = usual if values.get(key) is None else values[key]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_WHOLE:
        raise ForeignModelError(f"config.json: {key}: expected a whole number from {least} to {MAX_WHOLE}, got {shown(value)}")
    return value


def expect(values: Mapping[str, Any], key: str, expected: Any) -> None:
    """Raise ForeignModelError if a key has another value."""
    if values.get(key) != expected:
        raise ForeignModelError(f"config.json: {key}: expected {shown(expected)}, got {shown(values.get(key))}")


def activation_of(values: Mapping[str, Any]) -> Literal["relu", "gelu", "swish"]:
    """Return the activation of the feed-forward blocks. Raises ForeignModelError for one that no network here has."""
    name = shown(values.get("activation_function", "gelu"))
    activation = ACTIVATIONS.get(name)
    if activation is None:
        raise ForeignModelError(f"config.json: activation_function: expected one of {', '.join(ACTIVATIONS)}, got {name}")
    return activation


def shape_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a network that all directories of encoders and decoders state alike.

    Raises ForeignModelError for a missing key, for sides of different shapes, and for an activation that no network here has.
    """
    for part in ("ffn_dim", "attention_heads"):
        expect(values, f"decoder_{part}", values.get(f"encoder_{part}"))
    dropout = values.get("dropout", 0.1)
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ForeignModelError(f"config.json: dropout: expected a probability below 1, got {shown(dropout)}")
    return {
        "encoder_layers": whole(values, "encoder_layers"),
        "decoder_layers": whole(values, "decoder_layers"),
        "width": whole(values, "d_model"),
        "feed_forward": whole(values, "encoder_ffn_dim"),
        "heads": whole(values, "encoder_attention_heads"),
        "dropout": dropout,
        "norm": "post",
        "max_positions": whole(values, "max_position_embeddings", 1024, least=2),
        "activation": activation_of(values),
        "scale_embeddings": bool(values.get("scale_embedding", False)),
    }


def search_of(values: Mapping[str, Any], front: int) -> StepwiseSearch:
    """Return beam search with the options of a directory, whose lengths count `front` tokens before the first one of the text.

    Raises ForeignModelError for options of other types or out of bounds.
    """
    usual = StepwiseSearch(strategy="beam")
    limits = OutputLimits()
    longest, shortest = (whole(values, key, 0, least=0) - front for key in ("max_length", "min_length"))
    if longest > 0:
        limits = replace(limits, max_tokens=longest)
    if shortest > limits.min_tokens:
        limits = replace(limits, min_tokens=shortest)
    penalty = values.get("length_penalty")
    search = replace(
        usual,
        beam_size=whole(values, "num_beams", 0, least=0) or usual.beam_size,
        length_penalty=usual.length_penalty if penalty is None else penalty,
        output_limits=limits,
    )
    if problem := next(value_problems(search), None):
        name = ".".join(map(str, problem.path))
        raise ForeignModelError(f"generation_config.json: {name}: expected {problem.expected}, got {shown(problem.got)}")
    return replace(search, length_penalty=float(search.length_penalty))


def licence(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the licence that the front matter of `README.md` states, and where it was found."""
    if "README.md" in files:
        text = content_of(files["README.md"]).decode("utf-8", "replace")
        front = text.split("---")[1] if text.startswith("---") else ""
        if found := re.search(r"^license:\s*['\"]?([^'\"\n]+)", front, re.MULTILINE):
            return {"licence": found[1].strip(), "licence_from": "README.md"}
    return {"licence": "unknown", "licence_from": ""}
