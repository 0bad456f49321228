"""Glossaries as inputs of stages."""

from __future__ import annotations

from fewstep.text.glossary import Glossary, GlossaryError, read_glossary
from stages.artifacts import ExternalFile
from stages.errors import DataError


def glossary_of(file: ExternalFile) -> Glossary:
    """Return the glossary in a file. Raises DataError for one that cannot be used."""
    try:
        return read_glossary(file.path)
    except GlossaryError as error:
        raise DataError(str(error)) from error
