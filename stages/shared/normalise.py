"""The normalisation of text in Arrow's arrays."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from fewstep.text.normalise import CONTROLS, INVISIBLE, JOINERS
from fewstep.text.normalise import nfc as composed
from fewstep.text.normalise import normalise as normalise_text

_SPACES = r"\p{Zl}\p{Zp}\t\n\v\f\r\x{1c}-\x{1f}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}\x{2581}"
_MAYBE_CHANGED = rf"^ | $|  |[{CONTROLS}{INVISIBLE}{JOINERS}{_SPACES}]"
"""A pattern of all texts in NFC that normalisation changes."""
_MAYBE_NOT_NFC = r"[^\x{00}-\x{2ff}]"
"""Characters below U+0300 neither compose nor decompose (Unicode Standard Annex 15, quick check)."""


def normalise(texts: pa.StringArray) -> pa.StringArray:
    """Normalise texts by the rule of `fewstep.text.normalise`, which is that of use."""
    return map_matching(nfc(texts), _MAYBE_CHANGED, normalise_text)


def nfc(texts: pa.StringArray) -> pa.StringArray:
    """Return the canonical composition (NFC) of texts. Arrow's own function, in version 25, decomposes instead."""
    return map_matching(texts, _MAYBE_NOT_NFC, composed)


def map_matching(texts: pa.StringArray, pattern: str, function: Callable[[str], str]) -> pa.StringArray:
    """Apply a function to the texts that match a pattern; the others stay."""
    mask = pc.match_substring_regex(texts, pattern)
    if not pc.any(mask).as_py():
        return texts
    return pc.replace_with_mask(texts, mask, pa.array(map(function, texts.filter(mask).to_pylist()), pa.string()))
