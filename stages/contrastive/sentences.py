"""Sentences with their translation and the same translation with one error, from the embedded grammar or from a file.

The file is JSON in the form of LingEval97 (Sennrich 2017): a list of maps with `source`, `reference` and `errors`, a list of maps
with `type`, `contrastive` (the translation with the error) and, for some types, `distance` (words between the words that depend on
each other) and `frequency` (of the word in the training text of the authors).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fewstep.bounded_files import json_value, read_bounded
from stages.errors import DataError
from stages.shared.embedded.contrast import Language, bands, contrasts, label

AGREEMENT = "subj_verb_agreement"
"""The type of errors in the number of a verb."""

DISTANCES = {**{str(words): range(words, words + 1) for words in range(16)}, "16+": range(16, sys.maxsize)}
"""Bins of distances in words."""

MAX_BYTES = 256 << 20
"""Bytes of a file. LingEval97 has 97,000 pairs of some hundred bytes each."""
MAX_SHOWN = 80
"""Characters of a value that an error shows."""

_FREQUENCIES = (0, 1, 2, 3, 6, 11, 21, 51, 101, 201, 501, 1001, 2001, 5001, 10001, sys.maxsize)


def _bin(first: int, end: int) -> str:
    if end == sys.maxsize:
        return f"{first:,}+"
    return f"{first:,}" if end == first + 1 else f"{first:,}-{end - 1:,}"


FREQUENCIES = {_bin(first, end): range(first, end) for first, end in pairwise(_FREQUENCIES)}
"""Bins of frequencies, those of the authors' code."""


class Error(NamedTuple):
    """A translation with one error."""

    type: str
    wrong: str
    distance: int | None
    """Words between the words that depend on each other; None if a single word is wrong."""
    frequency: int | None
    """Frequency of the word in the training text of the authors; None if it is not stated."""


class ContrastiveSentence(NamedTuple):
    """A source, its translation, and translations with one error."""

    source: str
    right: str
    errors: tuple[Error, ...]


def embedded_sentences(target: Language, number: int) -> list[ContrastiveSentence]:
    """Return minimal pairs of the embedded grammar, whose verb has the wrong number."""
    pairs = contrasts(target, number)
    return [ContrastiveSentence(pair.source, pair.right, (Error(AGREEMENT, pair.wrong, pair.distance, None),)) for pair in pairs]


def embedded_distances(target: Language) -> dict[str, range]:
    """Return the bands of distances of the embedded grammar by name."""
    return {label(band): band for band in bands(target)}


def read_contrasts(path: Path) -> list[ContrastiveSentence]:
    """Return the sentences of a file in the form of LingEval97. Raises DataError for a file in another form."""
    try:
        entries = json_value(read_bounded(path, MAX_BYTES))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: expected JSON in the form of LingEval97, got: {error}; check evaluation.contrastive_pairs"
        ) from error
    if not isinstance(entries, list) or not entries:
        raise _wrong(path, "", "a list of maps with source, reference and errors", entries)
    return [_sentence(path, f"entry {number}: ", entry) for number, entry in enumerate(entries, 1)]


def _sentence(path: Path, place: str, entry: Any) -> ContrastiveSentence:
    errors = _value(path, place, entry, "errors", list)
    return ContrastiveSentence(
        _value(path, place, entry, "source", str),
        _value(path, place, entry, "reference", str),
        tuple(_error(path, f"{place}errors[{number}]: ", error) for number, error in enumerate(errors)),
    )


def _error(path: Path, place: str, error: Any) -> Error:
    return Error(
        _value(path, place, error, "type", str),
        _value(path, place, error, "contrastive", str),
        _count(path, place, error, "distance"),
        _count(path, place, error, "frequency"),
    )


def _value(path: Path, place: str, entry: Any, key: str, kind: type) -> Any:
    if not isinstance(entry, Mapping) or not isinstance(entry.get(key), kind):
        raise _wrong(path, place, f"a map whose {key} is a {'text' if kind is str else 'list'}", entry)
    return entry[key]


def _count(path: Path, place: str, error: Mapping[str, Any], key: str) -> int | None:
    """Return a count, which may be written as a text; None if it is not stated."""
    value = error.get(key)
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(path, f"{place}{key}: ", "a whole number from 0", value)
    return value


def _wrong(path: Path, place: str, expected: str, got: object) -> DataError:
    shown = json.dumps(got, ensure_ascii=False)
    shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
    return DataError(f"{path}: {place}expected {expected}, as in LingEval97, got {shown}; check evaluation.contrastive_pairs")
