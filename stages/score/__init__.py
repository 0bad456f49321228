"""Score hypotheses against references."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from fewstep.config.bounds import Ge, MinLen
from stages.artifacts import ExternalFile, Hypotheses, Scores, System, Text
from stages.shared.scoring.options import ComparisonOptions
from stages.stage import OPERATIONAL, Implementation, Stage

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
    glossary: ExternalFile | None = None
    """Terms whose share in the hypotheses is counted."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(ComparisonOptions):
    """Metrics and analyses that a config chooses."""

    metrics: Annotated[tuple[MetricName, ...], MinLen(1)] = ("bleu", "chrf", "ter", "tokenized_bleu")
    """Metrics to compute."""
    head_and_tail: bool = False
    """Also compute the precision of the first and of the last words of hypotheses of long sentences."""
    long_sentences: Annotated[int, Ge(0)] = 30
    """Number of words in the reference above which a sentence is long."""
    length_bins: tuple[Annotated[int, Ge(1)], ...] = ()
    """Also compute BLEU by the length of the reference: the largest number of words of each bin, ascending, such as
    `[10, 20, 30]`; one more bin holds longer references. Empty: no bins."""
    source_length_bins: Annotated[int, Ge(0)] = 0
    """Also compute BLEU by the length of the source: the number of bins, of equal numbers of sentences."""
    repetition: bool = False
    """Also compute the share of tokens, and of words, that equal the one before them."""


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(ScoreOptions):
    """Metrics and analyses of hypotheses."""

    target_language: str
    """Language code of the hypotheses; determines the tokeniser."""
    diversity: bool = False
    """Compute the quality and the diversity of all hypotheses of a sentence."""
    placeholders: bool = False
    """Compute the share of sentences whose placeholders are kept; nothing for a text without placeholders."""
    comet_program: str = field(default="comet-score", metadata=OPERATIONAL)
    """The program `comet-score` of the environment of COMET: its path, or its name on PATH."""


STAGE: Stage[ScoreInputs, ScoreConfig, Scores] = Stage(name="score", version=5, run=Implementation(__name__), output=Scores)
