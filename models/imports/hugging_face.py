"""Values of `config.json`, and the licence, in directories of Hugging Face's format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from models.imports.foreign import ForeignModelError

ACTIVATIONS: dict[str, Literal["relu", "gelu", "swish"]] = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}


def expect(values: Mapping[str, Any], key: str, expected: Any) -> None:
    """Raise ForeignModelError if a key has another value."""
    if values.get(key) != expected:
        raise ForeignModelError(f"config.json: {key}: expected {expected}, got {values.get(key)}")


def activation_of(values: Mapping[str, Any]) -> Literal["relu", "gelu", "swish"]:
    """Return the activation of the feed-forward blocks. Raises ForeignModelError for one that no network here has."""
    activation = ACTIVATIONS.get(str(values.get("activation_function", "gelu")))
    if activation is None:
        raise ForeignModelError(
            f"config.json: activation_function: expected one of {', '.join(ACTIVATIONS)}, got {values['activation_function']}"
        )
    return activation


def shape_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a network that all directories of encoders and decoders state alike.

    Raises ForeignModelError for a missing key, for sides of different shapes, and for an activation that no network here has.
    """
    try:
        for part in ("ffn_dim", "attention_heads"):
            expect(values, f"decoder_{part}", values[f"encoder_{part}"])
        return {
            "encoder_layers": values["encoder_layers"],
            "decoder_layers": values["decoder_layers"],
            "width": values["d_model"],
            "feed_forward": values["encoder_ffn_dim"],
            "heads": values["encoder_attention_heads"],
            "dropout": values.get("dropout", 0.1),
            "norm": "post",
            "max_positions": values.get("max_position_embeddings", 1024),
            "activation": activation_of(values),
            "scale_embeddings": bool(values.get("scale_embedding", False)),
        }
    except KeyError as error:
        raise ForeignModelError(f"config.json: expected the key {error.args[0]}, got none; copy the file again") from error


def licence(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the licence that the front matter of `README.md` states, and where it was found."""
    if "README.md" in files:
        text = files["README.md"].read_text(encoding="utf-8", errors="replace")
        front = text.split("---")[1] if text.startswith("---") else ""
        if found := re.search(r"^license:\s*['\"]?([^'\"\n]+)", front, re.MULTILINE):
            return {"licence": found[1].strip(), "licence_from": "README.md"}
    return {"licence": "unknown", "licence_from": ""}
