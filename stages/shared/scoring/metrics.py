"""Corpus metrics with signatures: those of sacreBLEU, ROUGE, tokenised BLEU, OTEM and UTEM."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fewstep.text.languages import base_code
from fewstep.text.subwords import join_subwords
from stages.shared.scoring import kytea, rouge
from stages.shared.scoring.ngram_metrics import OVER, UNDER, otem, utem
from stages.shared.scoring.tokenizers import SUBWORDS, bleu_metric, sacrebleu_tokenizer, tokenizer_of

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric, Score


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Language, tokeniser and case of a comparison of hypotheses with references."""

    language: str
    tokenizer: str
    lowercase: bool


def build_metric(name: str, how: Comparison) -> Metric:
    """Return the metric `name` of sacreBLEU. Tokenised metrics expect text that was prepared with `preparation`."""
    from sacrebleu.metrics import CHRF, TER

    if name == "chrf":
        return CHRF(word_order=2, lowercase=how.lowercase)
    if name == "ter":
        asian = tokenizer_of(how.language) in ("zh", "ja-mecab")
        return TER(case_sensitive=not how.lowercase, normalized=asian, asian_support=asian)
    return bleu_metric(how.tokenizer if name == "bleu" else "none", how.lowercase)


def split_compounds(tokenized: str) -> str:
    """Split compounds of Moses tokens: `rich-text format` -> `rich ##AT##-##AT## text format` (GNMT, Wu et al. 2016)."""
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenized)


def whole_words(how: Comparison, texts: Sequence[str]) -> list[str]:
    """Return texts with their subwords joined, if they are split already. The words of KyTea are read here, for all texts."""
    if how.tokenizer == kytea.KYTEA:
        kytea.read([*texts, *(text.lower() for text in texts if how.lowercase)])
    return list(map(join_subwords, texts)) if how.tokenizer == SUBWORDS else list(texts)


def preparation(name: str, how: Comparison) -> tuple[Callable[[str], str], str]:
    """Return the function that prepares text for metric `name`, and its part of the signature.

    `tokenized_bleu` splits hyphens aggressively (Moses `-a`, as in fairseq's preparation of WMT14). `compound_split_bleu` tokenises
    without this option and then splits compounds, so that no hyphen is split twice. For Chinese, Japanese and Korean, which Moses
    does not tokenise, sacreBLEU's tokeniser of the language is used. Text that is split already has its tokens.
    """
    if how.tokenizer == SUBWORDS:
        return (split_compounds if name == "compound_split_bleu" else str), f"pre:{SUBWORDS}"
    if name not in ("tokenized_bleu", "compound_split_bleu"):
        return str, ""
    if how.tokenizer == kytea.KYTEA:
        return kytea.words, f"pre:{kytea.KYTEA}"
    language = how.language
    if (tokenizer := tokenizer_of(language)) != "13a":
        return sacrebleu_tokenizer(tokenizer), f"pre:{tokenizer}"
    import sacremoses

    moses = sacremoses.MosesTokenizer(lang=base_code(language))
    compounds = name == "compound_split_bleu"

    def tokenize(text: str) -> str:
        tokens = str(moses.tokenize(text, aggressive_dash_splits=not compounds, escape=False, return_str=True))
        return split_compounds(tokens) if compounds else tokens

    return tokenize, f"pre:moses{'' if compounds else '-a'}{'+compounds' if compounds else ''}-{sacremoses.__version__}"


def reference_streams(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """Convert references by sentence to the streams of sacreBLEU: a list for each reference, with None for missing references."""
    streams = max(map(len, references), default=1)
    return [[texts[k] if k < len(texts) else None for texts in references] for k in range(streams)]


def prepared(
    name: str, how: Comparison, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str | None]], str]:
    """Return hypotheses and reference streams that are prepared for metric `name`, and the part of the signature on it."""
    prepare, note = preparation(name, how)
    streams = reference_streams([[prepare(text) for text in texts] for texts in references])
    return [prepare(text) for text in hypotheses], streams, note


def score(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], how: Comparison) -> dict[str, Any]:
    """Return `score` and `signature` of a metric over a corpus; for BLEU also precisions, brevity penalty and lengths in tokens.

    `references` holds the references of each sentence, at least one. Raises DataError for a tokeniser that is not installed.
    """
    whole_words(how, [text for texts in references for text in texts])  # at once, in one run of KyTea
    hypotheses = whole_words(how, hypotheses)
    references = [whole_words(how, texts) for texts in references]
    if name in rouge.ROUGE:
        return rouge.score(name, hypotheses, references, how.language, how.tokenizer)
    if name in ("otem", "utem"):
        return _over_or_under(name, hypotheses, references, how)
    metric = build_metric(name, how)
    texts, streams, note = prepared(name, how, hypotheses, references)
    result = metric.corpus_score(texts, streams)
    signature = "|".join(filter(None, [str(metric.get_signature()), note]))
    return {"score": round(float(result.score), 4), "signature": signature, **_lengths(result)}


def _over_or_under(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], how: Comparison) -> dict[str, Any]:
    """OTEM or UTEM, times 100, over the words of BLEU."""
    import sacrebleu

    words = word_splitter(how)
    function, order = (otem, OVER) if name == "otem" else (utem, UNDER)
    value = function([words(text) for text in hypotheses], [[words(text) for text in texts] for texts in references])
    counts = {len(texts) for texts in references}
    signature = {
        "nrefs": "var" if len(counts) > 1 else str(max(counts, default=1)), "case": "lc" if how.lowercase else "mixed",
        "tok": how.tokenizer, "order": str(order), "smooth": "none", "version": sacrebleu.__version__,
    }  # fmt: skip
    return {"score": round(100 * value, 4), "signature": "|".join(f"{key}:{value}" for key, value in signature.items())}


def word_splitter(how: Comparison) -> Callable[[str], list[str]]:
    """Return the function that splits text into the words of BLEU. Raises DataError for a tokeniser that is not installed."""
    tokenize = bleu_metric(how.tokenizer, False).tokenizer
    return lambda text: str(tokenize(text.lower() if how.lowercase else text)).split()


def _lengths(result: Score) -> dict[str, Any]:
    if not hasattr(result, "precisions"):
        return {}
    return {
        "precisions": [round(float(value), 4) for value in result.precisions],
        "brevity_penalty": round(float(result.bp), 4),
        "hypothesis_length": int(result.sys_len),
        "reference_length": int(result.ref_len),
        "length_ratio": round(float(result.ratio), 4),
    }


def decoded(texts: Sequence[str]) -> list[str]:
    """Return texts with characters in place of entities such as `&apos;`, which Moses' tokeniser writes for special characters."""
    return [html.unescape(text) for text in texts]
