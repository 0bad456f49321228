"""Codes of languages, and the identification of the language of a text."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "yue"})
"""Languages that are written without spaces between words."""
UNSPACED = r"\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3031-\u303c\u3040-\u30ff\u31f0-\u31ff"
UNSPACED += r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
"""Characters of scripts that are written without spaces between words, as in a class of regular expressions: Thai, Lao, Tibetan,
Burmese, Khmer, Chinese characters and kana."""
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
"""Two-letter codes by the codes of three letters, as in names of mtdata, for the languages that have rules of their own."""

# fmt: off
NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian",
    "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati",
    "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic",
    "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ko": "Korean",
    "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi",
    "ms": "Malay", "mt": "Maltese", "my": "Burmese", "nb": "Norwegian Bokmål", "ne": "Nepali", "nl": "Dutch",
    "nn": "Norwegian Nynorsk", "no": "Norwegian", "pa": "Punjabi", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish",
    "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian",
    "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "zh": "Chinese",
}
# fmt: on
"""English names of languages by their base code; others are called by their code."""


def base_code(language: str) -> str:
    """Return the code of a language without region and script, in two letters where something follows from it: `zh` for `zh-CN`,
    `zh_Hans` and `zho`."""
    code = re.split("[-_]", language.lower())[0]
    return ISO_639_3.get(code, code)


@lru_cache(maxsize=1024)
def is_language(code: str, wanted: str) -> bool:
    """Return whether a text in the language `code` is one in the language `wanted`: `en-US` is `en`, but `en` is not `en-US`.

    `code` may be a locale, such as `fr_FR.UTF-8` and `sr@latin`.
    """
    found, stated = (re.split("[-_]", re.split("[.@]", one.lower())[0]) for one in (code, wanted))
    return base_code(found[0]) == base_code(stated[0]) and found[1 : len(stated)] == stated[1:]


def name_of(language: str) -> str:
    """Return the English name of a language, with its code if that has a region or script."""
    name = NAMES.get(base_code(language), language)
    return name if len(language) == len(base_code(language)) or name == language else f"{name} ({language})"


@cache
def identifier() -> Any:
    """Return the identifier of py3langid (Lui and Baldwin 2012, "langid.py"), whose package has its model. Its probabilities are
    among all languages that it knows (`nb_classes`)."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
