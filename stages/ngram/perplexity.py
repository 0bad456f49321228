"""The perplexity of a text under an n-gram model, measured with KenLM."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fewstep.ngram import SEPARATORS, Perplexity
from kernels import NgramModel
from stages.context import Context
from stages.errors import StageError

TOLERANCE = 1e-4
"""Largest mean difference between the log-probabilities of words from the model and from KenLM."""


def measure(model: NgramModel, fitted: dict[str, Any], arpa: Path, lines: Path, context: Context) -> None:
    """Report the perplexity and the unknown words of `lines` as metrics and as a table.

    Raises StageError when KenLM, given the ARPA file of the same model, does not agree with the model.
    """
    found = model.perplexity(lines, threads=context.resources.threads)
    theirs = kenlm_perplexity(arpa, lines)
    same = (found.words, found.unknown) == (theirs.words, theirs.unknown)
    if not same or abs(found.log_prob - theirs.log_prob) > TOLERANCE * found.words:
        raise StageError(
            f"{arpa}: expected the perplexity that KenLM computes, {theirs}, got {found}; this is a defect, please report it"
        )
    context.metrics(
        0,
        {
            "perplexity": theirs.perplexity,
            "perplexity_without_unknown": theirs.known_perplexity,
            "unknown_rate": theirs.unknown_rate,
        },
    )
    context.write_json(context.records("tables", "ngram.json"), _table(model, fitted, theirs))


def kenlm_perplexity(arpa: Path, lines: Path) -> Perplexity:
    """Return the perplexity that the kenlm package computes with an ARPA file, sentence by sentence, with `</s>`."""
    import kenlm

    quiet = kenlm.Config()
    quiet.show_progress = False
    quiet.arpa_complain = kenlm.ARPALoadComplain.NONE
    model = kenlm.Model(str(arpa), quiet)
    sentences = words = unknown = 0
    log_prob = unknown_log_prob = 0.0
    for sentence in _sentences(lines):
        state, following = kenlm.State(), kenlm.State()
        model.BeginSentenceWrite(state)
        for word in (*sentence, "</s>"):
            scored = model.BaseFullScore(state, word, following)
            state, following = following, state
            log_prob += scored.log_prob
            unknown += scored.oov
            unknown_log_prob += scored.log_prob * scored.oov
        sentences += 1
        words += len(sentence) + 1
    log10 = math.log(10)
    return Perplexity(sentences, words, unknown, log_prob * log10, unknown_log_prob * log10)


def _sentences(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield [word for word in SEPARATORS.split(line) if word]


def _table(model: NgramModel, fitted: dict[str, Any], found: Perplexity) -> dict[str, Any]:
    discounts = fitted["discounts"] or [("", "", "")] * model.order
    rows = [
        [str(order), f"{count:,}", *(f"{value:.3f}" if value != "" else "" for value in values)]
        for order, (count, values) in enumerate(zip(model.counts, discounts, strict=True), 1)
    ]
    caption = (
        f"Perplexity {found.perplexity:.2f} ({found.known_perplexity:.2f} without unknown words) of {found.sentences:,} validation "
        f"sentences with {found.words:,} words including ends of sentences, of which {100 * found.unknown_rate:.2f}% are unknown. "
        "Measured with KenLM."
    )
    return {"title": "Language model", "caption": caption, "columns": ["Order", "n-grams", "D1", "D2", "D3+"], "rows": rows}
