"""The URLs that a config may name. URLs with credentials are refused: these come from the environment alone."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from pipeline.credentials import SECRET, masked

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
