"""Filter parallel text pair by pair: everything that needs no other pair of the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fewstep.text.languages import WITHOUT_SPACES, base_code
from fewstep.text.subwords import CONTINUED
from stages.corpus import Filters
from stages.corpus.contents import judged, numbers, urls
from stages.corpus.language import OtherLanguage
from stages.corpus.ledger import OPTIONAL_REASONS, REASONS, Mask
from stages.errors import DataError
from stages.shared.normalise import map_matching, nfc

MARK = "\u2581"
"""The mark of SentencePiece for a space."""
_NUMBER = r"\p{N}"
_NOT_COMPARED = r"[^\p{L}\p{M}\p{N}]+"


def comparison_keys(texts: pa.StringArray) -> pa.StringArray:
    """Return keys that are equal for texts that differ only in case, punctuation, symbols and spacing.

    The key of a text without letters and digits is the text itself, so that only an empty text has an empty key.
    """
    return _keys(texts, _compared(texts))


def _compared(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(texts, _NOT_COMPARED, "")


def _keys(texts: pa.StringArray, compared: pa.StringArray) -> pa.StringArray:
    keys = pc.if_else(pc.equal(compared, ""), texts, compared)
    return nfc(pc.utf8_lower(map_matching(keys, _folded_specially(), str.casefold)))


@cache
def _folded_specially() -> str:
    """Return a pattern of the characters whose case folding is not their lower case, such as the sharp s, which folds to ss."""
    characters = (chr(code) for code in range(0x80, 0x110000) if not 0xD800 <= code < 0xE000)
    return "[" + "".join(c for c in characters if c.casefold() != c.lower() or len(c.lower()) > 1) + "]"


@dataclass(frozen=True)
class Cleaner:
    """The filters of one training text that look at one pair at a time, for pairs that `normalise` returned."""

    filters: Filters
    source_language: str
    target_language: str
    excluded: pa.StringArray
    """`comparison_keys` of all sides of validation and test texts."""
    usual_ratio: float
    """The text's own ratio of target to source lengths, in characters."""
    other_language: OtherLanguage | None = None

    @property
    def languages(self) -> tuple[str, str]:
        return self.source_language, self.target_language

    def masks(self, table: pa.Table) -> dict[str, Mask]:
        filters = self.filters
        sides = [table["source"].combine_chunks(), table["target"].combine_chunks()]
        characters = [_numpy(pc.utf8_length(side)) for side in sides]
        spaces = [_numpy(pc.count_substring(side, " ")) for side in sides]
        compared = [_compared(side) for side in sides]
        letters = [_numpy(pc.subtract(pc.utf8_length(text), pc.count_substring_regex(text, _NUMBER))) for text in compared]
        lengths = [_lengths(language, *counts) for language, *counts in zip(self.languages, characters, spaces, strict=True)]
        masks = {
            "empty": np.minimum(*characters) == 0,
            "length": (np.minimum(*lengths) < filters.min_length) | (np.maximum(*lengths) > filters.max_length),
            "word": np.logical_or(*map(self._has_long_word, self.languages, sides, characters)),
            "ratio": self._unequal(*characters),
            "letters": np.logical_or(
                *(
                    found < filters.min_letters * (length - space)
                    for found, length, space in zip(letters, characters, spaces, strict=True)
                )
            ),
            "overlap": np.logical_or(*(_among(_keys(*side), self.excluded) for side in zip(sides, compared, strict=True))),
        }
        if filters.drop_identical:
            masks["identical"] = _numpy(pc.equal(*sides))
        # These filters are slow, so that they see only what all others leave.
        for reason, found in self._later_filters():
            remaining = ~np.logical_or.reduce(list(masks.values()))
            pairs = table.filter(pa.array(remaining))
            mask = np.zeros(table.num_rows, bool)
            mask[remaining] = found(pairs["source"].to_pylist(), pairs["target"].to_pylist())
            masks[reason] = masks.get(reason, np.zeros(table.num_rows, bool)) | mask
        return {reason: masks[reason] for reason in (*REASONS, *OPTIONAL_REASONS) if reason in masks}

    def _has_long_word(self, language: str, texts: pa.StringArray, characters: Any) -> Mask:
        """Return which texts [N] have a word above the limit; none in a language that writes no spaces."""
        longest = self.filters.max_word_characters
        found = np.asarray(characters > longest)
        if base_code(language) in WITHOUT_SPACES:
            return np.zeros(len(found), bool)
        found[found] = [max(map(len, text.split())) > longest for text in texts.filter(pa.array(found)).to_pylist()]
        return found

    def _later_filters(self) -> Iterator[tuple[str, Callable[[list[str], list[str]], Mask]]]:
        """Yield the filters that look at pairs one by one and take time, each with its reason; they see what others leave."""
        if self.other_language:
            yield "language", self.other_language.mask
        if self.filters.same_numbers:
            yield "numbers", partial(_differing, numbers)
        if self.filters.same_urls:
            yield "urls", partial(_differing, urls)
        for command in self.filters.commands:
            yield "command", partial(judged, command)

    def _unequal(self, source: Any, target: Any) -> Mask:
        """Return for which lengths [N], in characters, the ratio is above the limit."""
        if self.filters.ratio == "target":
            return np.asarray(target > self.filters.max_ratio * source)
        expected = source * self.usual_ratio
        return np.asarray(np.maximum(expected, target) > self.filters.max_ratio * np.minimum(expected, target))


