"""The user's text files as inputs of the corpus stage: each with its digest, those named by URL downloaded.

All functions raise DataError for a file that cannot be read and StageError for a server that cannot be reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.config.schema import TextConfig
from pipeline.store.artifacts import Store
from pipeline.store.downloads import RemoteFile, download
from stages.artifacts import ExternalFile
from stages.corpus import TextFiles
from stages.corpus.limits import require_regular
from stages.errors import DataError
from stages.import_network import FILES


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


def marian_files(directory: Path, store: Store) -> dict[str, ExternalFile]:
    """Return the files of a Marian network in `directory`, by name. Raises DataError if there is no such directory."""
    if not directory.is_dir():
        raise DataError(f"teacher.marian: expected a directory, got {directory}; download the files of the network into it")
    return {name: _local(directory / name, store) for name in FILES if (directory / name).is_file()}


def with_digests(files: Sequence[Path | RemoteFile], store: Store) -> tuple[ExternalFile, ...]:
    """Return local files, each with the digest of its content."""
    return tuple(download(file, store) if isinstance(file, RemoteFile) else _local(file, store) for file in files)


def _local(file: Path, store: Store) -> ExternalFile:
    require_regular(file)
    return ExternalFile(file.absolute(), store.digest(file))
