"""The outputs of a search: as token ids, and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from fewstep.text.sentences import Sentences


@dataclass(frozen=True)
class Hypothesis:
    """An output as target ids without BOS and EOS."""

    ids: list[int]
    score: float
    """The value that the search maximised, length penalty included; natural logarithm."""
    steps: int
    """Decoder calls until this sentence was finished."""
    statistics: dict[str, Any] = field(default_factory=dict)
    """`margin`: the smallest gap, in nats, between a candidate that the search kept and one that it dropped; below 1e-4 it is a
    near-tie. If requested, `confidences`: one number per token, in nats. Searches that draft add their counts."""


class Translation(NamedTuple):
    """An output as text: a translation, or a summary by a system that was trained for that.

    Numbers of a text of several sentences are sums over them, except for two statistics: `margin` is the lowest one, and
    `confidences` are those of all sentences.
    """

    text: str
    score: float
    """The value that the search maximised, length penalty included; natural logarithm."""
    steps: int
    """Decoder calls until the sentence was finished; 0 for a blank line."""
    statistics: Mapping[str, Any]
    """Statistics of the search (see `Hypothesis.statistics`)."""
    sentences: int = 1
    """Sentences of the source; 0 for a blank one."""
    cut: int = 0
    """Tokens of the source that the system did not read, because a sentence has more tokens than it can read."""
    unknown: tuple[str, ...] = ()
    """Pieces of the source that the vocabulary lacks, each once."""
    replaced: int = 0
    """Characters of the source that are U+FFFD, which stands for an invalid one."""
    put_back: int = 0
    """Placeholders and terms with masks that no hypothesis had, and that were put where they are likely to stand."""


class SourceTooLongError(ValueError):
    """A sentence with more tokens than the system can read, where cutting is refused."""

    def __init__(self, line: int, sentence: str, limit: int, found: int) -> None:
        self.line = line
        self.problem = f"expected sentences of at most {limit} tokens, got {found} ({sentence[:40]!r}); split it, or let it be cut"
        super().__init__(f"line {line}: {self.problem}")


def join(parts: Sequence[Sequence[Translation]], split: Sentences, language: str) -> list[Translation]:
    """Return the translations of a text, best first, from those of each of its sentences. `language` is that of the outputs.

    The i-th translation has the i-th of each sentence, or its last one.
    """
    if len(parts) == 1:
        return list(parts[0])
    count = max((len(ranked) for ranked in parts), default=1)
    return [_joined([ranked[min(rank, len(ranked) - 1)] for ranked in parts], split, language) for rank in range(count)]


def _joined(parts: Sequence[Translation], split: Sentences, language: str) -> Translation:
    return Translation(
        split.join([part.text for part in parts], language),
        sum((part.score for part in parts), 0.0),
        sum(part.steps for part in parts),
        _statistics([part.statistics for part in parts]),
        sum(part.sentences for part in parts),
        sum(part.cut for part in parts),
        tuple(dict.fromkeys(chain.from_iterable(part.unknown for part in parts))),
        sum(part.replaced for part in parts),
        sum(part.put_back for part in parts),
    )


def _statistics(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the statistics of a text from those of its sentences; searches give all sentences but blank ones the same names."""
    names = dict.fromkeys(chain.from_iterable(parts))
    return {name: _combined(name, [part[name] for part in parts if name in part]) for name in names}


def _combined(name: str, values: Sequence[Any]) -> Any:
    if name == "margin":
        return min(values)
    if name == "confidences":
        return list(chain.from_iterable(values))
    if isinstance(values[0], Sequence):  # counts by position
        return [sum(counts) for counts in zip_longest(*values, fillvalue=0)]
    return sum(values)
