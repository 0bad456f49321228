"""Named data sets of a text as files: each name becomes URLs with members and columns, which the store downloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pipeline.config.texts import FORMATS, File, PairFiles, TextConfig
from pipeline.data.access import DataAccess
from pipeline.data.hub import hub_files
from pipeline.data.mtdata_sets import mtdata_texts
from pipeline.data.names import HUB
from pipeline.data.opus import opus_text
from pipeline.data.records import about
from pipeline.data.sacrebleu_sets import sacrebleu_text
from pipeline.store.downloads import RemoteFile

P = TypeVar("P", bound=PairFiles)


def resolved_text(text: P, access: DataAccess) -> P:
    """Return a text of files alone, without names. Archives are downloaded where their members have to be listed.

    Raises DataError for a name that does not exist or cannot be used, StageError for a server that cannot be reached.
    """
    found: dict[str, Any] = {kind: _without_hub_names(getattr(text, kind), access) for kind in FORMATS}
    text = replace(text, **found)
    if not isinstance(text, TextConfig):
        return text
    if text.sacrebleu is not None:
        with about(text.sacrebleu.name):
            return replace(sacrebleu_text(text.sacrebleu, access))  # type: ignore[return-value]
    parts: list[PairFiles] = mtdata_texts(text.mtdata, access)
    for name in text.opus:
        with about(name):
            parts.append(opus_text(name, access))
    joined: dict[str, Any] = {kind: sum((getattr(part, kind) for part in (text, *parts)), ()) for kind in FORMATS}
    references = tuple(_without_hub_names(side, access) for side in text.references)
    return replace(text, **joined, references=references, mtdata=(), opus=())


def _without_hub_names(files: Sequence[File], access: DataAccess) -> tuple[Any, ...]:
    found: list[File] = []
    for file in files:
        found += hub_files(file, access) if isinstance(file, RemoteFile) and file.url.startswith(HUB) else (file,)
    return tuple(found)
