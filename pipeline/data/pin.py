"""The texts of a config with every file pinned: its address, digest, member and columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.config.schema import RunConfig
from pipeline.config.texts import (
    FORMATS,
    VOCABULARY_FILES,
    DistilledText,
    File,
    LocalFile,
    PairFiles,
    TextConfig,
    VocabularyDictionaries,
    VocabularyFiles,
)
from pipeline.data.access import DataAccess
from pipeline.data.names import COMMIT, hub_name
from pipeline.data.resolve import resolved_text
from pipeline.data.sacrebleu_sets import extracted
from pipeline.store.downloads import RemoteFile
from stages.artifacts import ExternalFile


def downloaded_files(config: RunConfig, access: DataAccess) -> Iterator[tuple[str, ExternalFile]]:
    """Download all text that a config names, and yield its files with the keys of their texts. Each file is yielded once a text."""
    for path, text in _texts(config):
        extracted_set = isinstance(text, TextConfig) and text.sacrebleu is not None
        found: dict[ExternalFile, None] = {}
        for file in chain(*_sides(resolved_text(text, access))):
            if isinstance(file, RemoteFile):
                found[access.download(file)] = None
            elif extracted_set and isinstance(file, Path):
                found[ExternalFile(file, access.store.digest(file))] = None
        yield from ((".".join(path), file) for file in found)
    for section, name, file in _single_files(config, access):
        yield f"{section}.{name}", access.download(file)


def pinned_texts(config: RunConfig, access: DataAccess) -> dict[str, Any]:
    """Return the texts of a config that are downloaded, as keys of a config, with the digest of every file.

    Keys of names that were resolved are empty, so that the result extends the config.
    """
    result: dict[str, Any] = {}
    for path, text in _texts(config):
        pinned = _pinned(text, access)
        place = result
        for key in path[:-1] if pinned else ():
            place = place.setdefault(key, {})
        if pinned:
            place[path[-1]] = pinned
    for section, name, remote in _single_files(config, access):
        result.setdefault(section, {})[name] = _plain(remote, access)
    return result


def _texts(config: RunConfig) -> Iterator[tuple[tuple[str, ...], PairFiles]]:
    """Yield the texts of a config with the keys that lead to them."""
    yield ("corpus", "train"), config.corpus.train
    for name, text in config.corpus.texts.items():
        yield ("corpus", "texts", name), text
    yield ("corpus", "validation"), config.corpus.validation
    for name, text in config.corpus.test.items():
        yield ("corpus", "test", name), text
    if isinstance(config.distillation, DistilledText):
        yield ("distillation",), config.distillation


def unpinned(config: RunConfig) -> dict[str, list[str]]:
    """Return the files and names of a config that are downloaded without a digest to compare with, by the keys of their texts.

    sacreBLEU has digests of its test sets, and a commit of the Hugging Face Hub those of its large files.
    """
    found: dict[str, list[str]] = {}
    for path, text in _texts(config):
        names = [file.url for side in _sides(text) for file in side if isinstance(file, RemoteFile) and not _is_pinned(file)]
        if isinstance(text, TextConfig):
            names += [f"{kind} {name}" for kind in ("mtdata", "opus") for name in getattr(text, kind)]
        found |= {".".join(path): list(dict.fromkeys(names))} if names else {}
    for section, name, file in _single_remote_files(config):
        found |= {} if _is_pinned(file) else {f"{section}.{name}": [file.url]}
    return found


def _is_pinned(file: RemoteFile) -> bool:
    name = hub_name(file.url)
    return bool(file.sha256 or file.git_blob) or (name is not None and bool(COMMIT.fullmatch(name.revision)))


def _single_files(config: RunConfig, access: DataAccess) -> Iterator[tuple[str, str, RemoteFile]]:
    """Yield the files of a vocabulary and of contrastive pairs that are downloaded, with their section and key."""
    for section, name, file in _single_remote_files(config):
        for found in resolved_text(PairFiles(source=(file,)), access).source:
            assert isinstance(found, RemoteFile)
            yield section, name, found


def _single_remote_files(config: RunConfig) -> Iterator[tuple[str, str, RemoteFile]]:
    vocabulary = config.vocabulary if isinstance(config.vocabulary, VocabularyFiles | VocabularyDictionaries) else None
    named = [("vocabulary", name, getattr(vocabulary, name, None)) for name in VOCABULARY_FILES]
    for section, name, file in (*named, ("evaluation", "contrastive_pairs", config.evaluation.contrastive_pairs)):
        if isinstance(file, RemoteFile):
            yield section, name, file


def _sides(text: PairFiles) -> list[Sequence[File]]:
    references = text.references if isinstance(text, TextConfig) else ()
    return [*(getattr(text, kind) for kind in FORMATS), *references]


def _pinned(text: PairFiles, access: DataAccess) -> dict[str, Any]:
    if isinstance(text, TextConfig) and text.sacrebleu is not None:
        return {"sacrebleu": {"name": text.sacrebleu.name, "sha256": extracted(text.sacrebleu, access)["archives"]}}
    resolved = resolved_text(text, access)
    kinds = {kind: getattr(resolved, kind) for kind in FORMATS}
    pinned: dict[str, Any] = {kind: [_plain(file, access) for file in files] for kind, files in kinds.items() if _has_remote(files)}
    if isinstance(text, TextConfig) and isinstance(resolved, TextConfig):
        if any(map(_has_remote, resolved.references)):
            pinned["references"] = [[_plain(file, access) for file in side] for side in resolved.references]
        pinned |= {name: [] for name in ("mtdata", "opus") if getattr(text, name)}
    return pinned


def _has_remote(files: Sequence[File]) -> bool:
    return any(isinstance(file, RemoteFile) for file in files)


def _plain(file: File, access: DataAccess) -> Any:
    """Return a file as a config writes it."""
    if isinstance(file, RemoteFile):
        digest = access.download(file).digest
        return {"url": file.url, "sha256": digest, **_part(file)}
    return {"path": str(file.path), **_part(file)} if isinstance(file, LocalFile) else str(file)


def _part(file: RemoteFile | LocalFile) -> dict[str, Any]:
    part: dict[str, Any] = {"member": file.member} if file.member else {}
    part |= {"columns": list(file.columns)} if file.columns else {}
    return part | ({"licence": file.licence} if file.licence else {})
