"""A filter of sentences by their language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from fewstep.text.languages import base_code, identifier
from stages.corpus.ledger import Mask
from stages.errors import DataError

PACKAGE = "py3langid"


def language_problem(languages: Sequence[str]) -> str | None:
    """Return why sentences of these languages cannot be identified; None if they can."""
    if find_spec(PACKAGE) is None:
        return f"needs the package {PACKAGE}, which is not installed; run: pip install {PACKAGE}, or set it to 1"
    known = set(identifier().nb_classes)
    if unknown := [language for language in languages if base_code(language) not in known]:
        return f"cannot be used, since {PACKAGE} does not know the language {', '.join(unknown)}; set it to 1"
    return None


@dataclass(frozen=True)
class OtherLanguage:
    """Finds sentences that are in another language than their side."""

    languages: tuple[str, str]
    max_probability: float
    identifier: Any

    @staticmethod
    def of(languages: tuple[str, str], max_probability: float) -> OtherLanguage:
        """Load the model. Raises DataError if the package is missing or does not know the languages."""
        if problem := language_problem(languages):
            raise DataError(f"corpus.filters.max_other_language {problem}")
        return OtherLanguage((base_code(languages[0]), base_code(languages[1])), max_probability, identifier())

    def mask(self, sources: Sequence[str], targets: Sequence[str]) -> Mask:
        """Return for which pairs [N] a side is in another language with more than the largest probability."""
        sides = [
            [self._is_other(text, language) for text in texts]
            for language, texts in zip(self.languages, (sources, targets), strict=True)
        ]
        found: Mask = np.any(np.array(sides, bool), axis=0)
        return found

    def _is_other(self, text: str, language: str) -> bool:
        found, probability = self.identifier.classify(text)
        return bool(found != language and probability > self.max_probability)
