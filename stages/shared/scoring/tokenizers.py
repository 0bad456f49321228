"""Tokenisers of sacreBLEU and others, and BLEU with one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fewstep.text.languages import WITHOUT_SPACES, base_code
from fewstep.text.subwords import join_subwords
from stages.errors import DataError
from stages.shared.scoring.kytea import KYTEA, words

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

TOKENIZERS = dict.fromkeys(WITHOUT_SPACES, "char") | {"zh": "zh", "yue": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
"""Tokenisers by target language; 13a for all other languages. To 13a a sentence without spaces would be a single word."""

SUBWORDS = "subwords"
"""The tokeniser of text that is split already: subwords are joined, and tokens are separated by spaces."""

OWN = {SUBWORDS: join_subwords, KYTEA: words}
"""Tokenisers that sacreBLEU does not have."""

EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
"""Optional dependencies of sacreBLEU by tokeniser."""


def tokenizer_of(language: str) -> str:
    """Return the name of sacreBLEU's tokeniser for a language code such as `de`, `zh-CN` or `jpn`."""
    return TOKENIZERS.get(base_code(language), "13a")


def tokenizer_for(choice: str, language: str) -> str:
    """Return the tokeniser that the value `choice` of a config means for a target language: `auto`, or a name of sacreBLEU's."""
    return tokenizer_of(language) if choice == "auto" else choice


def tokenizer_in(signature: str) -> str:
    """Return the tokeniser's name in a signature of sacreBLEU, which may add versions: `tok:ja-mecab-0.996-IPA` has `ja-mecab`."""
    noted = dict(part.split(":", 1) for part in signature.split("|"))["tok"]
    return next((name for name in EXTRAS if noted.startswith(name)), noted)


def bleu_metric(tokenizer: str, lowercase: bool, *, effective_order: bool = False) -> Metric:
    """Return sacreBLEU's BLEU with a tokeniser. Raises DataError if the tokeniser is not installed; KyTea is looked for when it
    splits a text."""
    from sacrebleu.metrics import BLEU

    if own := OWN.get(tokenizer):
        metric = BLEU(tokenize="none", lowercase=lowercase, effective_order=effective_order, force=True)
        metric.tokenizer = own
        metric.tokenizer_signature = tokenizer
        return metric
    try:
        return BLEU(tokenize=tokenizer, lowercase=lowercase, effective_order=effective_order, force=True)
    except (RuntimeError, ImportError) as error:
        extra = EXTRAS.get(tokenizer, tokenizer)
        raise DataError(
            f"evaluation: tokeniser {tokenizer} needs an optional package that is not installed;"
            f' run: pip install "sacrebleu[{extra}]"'
        ) from error


def sentence_bleu(tokenizer: str) -> Callable[[str, str], float]:
    """Return the sentence BLEU of sacreBLEU with one reference (exponential smoothing, effective order).

    Raises DataError for a tokeniser that is not installed.
    """
    metric = bleu_metric(tokenizer, False, effective_order=True)
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)


def sacrebleu_tokenizer(name: str) -> Callable[[str], str]:
    """Return sacreBLEU's tokeniser `name`, which inserts spaces between tokens. Raises DataError if it is not installed."""
    tokenize: Callable[[str], str] = bleu_metric(name, False).tokenizer
    return tokenize
