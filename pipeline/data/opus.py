"""Corpora of OPUS (Tiedemann 2012): an archive for each corpus, version and pair, with a file of lines for each language."""

from __future__ import annotations

import re
from typing import Any

from pipeline.config.texts import PairFiles
from pipeline.data.access import DataAccess
from pipeline.data.names import opus_name
from pipeline.data.records import record_of
from pipeline.store.downloads import RemoteFile
from stages.errors import DataError
from stages.shared.members import matching_members

ARCHIVE = "https://object.pouta.csc.fi/OPUS-{corpus}/{version}/moses/{first}-{second}.txt.zip"
"""Address of a corpus in the format of Moses; the languages are in alphabetical order."""


def opus_text(text: str, access: DataAccess) -> PairFiles:
    """Return the files of a corpus, in the languages of the access.

    Raises DataError if there is no such corpus, or its archive lacks a language.
    """
    name = opus_name(text)
    assert name is not None, text  # the config was checked
    first, second = name.languages or sorted(access.languages)
    sides = _sides(text, (first, second), access.languages)
    url = ARCHIVE.format(corpus=name.corpus, version=name.version, first=first, second=second)

    def resolve(_: dict[str, Any]) -> dict[str, Any]:
        file = access.download(RemoteFile(url=url))
        return {"sha256": file.digest, "members": matching_members(file.path, [f"*.{side}" for side in sides])}

    record = record_of(f"opus:{text}:{url}:{'-'.join(access.languages)}", access, resolve)
    source, target = (RemoteFile(url=url, sha256=record["sha256"], member=member) for member in record["members"])
    return PairFiles(source=(source,), target=(target,))


def _sides(text: str, stated: tuple[str, str], languages: tuple[str, str]) -> tuple[str, str]:
    """Return the languages as OPUS writes them, source first."""
    for pair in (stated, stated[::-1]):
        if all(_base(one) == _base(other) for one, other in zip(pair, languages, strict=True)):
            return pair[0], pair[1]
    raise DataError(f"{text}: expected the languages {languages[0]} and {languages[1]} of the config, got {stated[0]}-{stated[1]}")


def _base(language: str) -> str:
    return re.split("[-_]", language)[0].lower()