def _differing(count: Callable[[str], Counter[str]], sources: list[str], targets: list[str]) -> Mask:
    """Return for which pairs [N] `count` finds other things in the target than in the source."""
    return np.array([count(source) != count(target) for source, target in zip(sources, targets, strict=True)], bool)


def overlap(texts: pa.StringArray, excluded: pa.StringArray) -> Mask:
    """Return which texts [N] have a comparison key in `excluded`."""
    return _among(comparison_keys(texts), excluded)


def _among(keys: pa.StringArray, excluded: pa.StringArray) -> Mask:
    found: Mask = _numpy(pc.is_in(keys, excluded))
    return found


def _numpy(values: pa.Array) -> Any:
    return values.to_numpy(zero_copy_only=False)


def _lengths(language: str, characters: Any, spaces: Any) -> Any:
    """Return lengths in words, or in characters without spaces for a language of `WITHOUT_SPACES`."""
    return characters - spaces if base_code(language) in WITHOUT_SPACES else spaces + (characters > 0)


SAMPLE = 20_000
"""Pairs at the beginning of a text whose median is taken."""


def sampled_rows(batches: Iterable[int]) -> int:
    """Return the number of rows in the first batches of a text that hold `SAMPLE` rows, from the numbers of rows of all batches."""
    rows = 0
    for batch in batches:
        rows += batch
        if rows >= SAMPLE:
            break
    return rows


def usual_ratio(tables: Iterable[pa.Table]) -> float:
    """Return the median of target to source lengths, in characters, over the first `SAMPLE` pairs without an empty side; 1 for a
    text without pairs. The median of a few pairs is uncertain, but 1 would drop most pairs of two scripts."""
    ratios = np.concatenate([*map(_ratios, tables), np.empty(0)])[:SAMPLE]
    return float(np.median(ratios)) if len(ratios) else 1.0


def _ratios(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    source, target = (pc.utf8_length(table[side]).to_numpy().astype(np.float64) for side in ("source", "target"))
    both = (source > 0) & (target > 0)
    return np.asarray(target[both] / source[both])


def check_split(table: pa.Table, start: int, name: Callable[[str], str]) -> None:
    """Raise DataError for a line that is not split as by Moses and subword-nmt: with marks of SentencePiece, or with a subword at
    its end that continues. `start` rows of the text are before the table, and `name` maps a side to its first file."""
    for side in table.column_names:
        column = table[side].combine_chunks()
        for found, expected in (
            (pc.match_substring(column, MARK), f"tokens separated by spaces, without the mark {MARK} of SentencePiece"),
            (pc.match_substring_regex(column, rf"{CONTINUED}\s*$"), f"a whole word at the end of a line, without {CONTINUED}"),
        ):
            if (row := pc.index(found, True).as_py()) >= 0:
                line = column[row].as_py().rstrip()
                shown = line if len(line) <= 100 else f"...{line[-100:]}"
                raise DataError(
                    f"{name(side)}, pair {start + row + 1:,} ({side}): expected {expected}, got {shown!r}; split the text as by "
                    "subword-nmt, or choose a vocabulary of pieces (vocabulary.model: bpe)"
                )
