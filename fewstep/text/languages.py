"""Codes of languages."""

from __future__ import annotations

import re

WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "yue"})
"""Languages that are written without spaces between words."""
ISO_639_3 = {
    "bod": "bo",
    "cmn": "zh",
    "eng": "en",
    "jpn": "ja",
    "khm": "km",
    "kor": "ko",
    "lao": "lo",
    "mya": "my",
    "tha": "th",
    "zho": "zh",
}
"""Codes of three letters, as in names of mtdata, of languages that are not treated as all others are."""


def base_code(language: str) -> str:
    """Return the code of a language without region and script, in two letters where something follows from it: `zh` for `zh-CN`,
    `zh_Hans` and `zho`."""
    code = re.split("[-_]", language.lower())[0]
    return ISO_639_3.get(code, code)
