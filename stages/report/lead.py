"""What the first sentences of documents score as their summaries: what a system must beat to be of use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from stages.decoding.sentences import Sentence
from stages.score.rouge import ROUGE, f_measures, sentences, tokens_of


@dataclass(frozen=True)
class Lead:
    """The first sentences of each document of a test set as its summary."""

    sentences: int
    """So many as a reference has on average."""
    scores: dict[str, float]
    """ROUGE by metric."""


def lead_of(rows: Sequence[Sentence], metrics: Mapping[str, Mapping[str, Any]]) -> Lead:
    """Scored by those of the `metrics` of an entry that are ROUGE, as their signatures say."""
    references = [row.references for row in rows]
    count = max(1, round(fmean(len(sentences(text)) for texts in references for text in texts)))
    leads = [" ".join(sentences(row.source)[:count]) for row in rows]
    tokens = {name: tokens_of(metrics[name]["signature"]) for name in ROUGE if name in metrics}
    return Lead(count, {name: round(fmean(f_measures(name, how, leads, references)), 4) for name, how in tokens.items()})
