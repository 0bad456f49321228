"""Score hypotheses against references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.artifacts import Hypotheses, Scores, Text
from stages.stage import Stage, Work

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


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """Which metrics are computed, and how."""

    target_language: str
    """Language code of the hypotheses; chooses the tokeniser."""
    tokenizer: Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"] = "auto"
    """sacreBLEU tokeniser; auto follows the target language. ROUGE takes it too, but has words of its own in place of 13a."""
    lowercase: bool = False
    """Compare without case (`-lc`); ROUGE always does."""
    metrics: tuple[MetricName, ...] = ("bleu", "chrf", "ter", "tokenized_bleu")
    """Metrics to compute."""
    head_and_tail: bool = False
    """Also the precision of the first and of the last words of hypotheses of long sentences?"""
    long_sentences: int = 30
    """Words of the reference above which a sentence is long."""
    length_bins: tuple[int, ...] = ()
    """Also BLEU by the length of the reference: bins of up to so many words, and one above the last; none: no bins."""
    diversity: bool = False
    """Also the quality of all hypotheses of a sentence, and how far they differ?"""


def run(inputs: ScoreInputs, config: ScoreConfig, work: Work) -> None:
    """Write `scores.json`: metric name -> {score, signature, ...}, and where they are asked for `head_and_tail.json`,
    `by_length.json` and `diversity.json`.

    Raises DataError for a tokeniser that is not installed, ArtifactError when hypotheses and text hold other sentences.
    """
    from stages.decoding.sentences import best_in_order, ranked_in_order, read_sentences
    from stages.ngram.counts import head_and_tail
    from stages.score.breakdown import by_length, diversity
    from stages.score.metrics import Comparison, score, tokenizer_of, word_splitter

    sentences = read_sentences(inputs.text.path)
    hypotheses = best_in_order(inputs.hypotheses, sentences)
    references = [sentence.references for sentence in sentences]
    tokenizer = tokenizer_of(config.target_language) if config.tokenizer == "auto" else config.tokenizer
    how = Comparison(language=config.target_language, tokenizer=tokenizer, lowercase=config.lowercase)
    scores = {}
    for done, name in enumerate(config.metrics):
        work.progress(done, len(config.metrics), "metrics")
        scores[name] = score(name, hypotheses, references, how)
    work.progress(len(config.metrics), len(config.metrics), "metrics")
    work.metrics(0, {name: value["score"] for name, value in scores.items()})
    if config.head_and_tail:
        words = word_splitter(how)
        split = [[words(text) for text in texts] for texts in references]
        found = head_and_tail([words(text) for text in hypotheses], split, config.long_sentences)
        work.write_json(work.directory / "head_and_tail.json", found)
    if config.length_bins:
        words = word_splitter(how)
        lengths = [len(words(texts[0])) for texts in references]
        work.write_json(work.directory / "by_length.json", by_length(hypotheses, references, lengths, config.length_bins, how))
    if config.diversity:
        ranked = ranked_in_order(inputs.hypotheses, sentences)
        work.write_json(work.directory / "diversity.json", diversity(ranked, references, how))
    work.write_json(work.directory / "scores.json", scores)


STAGE = Stage(name="score", version=1, run=run, output=Scores)
