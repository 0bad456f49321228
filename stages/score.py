"""Score hypotheses against references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.artifacts import Hypotheses, Scores, Text
from stages.stage import Stage, Work


@dataclass(frozen=True)
class ScoreInputs:
    hypotheses: Hypotheses
    text: Text


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """Which metrics are computed, and how."""

    target_language: str
    """Language code of the hypotheses; chooses sacreBLEU's tokeniser."""
    tokenizer: Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"] = "auto"
    """sacreBLEU tokeniser; auto follows the target language."""
    lowercase: bool = False
    """Compare without case (`-lc`)."""
    metrics: tuple[Literal["bleu", "chrf", "ter", "tokenized_bleu", "compound_split_bleu"], ...] = (
        "bleu",
        "chrf",
        "ter",
        "tokenized_bleu",
    )
    """Metrics to compute."""


def run(inputs: ScoreInputs, config: ScoreConfig, work: Work) -> None: ...


STAGE = Stage(name="score", version=1, run=run, output=Scores)
