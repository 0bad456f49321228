"""Read text in pairs, normalise it, filter it and keep a ledger of why pairs were dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from stages.artifacts import ExternalFile, Text
from stages.score.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class TextFiles:
    """The user's files of one text. Several files are joined in order. Exactly one way of giving them is used."""

    source: tuple[ExternalFile, ...] = ()
    target: tuple[ExternalFile, ...] = ()
    references: tuple[tuple[ExternalFile, ...], ...] = ()
    """Further references of a test set, each joined like `target`."""
    tsv: tuple[ExternalFile, ...] = ()
    parquet: tuple[ExternalFile, ...] = ()


@dataclass(frozen=True)
class CorpusInputs:
    files: TextFiles
    exclude: tuple[Text, ...] = ()
    """Validation and test texts: a training pair with a side found in one of them is dropped."""


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which training pairs are dropped. Lengths are words split at white space (characters for languages without spaces)."""

    min_length: Annotated[int, Ge(1)] = 1
    """Shortest side kept, in words."""
    max_length: Annotated[int, Ge(1)] = 200
    """Longest side kept, in words."""
    max_ratio: Annotated[float, Ge(1)] = 3.0
    """Largest ratio between the lengths of the two sides, in characters."""
    ratio: Literal["either", "target"] = "either"
    """Which ratio that is: of the longer side to the shorter, or of the target to the source, which may then be of any length."""
    min_letters: Annotated[float, Ge(0), Le(1)] = 0.5
    """Smallest fraction of non-space characters that are letters, on either side."""
    drop_identical: bool = True
    """Drop pairs whose sides are the same text."""
    drop_duplicates: bool = True
    """Keep only the first of exactly equal pairs."""


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """One text, as the corpus step sees it."""

    source_language: str
    """Language code of the source side."""
    target_language: str
    """Language code of the target side."""
    embedded: int = 0
    """Pairs drawn from the embedded corpus of the task; 0 reads `files` instead."""
    task: TaskName = "translation"
    """Which embedded corpus: English-German sentences, or English documents with summaries."""
    part: str = "train"
    """Which disjointly seeded stream of the embedded corpus to draw from."""
    filters: Filters | None = None
    """Filters of training text; validation and test texts are kept whole."""
    shard_rows: int = 4096
    """Pairs in a shard."""


STAGE: Stage[CorpusInputs, CorpusConfig, Text] = Stage(name="corpus", version=1, run=Implementation(__name__), output=Text)
