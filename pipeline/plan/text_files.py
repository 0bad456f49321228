"""The user's text files as inputs of the corpus stage: each with its digest, those named by URL downloaded.

All functions raise DataError for a file that cannot be read and StageError for a server that cannot be reached.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from pipeline.config.schema import TextConfig
from pipeline.store.artifacts import Store
from pipeline.store.downloads import RemoteFile, download
from stages.artifacts import ExternalFile
from stages.corpus import TextFiles
from stages.corpus.limits import require_regular
from stages.errors import DataError


def text_files(text: TextConfig, store: Store) -> TextFiles:
    """Return the files of a text in pairs."""
    return TextFiles(
        source=with_digests(text.source, store),
        target=with_digests(text.target, store),
        references=tuple(with_digests(paths, store) for paths in text.references),
        tsv=with_digests(text.tsv, store),
        parquet=with_digests(text.parquet, store),
    )


def monolingual_files(paths: Sequence[Path], store: Store) -> TextFiles:
    """Return files of one language as pairs of equal sides."""
    files = with_digests(paths, store)
    return TextFiles(source=files, target=files)


def with_digests(files: Sequence[Path | RemoteFile], store: Store) -> tuple[ExternalFile, ...]:
    """Return local files, each with the digest of its content; for a pattern, the files that match it."""
    found: list[ExternalFile] = []
    for file in files:
        found += [download(file, store)] if isinstance(file, RemoteFile) else [_local(path, store) for path in matching(file)]
    return tuple(found)


def matching(path: Path) -> list[Path]:
    """Return the files that match a pattern (`*`, `?`, `[...]`, `**`), sorted by name, or the path itself if it is no pattern.

    A file whose own name has such characters is taken for itself.
    """
    if not glob.has_magic(str(path)) or path.exists():
        return [path]
    found = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
    if not (files := [match for match in found if not match.is_dir()]):
        raise DataError(f"{path}: expected files that match the pattern, got none; check the path in the config")
    return files


def _local(file: Path, store: Store) -> ExternalFile:
    require_regular(file)
    return ExternalFile(file.absolute(), store.digest(file))
