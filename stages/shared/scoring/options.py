"""Options of comparisons with references, as the stages and the config declare them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
