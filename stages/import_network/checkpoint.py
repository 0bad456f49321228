"""Make a system of a checkpoint of fairseq or of a paper's authors, whose text is split already."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fewstep.bounded_files import MAX_VOCABULARY_BYTES, read_bounded
from fewstep.vocabulary import RESERVED
from models.bundle.directory import load_system, write_system
from models.bundle.weights import save_weights
from models.family import family_named
from models.imports.fairseq_network import read_network
from models.imports.files import ForeignModelError
from stages.errors import DataError
from stages.shared.dictionary import symbols

__all__ = ["ForeignModelError", "write_converted"]


def write_converted(
    checkpoint: Path,
    directory: Path,
    dictionaries: tuple[Path, Path],
    family: str,
    languages: tuple[str, str],
    companions: Mapping[str, Path],
    max_positions: int,
    word_model: Callable[[Sequence[str]], bytes],
) -> None:
    """Write the system to a new directory; `companions` are systems by their role, and `word_model` returns the model of the
    pieces of a dictionary's symbols.

    Raises DataError and ForeignModelError for files that hold no such network, BundleError for a companion that does not fit,
    OSError.
    """
    if not checkpoint.is_file():
        raise DataError(f"convert: expected a checkpoint, got {checkpoint}, which is no file")
    lists = [symbols(str(path), _content(path), split=True) for path in dictionaries]
    sizes = (len(lists[0]) + len(RESERVED), len(lists[1]) + len(RESERVED))
    found = read_network(checkpoint, family, sizes, max_positions)
    directory.mkdir(parents=True)
    parts = {side: directory / f"{side}.tmp" for side in ("source", "target", "weights")}
    for side, tokens in zip(("source", "target"), lists, strict=True):
        parts[side].write_bytes(word_model(tokens))
    save_weights(parts["weights"], found.weights, asdict(found.network))
    search: Any = family_named(family).search()
    write_system(
        directory,
        family=family,
        network=found.network,
        sizes=found.sizes,
        weights=parts["weights"],
        source_vocabulary=parts["source"],
        target_vocabulary=parts["target"],
        name=checkpoint.stem,
        source_language=languages[0],
        target_language=languages[1],
        searches={search.label: search},
        companions=companions,
        imported={"origin": _origin(checkpoint, dictionaries)},
    )
    for path in parts.values():
        path.unlink()
    load_system(directory)


def _content(path: Path) -> bytes:
    try:
        return read_bounded(path, MAX_VOCABULARY_BYTES)
    except (OSError, ValueError) as error:
        raise DataError(f"convert: {path}: {error}") from error


def _origin(checkpoint: Path, dictionaries: tuple[Path, Path]) -> dict[str, Any]:
    files = {}
    for path in (checkpoint, *dictionaries):
        with path.open("rb") as file:
            files[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "kind": "fairseq",
        "name": checkpoint.name,
        "files": files,
        "importer": 1,
        "licence": "unknown",
        "licence_from": "",
    }
