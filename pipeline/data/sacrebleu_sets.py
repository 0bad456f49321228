"""Test sets of sacrebleu: its URLs, digests and extraction, with our downloads and without its cache.

Its own download keeps a file whose MD5 is wrong, and trusts it, or a truncated one, at the next call.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.config.texts import SacrebleuText, TextConfig
from pipeline.data.access import DataAccess
from pipeline.data.child import answer_of
from pipeline.data.records import record_of
from pipeline.store.downloads import RemoteFile, discard_download, keep_file, kept_file
from pipeline.urls import sha256_digits
from stages.artifacts import ExternalFile
from stages.errors import DataError, suggestion


def sacrebleu_text(text: SacrebleuText, access: DataAccess) -> TextConfig:
    """Return the files of a test set in the languages of the access.

    Raises DataError if there is no such test set, it lacks the languages, or a file has another digest than expected.
    """
    record = extracted(text, access)
    source, *references = (_kept(digest, text.name, access) for digest in record["files"])
    return TextConfig(source=(source,), target=(references[0],), references=tuple((side,) for side in references[1:]))


def extracted(text: SacrebleuText, access: DataAccess) -> dict[str, Any]:
    """Return the record of a test set: {archives, files}, the digests of what was downloaded and of source and references."""
    dataset = _dataset(text.name, access.languages)
    pair = "-".join(access.languages)
    pins = tuple(map(sha256_digits, text.sha256))
    if pins and len(pins) != len(dataset.data):
        raise DataError(f"{text.name}: expected {len(dataset.data)} values of sha256, got {len(pins)}; run fewstep data pin CONFIG")
    name = f"sacrebleu:{text.name}:{pair}:{':'.join(dataset.data)}"
    record = record_of(
        name,
        access,
        lambda earlier: _extract(text.name, dataset, pair, pins or earlier.get("archives", ()), access),
        lambda found: all(kept_file(digest, access.store) for digest in found["files"]),
    )
    if pins and list(pins) != record["archives"]:
        raise DataError(f"{text.name}: expected sha256 {', '.join(pins)}, got {', '.join(record['archives'])}; correct the digests")
    return record


def _dataset(name: str, languages: Sequence[str]) -> Any:
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        known = ", ".join(sorted(DATASETS)[:8])
        raise DataError(f"{name}: expected a name of `sacrebleu --list` ({known}, ...), got {name!r}{suggestion(name, DATASETS)}")
    dataset = DATASETS[name]
    pair = "-".join(languages)
    if pair not in dataset.langpairs:
        raise DataError(f"{name}: expected languages {', '.join(sorted(dataset.langpairs))}, got {pair}; choose another test set")
    return dataset


def _extract(name: str, dataset: Any, pair: str, pins: Sequence[str], access: DataAccess) -> dict[str, Any]:
    archives = archives_of(name, dataset, pins, access)
    with tempfile.TemporaryDirectory() as folder:
        request = {
            "module": type(dataset).__module__, "kind": type(dataset).__name__, "name": dataset.name,
            "data": list(dataset.data), "langpairs": {pair: dataset.langpairs[pair]}, "options": dataset.kwargs, "pair": pair,
            "archives": [str(file.path.absolute()) for file in archives], "directory": str(Path(folder) / "extracted"),
        }  # fmt: skip
        (Path(folder) / "extracted").mkdir()
        answer = answer_of("extract_test_set", json.dumps(request).encode(), Path(folder), {"SACREBLEU": folder})
        if "problem" in answer:
            raise DataError(f"{name}: expected a test set that sacrebleu can extract, got {answer['problem']}; choose another one")
        files = [keep_file(Path(path), Path(path).name, access.store).digest for path in (answer["source"], *answer["references"])]
    return {"archives": [file.digest for file in archives], "files": files}


def archives_of(name: str, dataset: Any, pins: Sequence[str], access: DataAccess) -> list[ExternalFile]:
    """Download the files of a test set. A file with another MD5 than sacrebleu's is removed, and DataError raised."""
    files: list[ExternalFile] = []
    for number, url in enumerate(dataset.data):
        remote = RemoteFile(url=url, sha256=pins[number] if pins else "")
        file = access.download(remote)
        found = _md5(file.path)
        if dataset.md5 and found != dataset.md5[number]:
            discard_download(remote, file, access.store)
            raise DataError(
                f"{name}: expected md5 {dataset.md5[number]}, got {found} from {url}; nothing was kept: repeat the command, or "
                "install a newer sacrebleu if the file was replaced"
            )
        files.append(file)
    return files


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _kept(digest: str, name: str, access: DataAccess) -> Path:
    path = kept_file(digest, access.store)
    assert path is not None, f"{name}: expected the extracted file {digest} in the store"
    return path
