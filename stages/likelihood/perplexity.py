"""How well an n-gram model predicts a text, by KenLM's own queries."""

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
"""By which the logarithm of a word's probability may differ from KenLM's, on average."""


def measure(model: NgramModel, fitted: dict[str, Any], arpa: Path, lines: Path, context: Context) -> None:
    """Perplexity and unknown words of `lines`, as metrics and in a table.

    Raises StageError where KenLM, which is asked about the ARPA file of the same model, does not agree with the model.
    """
    found, theirs = model.perplexity(lines, threads=context.resources.threads), kenlm_perplexity(arpa, lines)
    same = (found.words, found.unknown) == (theirs.words, theirs.unknown)
    if not same or abs(found.log_prob - theirs.log_prob) > TOLERANCE * found.words:
        raise StageError(
            f"{arpa}: expected of the model what KenLM says, {theirs}, got {found}; this is a defect, please report it"
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
    """What the kenlm package says of an ARPA file, sentence by sentence, `</s>` included."""
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
            said = model.BaseFullScore(state, word, following)
            state, following = following, state
            log_prob += said.log_prob
            unknown += said.oov
            unknown_log_prob += said.log_prob * said.oov
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
        f"sentences with {found.words:,} words, sentence ends among them; {100 * found.unknown_rate:.2f}% are unknown. "
        "Measured with KenLM."
    )
    return {"title": "Language model", "caption": caption, "columns": ["Order", "n-grams", "D1", "D2", "D3+"], "rows": rows}
