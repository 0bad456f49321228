"""The languages of a server: the systems that translate between two of them, their names, and the language of a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fewstep.system.system import System
from fewstep.text.languages import base_code, identifier

AUTO = "auto"
"""The source language that is to be found out."""
MAX_IDENTIFIED = 10_000
"""Characters of a text that are looked at; more change nothing."""


class LanguageError(ValueError):
    """No system of the server translates between the languages of a request."""


class Detected(NamedTuple):
    """A language that a text may have."""

    language: str
    confidence: float
    """Probability in percent, among all languages that the identifier knows; 0 if it does not know this one."""


def targets_of(systems: Mapping[str, System]) -> dict[str, list[str]]:
    """Return for each language of the systems, in their order, the languages into which it can be translated."""
    found: dict[str, list[str]] = {}
    for system in systems.values():
        into = found.setdefault(system.source_language, [])
        if system.target_language not in into:
            into.append(system.target_language)
    for system in systems.values():
        found.setdefault(system.target_language, [])
    return found


def choose(systems: Mapping[str, System], source: str | None, target: str | None) -> dict[str, System]:
    """Return the systems, in order, that translate from `source` into `target`; None stands for any language.

    Codes are compared without case. If no system has a code as it is written, codes are compared without region and script: `en-US`
    is `en` then. Raises LanguageError if there is no system.
    """
    found = dict(systems)
    for place, asked in (("source_language", source), ("target_language", target)):
        if asked is None:
            continue
        matching = _matching(found, place, asked)
        if not matching:
            pair = f"from {source or 'any language'} into {target or 'any language'}"
            raise LanguageError(f"expected languages of a system ({', '.join(_pairs(systems))}), got {_shortened(pair)}")
        found = matching
    return found


def _matching(systems: Mapping[str, System], place: str, asked: str) -> dict[str, System]:
    for same in (_folded, base_code):
        found = {name: system for name, system in systems.items() if same(getattr(system, place)) == same(asked)}
        if found:
            return found
    return {}


def _folded(language: str) -> str:
    return language.lower().replace("_", "-")


def _pairs(systems: Mapping[str, System]) -> Iterator[str]:
    for source, targets in targets_of(systems).items():
        if targets:
            yield f"{source} into {' and '.join(targets)}"


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


def detect(text: str, languages: Sequence[str]) -> list[Detected]:
    """Return `languages`, the most probable one of the text first; equally probable ones keep their order.

    The identifier is py3langid (Lui and Baldwin 2012). A text without letters has no language.
    """
    known: dict[str, float] = {}
    if any(character.isalpha() for character in text):
        known = {base_code(code): probability for code, probability in identifier().rank(text[:MAX_IDENTIFIED])}
    found = [Detected(language, round(100 * known.get(base_code(language), 0.0), 1)) for language in dict.fromkeys(languages)]
    return sorted(found, key=lambda one: -one.confidence)
