"""Score hypotheses against references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.artifacts import Hypotheses, Scores, Text
from stages.stage import Implementation, Stage

MetricName = Literal[
    "bleu",
    "chrf",
    "ter",
    "tokenized_bleu",
    "compound_split_bleu",
    "otem",
    "utem",
    "rouge1",
    "rouge2",
    "rougeL",
    "rougeLsum",
]


@dataclass(frozen=True)
class ScoreInputs:
    hypotheses: Hypotheses
    text: Text


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """Which metrics are computed, and how."""

    target_language: str
    """Language code of the hypotheses; chooses the tokeniser."""
    tokenizer: Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"] = "auto"
    """sacreBLEU tokeniser; auto follows the target language. ROUGE takes it too, but has words of its own in place of 13a."""
    lowercase: bool = False
    """Compare without case (`-lc`); ROUGE always does."""
    metrics: tuple[MetricName, ...] = ("bleu", "chrf", "ter", "tokenized_bleu")
    """Metrics to compute."""
    head_and_tail: bool = False
    """Also the precision of the first and of the last words of hypotheses of long sentences?"""
    long_sentences: int = 30
    """Words of the reference above which a sentence is long."""
    length_bins: tuple[int, ...] = ()
    """Also BLEU by the length of the reference: bins of up to so many words, and one above the last; none: no bins."""
    diversity: bool = False
    """Also the quality of all hypotheses of a sentence, and how far they differ?"""


STAGE: Stage[ScoreInputs, ScoreConfig, Scores] = Stage(name="score", version=1, run=Implementation(__name__), output=Scores)
