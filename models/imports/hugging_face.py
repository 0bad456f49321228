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


def licence(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the licence that the front matter of `README.md` states, and where it was found."""
    if "README.md" in files:
        text = files["README.md"].read_text(encoding="utf-8", errors="replace")
        front = text.split("---")[1] if text.startswith("---") else ""
        if found := re.search(r"^license:\s*['\"]?([^'\"\n]+)", front, re.MULTILINE):
            return {"licence": found[1].strip(), "licence_from": "README.md"}
    return {"licence": "unknown", "licence_from": ""}
