"""Read pairs of text, normalise and filter them, and record why pairs are dropped in a ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from fewstep.config.bounds import Ge, Gt, Le, MinLen
from stages.artifacts import ExternalFile, Text
from stages.shared.tasks import TaskName
from stages.stage import Implementation, Stage, version


@dataclass(frozen=True)
class TextFiles:
    """The user's files of one text: `source` and `target`, or formats of both sides. Several files are concatenated in order."""

    source: tuple[ExternalFile, ...] = ()
    target: tuple[ExternalFile, ...] = ()
    references: tuple[tuple[ExternalFile, ...], ...] = ()
    """Further references of a test set. The files of each are concatenated in order."""
    tsv: tuple[ExternalFile, ...] = ()
    parquet: tuple[ExternalFile, ...] = ()
    po: tuple[ExternalFile, ...] = ()
    tmx: tuple[ExternalFile, ...] = field(default=(), metadata=version(2))
    xliff: tuple[ExternalFile, ...] = field(default=(), metadata=version(2))


@dataclass(frozen=True)
class CorpusInputs:
    files: TextFiles
    exclude: tuple[Text, ...] = ()
    """Validation and test texts. A training pair is dropped if one of its sides is in one of them."""


@dataclass(frozen=True, kw_only=True)
class FilterCommand:
    """A program that judges pairs: it reads a pair on each line, source and target with a tab between them."""

    command: Annotated[tuple[str, ...], MinLen(1)]
    """Program and arguments. There is no shell, and nothing is expanded."""
    version: Annotated[str, MinLen(1)]
    """Version of the program and of its models, in any words. It enters the fingerprint."""
    min_score: float | None = None
    """The program writes a line for each pair, whose last column is a score; pairs below this one are dropped (Bicleaner AI,
    LASER). Empty: the program writes the lines that are kept, as they are (rules of OpusCleaner)."""
    timeout_seconds: Annotated[float, Gt(0)] = 3600.0
    """Seconds after which the program has failed."""

    @property
    def place(self) -> str:
        """The program in messages."""
        return f"corpus.filters.commands: {self.command[0]}"


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Filters of training pairs. Lengths are in words separated by white space, or in characters for languages without spaces."""

    min_length: Annotated[int, Ge(1)] = 1
    """Shortest side that is kept, in words."""
    max_length: Annotated[int, Ge(1)] = 200
    """Longest side that is kept, in words."""
    max_word_characters: Annotated[int, Ge(1)] = 1000
    """Longest sequence of characters without a space that is kept. A longer one is data, such as base64, and no word; SentencePiece
    fails on the longest."""
    max_ratio: Annotated[float, Ge(1)] = 3.0
    """Largest ratio between the lengths of the sides, in characters. See `ratio`."""
    ratio: Literal["either", "target"] = "either"
    """The ratio that `max_ratio` limits: the longer side to the shorter (`either`), relative to the median of the text's first
    20,000 pairs, so that pairs of any two scripts are kept; or the target to the source as they are (`target`; the source may then
    be longer by any factor)."""
    min_letters: Annotated[float, Ge(0), Le(1)] = 0.5
    """Smallest fraction of letters among the non-space characters of each side."""
    drop_identical: bool = True
    """Drop pairs whose sides are equal."""
    drop_duplicates: bool = True
    """Drop repetitions of a pair."""
    max_other_language: Annotated[float, Gt(0), Le(1)] = 1.0
    """Largest probability that a side is in another language, as the package py3langid estimates it; 0.8 keeps short sentences
    that could be in several languages. 1 does not identify languages."""
    same_numbers: bool = False
    """Drop pairs whose sides do not have the same numbers in digits, whatever their separators."""
    same_urls: bool = False
    """Drop pairs whose sides do not have the same URLs."""
    commands: tuple[FilterCommand, ...] = ()
    """Programs that judge the pairs that all other filters but those of repetitions leave."""
    max_similarity: Annotated[float, Gt(0), Le(1)] = 1.0
    """Similarity above which a pair is dropped as a near-duplicate of an earlier one: the Jaccard similarity of their adjacent
    words, as the package datasketch estimates it (MinHash). Of a chain of similar pairs the first is kept. 1 drops no such
    pairs."""


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Languages, filters and embedded text of a corpus step."""

    source_language: str
    """Language code of the source side."""
    target_language: str
    """Language code of the target side."""
    embedded: int = 0
    """Number of pairs to draw from the embedded corpus of the task; 0 reads `files` instead."""
    task: TaskName = "translation"
    """Task of the embedded corpus: English-German sentences, or English documents with summaries."""
    part: str = "train"
    """Stream of the embedded corpus to draw from. Streams have different seeds."""
    filters: Filters | None = None
    """Filters of training text; None for validation and test texts, which are not filtered."""
    shard_rows: int = 4096
    """Pairs in a shard."""
    split: bool = False
    """Whether the text is split into tokens already; lines that are not are errors (`stages.corpus.filters`)."""

    @property
    def languages(self) -> tuple[str, str]:
        return self.source_language, self.target_language


STAGE: Stage[CorpusInputs, CorpusConfig, Text] = Stage(
    name="corpus", version=4, run=Implementation(__name__), output=Text, distributes=True
)
