"""sacreBLEU's tokenisers, and BLEU with one of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from stages.errors import DataError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
"""sacreBLEU's tokeniser by target language; 13a for all others."""

EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
"""Optional part of sacreBLEU that a tokeniser needs."""


def tokenizer_of(language: str) -> str:
    """sacreBLEU's tokeniser for a language code such as `de`, `zh-CN` or `ja`."""
    return TOKENIZERS.get(re.split("[-_]", language.lower())[0], "13a")


def bleu_metric(tokenizer: str, lowercase: bool, *, effective_order: bool = False) -> Metric:
    from sacrebleu.metrics import BLEU

    try:
        return BLEU(tokenize=tokenizer, lowercase=lowercase, effective_order=effective_order, force=True)
    except (RuntimeError, ImportError) as error:
        extra = EXTRAS.get(tokenizer, tokenizer)
        raise DataError(
            f"evaluation: tokeniser {tokenizer} needs an optional package that is not installed;"
            f' run: pip install "sacrebleu[{extra}]", or choose another tokenizer (char, for one)'
        ) from error


def sentence_bleu(tokenizer: str) -> Callable[[str, str], float]:
    """sacreBLEU's BLEU of one sentence and one reference, exponentially smoothed, of the orders that the sentence has. Raises
    DataError for a tokeniser that is not installed."""
    metric = bleu_metric(tokenizer, False, effective_order=True)
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)


def sacrebleu_tokenizer(name: str) -> Callable[[str], str]:
    """sacreBLEU's tokeniser called `name`, which puts a space between tokens. Raises DataError for one that is not installed."""
    tokenize: Callable[[str], str] = bleu_metric(name, False).tokenizer
    return tokenize
