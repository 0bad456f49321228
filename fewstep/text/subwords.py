"""Text that is split into tokens already: tokens are separated by spaces, and a subword that ends in `@@` is followed by another
one of its word."""

from __future__ import annotations

import re

CONTINUED = "@@"
"""The end of a subword of subword-nmt and fastBPE that continues."""
_MARKS = re.compile(rf"{CONTINUED}( |$)")


def join_subwords(text: str) -> str:
    """Return a text with whole words: `un@@ like@@ ly .` becomes `unlikely .`."""
    return _MARKS.sub("", text)
