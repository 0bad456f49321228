"""Options of scoring, as stages and the config declare them: of comparisons with references, and of the choice among outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stages.stage import OPERATIONAL


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """How texts are compared with references."""

    tokenizer: Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none", "subwords", "kytea"] = "auto"
    """The tokeniser of sacreBLEU; auto selects it by the target language: `zh`, `ja-mecab`, `ko-mecab`, `char` for other languages
    without spaces such as Thai, and 13a for all others; for text that is split already it is `subwords`, which joins subwords
    that end in `@@` and splits at spaces (multi-bleu), in all metrics. `kytea` splits Japanese by the program KyTea, which is
    installed by itself. Validations of trainings always select it by the language.
    ROUGE uses the same tokeniser, except that it has its own word segmentation in place of 13a."""
    lowercase: bool = False
    """Compare without case (`-lc`); ROUGE always does."""
    decode_entities: bool = False
    """Replace entities such as `&apos;` and `&amp;`, which Moses' tokeniser writes, in hypotheses and references before they are
    compared. The report shows texts as they are."""


Choice = Literal["score", "reference", "mbr", "quality"]
QUALITY = {"quality": "below distillation.min_quality"}
"""Reason for a source without a target, and its name in reports."""


@dataclass(frozen=True, kw_only=True)
class TargetChoice:
    """The choice of a target among the outputs that pass the filters."""

    choose: Choice = "score"
    """The first output; the highest sentence BLEU against the target of the text; the least Bayes risk, which is the highest mean
    chrF, or score of a COMET model, against all outputs; or the highest score of a COMET model without references."""
    target_language: str = ""
    """Language code of the target, for the tokeniser of sentence BLEU, for filters and for prompts."""
    min_quality: float | None = None
    """With `quality`: lowest score of a target."""
    comet_program: str = field(default="comet-score", metadata=OPERATIONAL)
    """The program `comet-score` of the environment of COMET: its path, or its name on PATH."""
