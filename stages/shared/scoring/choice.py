"""Choose training targets among the outputs of a teacher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from stages.artifacts import ExternalFile
from stages.context import Context
from stages.errors import StageError
from stages.shared.scoring.comet import comet_score, sentence_scores
from stages.shared.scoring.options import TargetChoice
from stages.shared.scoring.tokenizers import sentence_bleu, tokenizer_of


class Candidates(NamedTuple):
    """The outputs for a source that may be its target."""

    source: str
    texts: Sequence[str]
    """At least one, the best of the search first."""
    reference: str = ""
    """The target of the text."""


Selector = Callable[[Sequence[Candidates]], list[int | None]]
"""Returns the index of the target of each source; None where none is good enough."""


def selector_of(choice: TargetChoice, comet: ExternalFile | None, context: Context) -> Selector | None:
    """Return the selector of a config, and None for the first output. A tie goes to the earlier output.

    `comet`: the model of `quality` and, if there is one, of `mbr`. Selectors raise what `sentence_scores` raises. Raises DataError
    for a language whose tokeniser is not installed.
    """
    if choice.choose == "reference":
        return nearest_to_references(choice.target_language)
    if choice.choose == "mbr" and comet is None:
        return lambda rows: [consensus(row.texts) for row in rows]
    if comet is None:
        return None
    judge = Judge(choice, comet, context)
    return judge.least_risk if choice.choose == "mbr" else judge.best


def nearest_to_references(language: str) -> Selector:
    """Return the selector of the highest sentence BLEU (sacreBLEU, exponential smoothing, effective order)."""
    bleu = sentence_bleu(tokenizer_of(language))

    def selected(rows: Sequence[Candidates]) -> list[int | None]:
        return [_first_best([bleu(text, row.reference) for text in row.texts]) for row in rows]

    return selected


class Judge:
    """A COMET model (Rei et al. 2020), which scores all outputs of many sources at once, since it is slow to load."""

    def __init__(self, choice: TargetChoice, model: ExternalFile, context: Context) -> None:
        self.choice = choice
        self.model = model
        self.context = context

    def best(self, rows: Sequence[Candidates]) -> list[int | None]:
        """Return the outputs with the highest scores of a model without references (Fernandes et al. 2022), None for those below
        `min_quality`."""
        scores = iter(self._scores([(row.source, text) for row in rows for text in row.texts]))
        lowest = self.choice.min_quality

        def of_row(row: Candidates) -> int | None:
            found = [next(scores) for _ in row.texts]
            return None if lowest is not None and max(found) < lowest else _first_best(found)

        return [of_row(row) for row in rows]

    def least_risk(self, rows: Sequence[Candidates]) -> list[int | None]:
        """Return the outputs with the highest mean score against all outputs of their source (Freitag et al. 2022), as `consensus`
        does with chrF. Raises StageError for a model whose scores do not depend on references."""
        weights = [Counter(row.texts) for row in rows]
        scores = self._scores(
            [(row.source, text, other) for row, found in zip(rows, weights, strict=True) for text in found for other in found]
        )
        values = iter(np.split(scores, np.cumsum([len(found) ** 2 for found in weights])[:-1]))
        tables = [next(values).reshape(len(found), len(found)) for found in weights]  # [texts, texts as references]
        several = [table for table in tables if len(table) > 1]
        if several and all((table == table[:, :1]).all() for table in several):
            raise StageError(
                f"{self.model.path}: expected a COMET model that compares with references, for distillation.choose: mbr, got the "
                "same score of an output for all references; name another model, or choose quality"
            )
        return [
            row.texts.index(list(found)[_first_best(table @ list(found.values()))])
            for row, found, table in zip(rows, weights, tables, strict=True)
        ]

    def _scores(self, rows: Sequence[tuple[str, ...]]) -> np.ndarray:
        """Return the scores [N] of rows of a source, an output and, where there is one, a reference."""
        if not rows:
            return np.empty(0)
        sources, outputs, *references = map(list, zip(*rows, strict=True))
        program = comet_score(self.choice.comet_program, "distillation")
        return np.array(sentence_scores(program, self.model, sources, outputs, references[0] if references else None, self.context))


def _first_best(values: Sequence[float] | np.ndarray) -> int:
    """Return the index of the highest value, the first one on a tie."""
    return int(np.argmax(values))


def consensus(texts: Sequence[str]) -> int:
    """Return the index of the text with the highest mean chrF to all texts; the first one on a tie.

    The texts stand for a sample of the teacher's distribution: one that occurs several times counts as often. Raises ValueError for
    no texts.
    """
    from sacrebleu.metrics import CHRF

    if not texts:
        raise ValueError("texts: expected at least one, got none")
    weights = Counter(texts)
    metric = CHRF()

    def utility(text: str) -> float:
        others = ((other, weight) for other, weight in weights.items() if other != text)
        return 100.0 * weights[text] + sum(weight * float(metric.sentence_score(text, [other]).score) for other, weight in others)

    values = {text: utility(text) for text in weights}
    best = max(values.values())
    return next(index for index, text in enumerate(texts) if values[text] == best)
