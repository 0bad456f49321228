"""Entities such as `&apos;`, which Moses' tokeniser writes for characters that are special in XML and in its own formats."""

from __future__ import annotations

import html
from collections.abc import Sequence


def decoded(texts: Sequence[str]) -> list[str]:
    """Return texts with characters in place of entities."""
    return [html.unescape(text) for text in texts]
