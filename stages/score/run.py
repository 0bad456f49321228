"""Run the score stage."""

from __future__ import annotations

from collections.abc import Sequence

from stages.context import StepContext
from stages.score import ScoreConfig, ScoreInputs
from stages.score.breakdown import (
    best_tokens,
    by_length,
    by_source_length,
    diversity,
    placeholders_kept,
    put_back,
    repeated,
    terms_honoured,
    tokens_of,
)
from stages.score.metrics import comparison_for, compute_metrics
from stages.shared.decoding.glossaries import glossary_of
from stages.shared.decoding.sentences import best_in_order, ranked_in_order, read_sentences
from stages.shared.scoring.metrics import decoded, word_splitter
from stages.shared.scoring.ngram_metrics import head_and_tail


def run(inputs: ScoreInputs, config: ScoreConfig, context: StepContext) -> None:
    """Write `scores.json` (metric name -> {score, signature, ...}), and optionally `head_and_tail.json`, `by_length.json`,
    `by_source_length.json`, `repetition.json`, `diversity.json`, `placeholders.json` and `terms.json`.

    Raises DataError for a tokeniser that is not installed, ArtifactError when hypotheses and text have different sentences, and
    what `comet` raises.
    """
    sentences = read_sentences(inputs.text.path)
    hypotheses = best_in_order(inputs.hypotheses, sentences)
    references: list[Sequence[str]] = [sentence.references for sentence in sentences]
    if config.decode_entities:
        hypotheses = decoded(hypotheses)
        references = [decoded(texts) for texts in references]
    how = comparison_for(config)
    scores = compute_metrics(inputs, config, how, hypotheses, references, context)
    context.metrics(0, {name: value["score"] for name, value in scores.items()})
    if config.head_and_tail:
        words = word_splitter(how)
        split = [[words(text) for text in texts] for texts in references]
        found = head_and_tail([words(text) for text in hypotheses], split, config.long_sentences)
        context.write_json(context.directory / "head_and_tail.json", found)
    if config.length_bins:
        words = word_splitter(how)
        lengths = [len(words(texts[0])) for texts in references]
        context.write_json(
            context.directory / "by_length.json", by_length(hypotheses, references, lengths, config.length_bins, how)
        )
    if config.source_length_bins:
        lengths = [len(sentence.source.split()) for sentence in sentences]
        found = by_source_length(hypotheses, references, lengths, config.source_length_bins, how)
        context.write_json(context.directory / "by_source_length.json", found)
    if config.repetition:
        words = word_splitter(how)
        first = [texts[0] for texts in references]
        counts = {
            "tokens": repeated(best_tokens(inputs.hypotheses)),
            "words": repeated([words(text) for text in hypotheses]),
            "reference_words": repeated([words(text) for text in first]),
        }
        if inputs.system is not None:
            counts["reference_tokens"] = repeated(tokens_of(inputs.system, first))
        context.write_json(context.directory / "repetition.json", counts)
    if config.diversity:
        ranked = ranked_in_order(inputs.hypotheses, sentences)
        context.write_json(context.directory / "diversity.json", diversity(ranked, references, how))
    sources, first = [sentence.source for sentence in sentences], [sentence.references[0] for sentence in sentences]
    outputs = best_in_order(inputs.hypotheses, sentences)
    if config.placeholders and (kept := placeholders_kept(sources, outputs, first, put_back(inputs.hypotheses, sentences))):
        context.write_json(context.directory / "placeholders.json", kept)
    if inputs.glossary is not None:
        found = terms_honoured(glossary_of(inputs.glossary), sources, outputs, first)
        context.write_json(context.directory / "terms.json", found)
    context.write_json(context.directory / "scores.json", scores)
