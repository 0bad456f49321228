"""Normalisation of text: composed characters, single spaces, no control characters."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from fewstep import vocabulary

# SentencePiece writes a space as U+2581, so that this character cannot be kept in text: it is treated as a space.
_SPACES = r"[\p{Z}\t\n\v\f\r\x{1c}-\x{1f}\x{85}\x{2581}]+"
_CONTROLS = r"[\x{00}-\x{08}\x{0e}-\x{1b}\x{7f}-\x{84}\x{86}-\x{9f}\x{feff}]+"
_NOT_SINGLE_SPACES = (
    r"  |[\p{Zl}\p{Zp}\t\n\v\f\r\x{1c}-\x{1f}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}\x{2581}]"
)
_MAYBE_NOT_NFC = r"[^\x{00}-\x{2ff}]"
"""Characters below U+0300 neither compose nor decompose (Unicode Standard Annex 15, quick check)."""


def normalise(texts: pa.StringArray) -> pa.StringArray:
    """Normalise texts to NFC, remove control characters, and replace runs of white space by single spaces, with none at the ends.

    The function is idempotent. Other format characters (joiners, directions) are part of the text and are kept.
    """
    if _any(texts, _CONTROLS):
        texts = pc.replace_substring_regex(texts, _CONTROLS, "")
    texts = pc.utf8_trim_whitespace(nfc(texts))
    if _any(texts, _NOT_SINGLE_SPACES):
        texts = pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, _SPACES, " "))
    return texts


def nfc(texts: pa.StringArray) -> pa.StringArray:
    """Return the canonical composition (NFC) of texts. Arrow's own function, in version 25, decomposes instead."""
    return map_matching(texts, _MAYBE_NOT_NFC, vocabulary.nfc)


def map_matching(texts: pa.StringArray, pattern: str, function: Callable[[str], str]) -> pa.StringArray:
    """Apply a function to the texts that match a pattern; the others stay."""
    mask = pc.match_substring_regex(texts, pattern)
    if not pc.any(mask).as_py():
        return texts
    return pc.replace_with_mask(texts, mask, pa.array(map(function, texts.filter(mask).to_pylist()), pa.string()))


def _any(texts: pa.StringArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())
