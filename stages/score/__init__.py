"""Score hypotheses against references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.artifacts import ExternalFile, Hypotheses, Scores, System, Text
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
    comet: ExternalFile | None = None
    """Checkpoint of a COMET model, which adds the metric `comet`."""
    system: System | None = None
    """The system that wrote the hypotheses, whose vocabulary splits references into tokens (`repetition`)."""


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """Metrics and analyses of hypotheses."""

    target_language: str
    """Language code of the hypotheses; determines the tokeniser."""
    tokenizer: Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"] = "auto"
    """Tokeniser of sacreBLEU; `auto` follows the target language. ROUGE uses it too, except for 13a, which ROUGE replaces by its
    own words."""
    lowercase: bool = False
    """Ignore case (`-lc`). ROUGE always does."""
    decode_entities: bool = False
    """Replace entities such as `&apos;` in hypotheses and references before they are compared."""
    metrics: tuple[MetricName, ...] = ("bleu", "chrf", "ter", "tokenized_bleu")
    """Metrics to compute."""
    head_and_tail: bool = False
    """Compute the precision of the first and of the last words of hypotheses of long sentences."""
    long_sentences: int = 30
    """Number of words of the reference above which a sentence is long."""
    length_bins: tuple[int, ...] = ()
    """Compute BLEU by reference length: upper ends of the bins in words; a last bin holds longer references. Empty: no bins."""
    repetition: bool = False
    """Compute the share of tokens and words that equal the one before them."""
    diversity: bool = False
    """Compute the quality and the diversity of all hypotheses of a sentence."""


STAGE: Stage[ScoreInputs, ScoreConfig, Scores] = Stage(name="score", version=3, run=Implementation(__name__), output=Scores)
