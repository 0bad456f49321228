"""Sentences of invented words in the scripts of several languages, which stand for the words of English sentences."""

from __future__ import annotations

import zlib

LATIN = "abcdefghijklmnopqrstuvwxyz"
LETTERS = {
    "ja": [chr(code) for code in (*range(0x3042, 0x3090, 2), *range(0x65E5, 0x65E5 + 300, 3))],
    "zh": [chr(code) for code in range(0x4E00, 0x4E00 + 900, 3)],
    "ko": [chr(code) for code in range(0xAC00, 0xAC00 + 3000, 11)],
    "ar": [chr(code) for code in range(0x0621, 0x064B) if code not in range(0x063B, 0x0641)],
    "ru": [chr(code) for code in range(0x0430, 0x0450)],
    "fr": [*LATIN, *"\u00e0\u00e2\u00e7\u00e8\u00e9\u00ea\u00ee\u00ef\u00f4\u00f9\u00fb"],
    "ro": [*LATIN, *"\u0103\u00e2\u00ee\u0219\u021b"],
}
"""Letters of each script: kana and kanji, hanzi, syllables of hangul, Arabic, which is written from right to left, Cyrillic, and
Latin with the marks of French and Romanian."""
SEPARATORS = {"ja": "", "zh": ""}
ENDS = {"ja": "\u3002", "zh": "\u3002"}
ALPHABETS = ("fr", "ro", "ru")
"""Languages whose words have more letters than one to three."""


def translated(english: str, language: str) -> str:
    """Return a sentence with one invented word for each word, in reverse order."""
    words = [_word(word, language) for word in english.lower().rstrip(".?!").split()]
    return SEPARATORS.get(language, " ").join(reversed(words)) + ENDS.get(language, ".")


def _word(word: str, language: str) -> str:
    seed, letters = zlib.crc32(word.encode()), LETTERS[language]
    more = 2 if language in ALPHABETS else 0
    return "".join(letters[(seed >> (5 * place if more else 9 * place)) % len(letters)] for place in range(1 + more + seed % 3))
