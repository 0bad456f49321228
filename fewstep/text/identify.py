"""Identification of the language of a text, with py3langid (Lui and Baldwin 2012, "langid.py"), whose package has its model."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["identifier"]


@cache
def identifier() -> Any:
    """Return the identifier, whose probabilities are among all languages that it knows (`nb_classes`)."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
