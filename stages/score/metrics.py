"""The corpus metrics of a score step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stages.context import StepContext
from stages.score import ScoreConfig, ScoreInputs
from stages.score.comet import comet
from stages.shared.decoding.sentences import read_sentences
from stages.shared.scoring.comet import comet_score
from stages.shared.scoring.metrics import Comparison, score
from stages.shared.scoring.tokenizers import tokenizer_for


def comparison_for(config: ScoreConfig) -> Comparison:
    """Return the conditions under which hypotheses are compared with references. Raises DataError for an unknown tokeniser."""
    tokenizer = tokenizer_for(config.tokenizer, config.target_language)
    return Comparison(language=config.target_language, tokenizer=tokenizer, lowercase=config.lowercase)


def compute_metrics(
    inputs: ScoreInputs,
    config: ScoreConfig,
    how: Comparison,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    context: StepContext,
) -> dict[str, Any]:
    """Return `{score, signature, ...}` of each metric of the config, and of COMET if the inputs have its model.

    Raises DataError for a tokeniser that is not installed, and what `comet` raises.
    """
    scores: dict[str, Any] = {}
    for done, name in enumerate(config.metrics):
        context.progress(done, len(config.metrics), "metrics")
        scores[name] = score(name, hypotheses, references, how)
    if inputs.comet is not None:
        sentences = read_sentences(inputs.text.path)
        scores["comet"] = comet(comet_score(config.comet_program, "evaluation"), inputs.comet, sentences, hypotheses, context)
    context.progress(len(config.metrics), len(config.metrics), "metrics")
    return scores
