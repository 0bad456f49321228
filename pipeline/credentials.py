"""Credentials in URLs, which no record, message or server may show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

SECRET = r"password|passwd|passphrase|\bpass\b|pwd|token|secret|key|signature|credential|auth(?!or)|access|session|\bsig\b|\bsas\b"
"""Regular expression for options of a URL whose value is secret."""
_USER = re.compile(r"(://|\bhf:)(?:[^/\s@:\[]*:(?!\d{0,5}[/?#])[^\s]*|[^/?#\s]+)@")
"""User and password of a URI (RFC 3986, section 3.2): an `@` behind a host and its port belongs to the path. What else stands in
place of a port is a password, which may hold `/` and `@` although they should be escaped there."""
_OPTION = re.compile(r"([?&;#])([^=&;#?\s]+)=([^&\s]+)")


def masked(text: str) -> str:
    """Return `text` without the user, password or token of any URI in it."""
    return _OPTION.sub(_masked_option, _USER.sub(r"\1***@", text))


def _masked_option(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}=***" if re.search(SECRET, unquote(found[2]), re.IGNORECASE) else found[0]


def masked_values(value: Any) -> Any:
    """Return plain JSON data with every string masked."""
    if isinstance(value, Mapping):
        return {key: masked_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_values(item) for item in value]
    return masked(value) if isinstance(value, str) else value
