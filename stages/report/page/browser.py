"""The browser over all test sentences. Without scripts it shows some of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.report.findings.results import Findings, Outputs, Row
from stages.report.findings.significance import comparison_of
from stages.report.page.markup import Markup, Section, element, join
from stages.report.page.results_table import dot
from stages.shared.figures.canvas import page_colour
from stages.shared.figures.drawing import Colours
from stages.shared.scoring.metrics import Comparison, build_metric
from stages.shared.scoring.rouge import f_measures, tokens_of
from stages.shared.statistics import evenly_spaced


def browser(findings: Findings) -> Section:
    """Return the browser: its controls, a list of samples, and the data of all sentences as JSON."""
    tests = [compact(findings, test) for test in findings.outputs]
    data = {
        "tests": tests,
        "colours": {system: page_colour(colour) for system, colour in findings.colours.items()},
        "unit": findings.task.unit,
    }
    note = (
        "Words that are in no reference are ",
        element("mark", "marked"),
        f"; they may still be correct. Scores of single {findings.task.unit}s are {tests[0]['metric']}.",
    )
    samples = [_sample(outputs, index, findings.colours) for outputs, index in _chosen(findings)]
    parts = [
        element("p", *note, class_="note"),
        element("form", id="controls", class_="controls", hidden="hidden", aria_label="Selection of sentences"),
        element("p", "", id="found", class_="note", role="status"),
        element("div", *samples, id="sentences"),
        element("script", _json(data), type="application/json", id="data"),
    ]
    return Section("sentences", f"{findings.task.outputs.capitalize()} side by side", parts, "Sentences")


def _json(data: Mapping[str, Any]) -> Markup:
    """Return JSON that cannot end the script element which holds it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _chosen(findings: Findings) -> list[tuple[Outputs, int]]:
    return [
        (outputs, index)
        for outputs in findings.outputs.values()
        for index in evenly_spaced(len(outputs.sentences), findings.samples)
    ]


def _sample(outputs: Outputs, index: int, colours: Colours) -> Markup:
    sentence = outputs.sentences[index]
    given = [element("dt", "source"), element("dd", sentence.source)]
    for reference in sentence.references:
        given += [element("dt", "reference"), element("dd", reference)]
    known = {_bare(word) for reference in sentence.references for word in reference.split()}
    made = []
    for entry, texts in outputs.hypotheses.items():
        name = element("dt", dot(entry.partition("/")[0], colours), entry)
        made += [name, element("dd", _marked(texts[index], known))]
    return element("div", element("dl", *given, class_="given"), element("dl", *made), class_="sample")


def _marked(text: str, known: set[str]) -> Markup:
    if not text.strip():
        return element("span", "(nothing)", class_="faint")
    words = text.split()
    if len(words) == 1 and len(known) == 1:  # a language without spaces
        return join([text])
    return join([word if not _bare(word) or _bare(word) in known else element("mark", word) for word in words], " ")


def _bare(word: str) -> str:
    return "".join(letter for letter in word.casefold() if letter.isalnum())


ScoreOf = Callable[[str, Sequence[str]], float]
"""A function from a hypothesis and its references to the score of the sentence, 0 to 100."""


def compact(findings: Findings, test: str) -> dict[str, Any]:
    """Return the sentences of a test set as values for JSON.

    A row is `[source, references, texts, scores, indices]`: the distinct hypotheses of the sentence, their scores, and the
    index of the hypothesis of each entry. Systems often agree, so the texts are a fraction of all hypotheses.
    """
    outputs = findings.outputs[test]
    rows = findings.of(test)
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
