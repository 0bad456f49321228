"""The lead baseline of summarization: the first sentences of a document as its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from stages.shared.decoding.sentences import Sentence
from stages.shared.scoring.rouge import ROUGE, f_measures, sentences, tokens_of


@dataclass(frozen=True)
class Lead:
    """The lead baseline of a test set."""

    sentences: int
    """Sentences of a summary: the mean number of sentences of a reference."""
    scores: dict[str, float]
    """ROUGE scores by metric."""


def lead_of(rows: Sequence[Sentence], metrics: Mapping[str, Mapping[str, Any]]) -> Lead:
    """Score the lead baseline with the ROUGE metrics among `metrics` (of an entry), computed as their signatures state."""
    references = [row.references for row in rows]
    count = max(1, round(fmean(len(sentences(text)) for texts in references for text in texts)))
    leads = [" ".join(sentences(row.source)[:count]) for row in rows]
    tokens = {name: tokens_of(metrics[name]["signature"]) for name in ROUGE if name in metrics}
    return Lead(count, {name: round(fmean(f_measures(name, how, leads, references)), 4) for name, how in tokens.items()})
