"""The user's text files as inputs of the corpus stage: each with its digest, those named by URL downloaded.

All functions raise DataError for a file that cannot be read and StageError for a server that cannot be reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pipeline.config.systems import CTranslate2Teacher, FairseqTeacher, TransformersTeacher
from pipeline.config.texts import (
    FORMATS,
    VOCABULARY_FILES,
    File,
    LocalFile,
    PairFiles,
    TextConfig,
    VocabularyDictionaries,
    VocabularyFiles,
    Walk,
    matching,
)
from pipeline.data.access import DataAccess
from pipeline.data.names import licence_of_test_set
from pipeline.data.resolve import resolved_text
from pipeline.store.artifacts import Store
from pipeline.store.downloads import RemoteFile
from stages.artifacts import ExternalFile
from stages.corpus import TextFiles
from stages.corpus.limits import require_regular
from stages.errors import DataError
from stages.import_network import FILES
from stages.vocabulary import PieceFiles
from stages.vocabulary.imported import imported_models

CTRANSLATE2_FILES = (
    "model.bin",
    "config.json",
    *(f"{side}_vocabulary.{ending}" for side in ("shared", "source", "target") for ending in ("json", "txt")),
)
"""Files of a directory of CTranslate2."""
TRANSFORMERS_ENDINGS = (".json", ".txt", ".model", ".spm", ".safetensors")
"""Endings of the files of a directory of transformers that are read."""


def text_files(text: PairFiles, access: DataAccess) -> TextFiles:
    """Return the files of a text in pairs, those of named data sets included."""
    files = resolved_text(text, access)
    references = files.references if isinstance(files, TextConfig) else ()
    found = TextFiles(
        references=tuple(with_digests(side, access) for side in references),
        **{name: with_digests(getattr(files, name), access) for name in FORMATS},
    )
    if not isinstance(text, TextConfig) or text.sacrebleu is None:
        return found
    name = text.sacrebleu.name
    named = partial(_named, origin=f"sacrebleu:{name}", licence=licence_of_test_set(name))
    return replace(found, source=named(found.source), target=named(found.target), references=tuple(map(named, found.references)))


def _named(files: tuple[ExternalFile, ...], origin: str, licence: str) -> tuple[ExternalFile, ...]:
    return tuple(replace(file, origin=origin, licence=licence) for file in files)


def monolingual_files(paths: Sequence[Path], store: Store) -> TextFiles:
    """Return files of one language as pairs of equal sides."""
    walk = Walk()
    files = tuple(local_file(match, store) for path in paths for match in matching(path, walk))
    return TextFiles(source=files, target=files)


def directory_files(kind: str, directory: Path, store: Store) -> dict[str, ExternalFile]:
    """Return the files of a network of Marian or BART in `directory`, by name. Raises DataError if there is no such directory."""
    if not directory.is_dir():
        raise DataError(f"teacher.{kind}: expected a directory, got {directory}; download the files of the network into it")
    return {name: local_file(directory / name, store) for name in FILES if (directory / name).is_file()}


def fairseq_files(teacher: FairseqTeacher, store: Store) -> dict[str, ExternalFile]:
    """Return the files of a network of fairseq, by their part. Raises DataError for missing ones, and for a vocabulary that is not
    one of SentencePiece with its dictionaries."""
    files: dict[str, ExternalFile] = {}
    for part, path in teacher.files.items():
        if not path.is_file():
            key = "fairseq" if part == "checkpoint" else part
            raise DataError(f"teacher.{key}: expected a file, got {path}; copy it from where the network was trained")
        files[part] = local_file(path, store)
    source = files["source_dictionary"]
    target = files.get("target_dictionary")
    distinct = None if target is None or target.digest == source.digest else target
    imported_models(PieceFiles(files["source_pieces"], files.get("target_pieces"), source, distinct))
    return files


def ctranslate2_files(teacher: CTranslate2Teacher, store: Store) -> dict[str, ExternalFile]:
    """Return the files of a directory of CTranslate2 by name, and its SentencePiece models. Raises DataError for missing ones."""
    directory = teacher.ctranslate2
    found = {name: directory / name for name in CTRANSLATE2_FILES if (directory / name).is_file()}
    vocabularies = [name for name in found if "vocabulary" in name]
    if not {"model.bin", "config.json"} <= found.keys() or not vocabularies:
        raise DataError(
            f"teacher.ctranslate2: expected a directory of CTranslate2 with model.bin, config.json and vocabularies, got "
            f"{directory} with {', '.join(found) or 'none of them'}; convert the model with one of CTranslate2's converters"
        )
    for side in ("source", "target"):
        path = getattr(teacher, f"{side}_pieces") or directory / f"{side}.spm"
        if not path.is_file():
            raise DataError(
                f"teacher.{side}_pieces: expected a SentencePiece model, got no file {path}; name that of the original model"
            )
        found[f"{side}_pieces"] = path
    return {part: local_file(path, store) for part, path in found.items()}


def transformers_files(teacher: TransformersTeacher, store: Store) -> dict[str, ExternalFile]:
    """Return the files of a directory of transformers, by name: JSON, text, models of tokenisers, and weights in safetensors."""
    directory = teacher.transformers
    if not (directory / "config.json").is_file():
        raise DataError(f"teacher.transformers: expected a directory with config.json, got {directory}; download the model into it")
    found = sorted(path for path in directory.iterdir() if path.suffix in TRANSFORMERS_ENDINGS and path.is_file())
    if not any(path.suffix == ".safetensors" for path in found):
        raise DataError(f"teacher.transformers: {directory}: expected weights in safetensors, found none; convert the others")
    return {path.name: local_file(path, store) for path in found}


def piece_files(files: VocabularyFiles | VocabularyDictionaries, access: DataAccess) -> PieceFiles:
    """Return the files of a vocabulary that was trained elsewhere. Raises DataError also for files that cannot be imported."""

    def found(name: str) -> ExternalFile | None:
        file = getattr(files, name, None)
        return None if file is None else one_file(f"vocabulary.{name}", file, access)

    source, target, *dictionaries = map(found, VOCABULARY_FILES)
    pieces = PieceFiles(source, target, *dictionaries)
    imported_models(pieces)
    return pieces


def one_file(key: str, file: File, access: DataAccess) -> ExternalFile:
    """Return the file that `key` names. Raises DataError also for a name or a pattern that stands for several."""
    found = with_digests(resolved_text(PairFiles(source=(file,)), access).source, access)
    if len(found) != 1:
        raise DataError(f"{key}: expected one file, got {len(found)}; name one")
    return found[0]


def with_digests(files: Sequence[File], access: DataAccess) -> tuple[ExternalFile, ...]:
    """Return local files, each with the digest of its content; for a pattern, the files that match it."""
    return tuple(found for file in files for found in _external(file, access))


def _external(file: File, access: DataAccess) -> list[ExternalFile]:
    if isinstance(file, RemoteFile):
        found = [access.download(file)]
    else:
        paths = matching(file.path if isinstance(file, LocalFile) else file, access.walk)
        found = [local_file(path, access.store) for path in paths]
    return found if isinstance(file, Path) else [_part(one, file) for one in found]


def _part(found: ExternalFile, file: RemoteFile | LocalFile) -> ExternalFile:
    return replace(found, member=file.member, columns=file.columns, licence=file.licence)


def local_file(file: Path, store: Store) -> ExternalFile:
    """Return a file of this machine with the digest of its content."""
    require_regular(file)
    return ExternalFile(file.absolute(), store.digest(file))
