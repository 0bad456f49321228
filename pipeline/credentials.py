"""Credentials in URLs, which no record, message or server may show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SECRET = r"password|token|secret|key|signature|credential|\bsig\b"
"""Regular expression for options of a URL whose value is secret."""


def masked(text: str) -> str:
    """Return `text` without the user, password or token of any URI in it."""
    text = re.sub(r"(://)[^/\s]+@", r"\1***@", text)
    return re.sub(rf"([?&][^=&\s]*(?:{SECRET})[^=&\s]*=)[^&\s]+", r"\1***", text, flags=re.IGNORECASE)


def masked_values(value: Any) -> Any:
    """Return plain JSON data with every string masked."""
    if isinstance(value, Mapping):
        return {key: masked_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_values(item) for item in value]
    return masked(value) if isinstance(value, str) else value
