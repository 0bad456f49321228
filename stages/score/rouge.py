"""ROUGE (Lin 2004) by the rouge-score package: F1 of each pair, of several references the best, and its mean over a corpus."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from statistics import fmean
from typing import TYPE_CHECKING, Any

from stages.score.tokenizers import sacrebleu_tokenizer

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
"""N-grams of one and two words, longest common subsequence of whole texts, and of the sentences of texts."""

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")


def sentences(text: str) -> list[str]:
    """The sentences of a text, as far as their last characters tell."""
    return [sentence for sentence in _SENTENCE_ENDS.split(text) if sentence]


def tokens_name(language: str, tokenizer: str) -> str:
    """What ROUGE's words are called in signatures.

    `english`: letters a to z and digits, Porter-stemmed, as rouge-score has them. `words`: letters, marks and digits of any
    script, for other languages. Where `tokenizer` is not sacreBLEU's usual one (13a) it is that one.
    """
    if tokenizer != "13a":
        return tokenizer
    return "english" if re.split("[-_]", language.lower())[0] == "en" else "words"


def tokens_of(signature: str) -> str:
    """The name of the words that a score with this signature rests on."""
    return dict(part.split(":", 1) for part in signature.split("|"))["tok"]


def words(text: str) -> list[str]:
    """Runs of letters, marks and digits, in lower case."""
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
    """F1 of each hypothesis, 0 to 100. `tokens` is a name that `tokens_name` gives; `references` holds those of each sentence.

    Raises DataError for a tokeniser that is not installed.
    """
    scorer = _scorer(metric, tokens)
    lines = _each_on_a_line if metric == "rougeLsum" else str
    return [
        100 * float(scorer.score_multi([lines(text) for text in texts], lines(hypothesis))[metric].fmeasure)
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]


def _each_on_a_line(text: str) -> str:
    """What rouge-score takes for the sentences of a text."""
    return "\n".join(sentences(text))


def score(
    metric: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str, tokenizer: str
) -> dict[str, Any]:
    """`score`, the mean F1 over the corpus, and `signature`."""
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
