"""Outputs of a teacher that cannot be targets: those of another language, copies, and words about the translation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from fewstep.config.bounds import Gt, Le
from fewstep.text.languages import base_code, identifier

MIN_LETTERS = 20
"""Letters of an output below which its length and its language say little."""
MIN_COPIED_WORDS = 3
"""Words of a copy that is no translation. A name or `OK` is its own translation."""
_REFUSAL = re.compile(
    r"(?:i['’]m sorry|i am sorry|sorry, (?:but )?i|i (?:cannot|can['’]t|can not|am unable to|am not able to|won['’]t)\b"
    r"|as an ai\b|as a language model\b|i do not have the ability)",
    re.IGNORECASE,
)
_PREFACE = re.compile(
    r"(?:(?:sure|certainly|of course|okay|ok|absolutely)[!,.:]|here(?:['’]s| is| are)\b|translation\s*[:(]|the translation\b"
    r"|note:|translated text\b|\*\*)",
    re.IGNORECASE,
)
REASONS = {
    "refusal": "refused by the teacher",
    "chatter": "words about the translation",
    "copy": "copy of the source",
    "length": "length unlike that of the source",
    "language": "another language",
}
"""Reasons, and their names in reports."""


@dataclass(frozen=True, kw_only=True)
class TargetFilters:
    """Filters of the outputs of a teacher."""

    refusals: bool = True
    """Whether to drop refusals ("I'm sorry, ...") and words about the translation ("Here is the translation: ...", several lines
    for one), unless the source begins so too."""
    copies: bool = True
    """Whether to drop copies of sources of at least three words."""
    max_length_ratio: Annotated[float, Gt(1)] = 4.0
    """Largest ratio of the characters of both sides, in both directions, where one has 20 letters."""
    max_other_language: Annotated[float, Gt(0), Le(1)] = 0.8
    """Largest probability that an output of at least 20 letters is in another language. 1 does not identify languages."""


@dataclass(frozen=True)
class TargetFilter:
    """The filter of outputs in one language."""

    filters: TargetFilters
    language: str

    def rejection(self, source: str, target: str) -> str | None:
        """Return why an output cannot be the target of a source, as a key of `REASONS`; None if it can, and for an empty one."""
        filters = self.filters
        output = target.strip()
        if not output:
            return None
        if filters.refusals:
            if _REFUSAL.match(output) and not _REFUSAL.match(source.strip()):
                return "refusal"
            if _is_preface(output, source) or len(output.splitlines()) > len(source.strip().splitlines()):
                return "chatter"
        if filters.copies and output.casefold() == source.strip().casefold() and len(output.split()) >= MIN_COPIED_WORDS:
            return "copy"
        sizes = sorted((len(output), len(source.strip())))
        if sizes[1] >= MIN_LETTERS and sizes[1] > filters.max_length_ratio * sizes[0]:
            return "length"
        return "language" if self._is_other(output) else None

    def _is_other(self, output: str) -> bool:
        if self.filters.max_other_language == 1 or sum(map(str.isalpha, output)) < MIN_LETTERS:
            return False
        known = identifier()
        language = base_code(self.language)
        found, probability = known.classify(output)
        return language in known.nb_classes and found != language and bool(probability > self.filters.max_other_language)


def _is_preface(output: str, source: str) -> bool:
    """Return whether an output begins with words such as "Here is the translation:", and the source does not.

    A preface ends with a colon within the first line, or speaks of a translation."""
    match = _PREFACE.match(output)
    if not match or _PREFACE.match(source.strip()):
        return False
    line = output.splitlines()[0]
    return "translat" in line.casefold() or (line.rstrip("*").endswith(":") and not source.strip().endswith(":"))
