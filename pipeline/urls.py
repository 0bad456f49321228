"""URLs: those that a config may name, without credentials, and what a record, message or server may show of any other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

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


MIRROR_SCHEMES = ("s3", "gs", "file")
TEXT_SCHEMES = ("https", "http", "s3", "gs")
OPTIONS = ("region", "scheme", "endpoint_override")
"""Options that the query of an object storage's URL may have."""
SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
"""A digest as configs write it."""
GIT_BLOB = re.compile(r"[0-9a-f]{40}")
"""The id of a file's content in git."""


def expected_url(url: str, schemes: tuple[str, ...]) -> str | None:
    """Return a description of the URL that was expected instead of `url`, or None for a valid one.

    The description contains nothing of `url`, which may hold credentials.
    """
    try:
        parts = urlsplit(url)
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
        place = parts.path if parts.scheme == "file" else parts.hostname
    except ValueError:
        return "a URL"
    if parts.scheme not in schemes or not place:
        return f"a URL of the form {', '.join(f'{scheme}://...' for scheme in schemes)}"
    if masked(url) != url or any(re.search(SECRET, name, re.IGNORECASE) for name in names):
        return "a URL without user, password, token or signature (credentials come from the environment)"
    if parts.fragment:
        return "a URL without #"
    if parts.scheme in ("s3", "gs", "file") and not set(names) <= set(OPTIONS):
        return f"a URL with no other options than {', '.join(OPTIONS)}"
    return None


def sha256_digits(sha256: str) -> str:
    """Return the hex digits of a digest as configs write it."""
    return sha256.removeprefix("sha256:")
