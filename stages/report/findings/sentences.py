"""The sentences of test sets with all hypotheses and their scores, in a compact form for the page's browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stages.report.findings.results import Findings, Outputs, Row
from stages.report.findings.significance import comparison_of
from stages.shared.scoring.metrics import Comparison, build_metric
from stages.shared.scoring.rouge import f_measures, tokens_of

ScoreOf = Callable[[str, Sequence[str]], float]
"""A function from a hypothesis and its references to the score of the sentence, 0 to 100."""


def compact(findings: Findings, test: str) -> dict[str, Any]:
    """Return the sentences of a test set as values for JSON.

    A row is `[source, references, texts, scores, indices]`: the distinct hypotheses of the sentence, their scores, and the
    index of the hypothesis of each entry. Systems often agree, so the texts are a fraction of all hypotheses.
    """
    outputs, rows = findings.outputs[test], findings.of(test)
    name, score_of = sentence_metric(rows)
    return {
        "test": test,
        "metric": name,
        "entries": list(outputs.hypotheses),
        "baseline": next((row.entry for row in rows if row.baseline), rows[0].entry),
        "rows": [_row(outputs, index, score_of) for index in range(len(outputs.sentences))],
    }


def sentence_metric(rows: Sequence[Row]) -> tuple[str, ScoreOf]:
    """Return the name and the function of the metric by which single sentences are compared: ROUGE-L where it was computed, else
    chrF++, which is meaningful for a sentence where BLEU is not."""
    metrics = rows[0].metrics
    if "rougeL" in metrics:
        tokens = tokens_of(metrics["rougeL"]["signature"])
        return "ROUGE-L", lambda text, references: f_measures("rougeL", tokens, [text], [references])[0]
    default = Comparison(language="", tokenizer="13a", lowercase=False)
    chrf: Any = build_metric("chrf", comparison_of(metrics["chrf"]["signature"]) if "chrf" in metrics else default)
    return "chrF++", lambda text, references: float(chrf.sentence_score(text, list(references)).score)


def _row(outputs: Outputs, index: int, score_of: ScoreOf) -> list[Any]:
    sentence = outputs.sentences[index]
    hypotheses = [texts[index] for texts in outputs.hypotheses.values()]
    texts = list(dict.fromkeys(hypotheses))
    scores = [round(score_of(text, sentence.references), 1) for text in texts]
    return [sentence.source, list(sentence.references), texts, scores, [texts.index(text) for text in hypotheses]]
