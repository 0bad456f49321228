"""ROUGE (Lin 2004) with the package rouge-score: the mean of the F1 of each hypothesis with its best reference."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fewstep.text.languages import base_code
from stages.shared.scoring.tokenizers import sacrebleu_tokenizer

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
"""Metrics of unigrams, bigrams, the longest common subsequence of texts, and that of the sentences of texts."""

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")


def sentences(text: str) -> list[str]:
    """Split a text into sentences at their final punctuation."""
    return [sentence for sentence in _SENTENCE_ENDS.split(text) if sentence]


def tokens_name(language: str, tokenizer: str) -> str:
    """Return the name of ROUGE's words in signatures.

    `english`: letters a to z and digits with Porter stemming, as in rouge-score. `words`: letters, marks and digits of any script,
    for other languages. With a `tokenizer` other than 13a, its name.
    """
    if tokenizer != "13a":
        return tokenizer
    return "english" if base_code(language) == "en" else "words"


def tokens_of(signature: str) -> str:
    """Return the name of the words in a signature."""
    return dict(part.split(":", 1) for part in signature.split("|"))["tok"]


def words(text: str) -> list[str]:
    """Split a text into lower-cased runs of letters, marks and digits."""
    return "".join(letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in text.lower()).split()


class _Words:
    """A tokeniser for rouge-score."""

    def __init__(self, tokenize: Callable[[str], list[str]]) -> None:
        self.tokenize = tokenize


@cache
def _scorer(metric: str, tokens: str) -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    if tokens == "english":
        tokenizer: Any = DefaultTokenizer(use_stemmer=True)
    elif tokens == "words":
        tokenizer = _Words(words)
    else:
        split = sacrebleu_tokenizer(tokens)
        tokenizer = _Words(lambda text: split(text.lower()).split())
    return RougeScorer([metric], tokenizer=tokenizer)


def f_measures(metric: str, tokens: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Return the F1 of each hypothesis, 0 to 100.

    `tokens` is a result of `tokens_name`; `references` holds the references of each sentence. Raises DataError for a tokeniser that
    is not installed.
    """
    scorer = _scorer(metric, tokens)
    lines = _one_sentence_per_line if metric == "rougeLsum" else str
    return [
        100 * float(scorer.score_multi([lines(text) for text in texts], lines(hypothesis))[metric].fmeasure)
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]


def _one_sentence_per_line(text: str) -> str:
    """The text in the form in which rouge-score finds its sentences."""
    return "\n".join(sentences(text))


def score(
    metric: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str, tokenizer: str
) -> dict[str, Any]:
    """Return `score`, the mean F1 over the corpus, and `signature`."""
    tokens = tokens_name(language, tokenizer)
    values = f_measures(metric, tokens, hypotheses, references)
    return {"score": round(fmean(values), 4) if values else 0.0, "signature": _signature(metric, tokens, references)}


def _signature(metric: str, tokens: str, references: Sequence[Sequence[str]]) -> str:
    counts = sorted({len(texts) for texts in references})
    parts = {
        "nrefs": str(counts[0]) if len(counts) == 1 else "var",
        "case": "lc",
        "tok": tokens,
        "stem": "porter" if tokens == "english" else "no",
        **({"sentences": "punctuation"} if metric == "rougeLsum" else {}),
        "version": f"rouge-score-{metadata.version('rouge-score')}",
    }
    return "|".join(f"{name}:{value}" for name, value in parts.items())
