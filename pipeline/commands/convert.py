"""`fewstep convert`: make a system of a checkpoint of fairseq or of a paper's authors."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import durable
from fewstep.access import access_problem
from fewstep.bounded_files import MAX_VOCABULARY_BYTES, read_bounded
from pipeline.errors import ArtifactError, DataError, StageError

FAMILIES = ("stepwise", "dag", "aggressive")


def convert(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="File of fairseq, DA-Transformer or SpecDec.")],
    output: Annotated[Path, typer.Option("--output", metavar="DIRECTORY", help="A new directory.", show_default=False)],
    source_dictionary: Annotated[
        Path, typer.Option(metavar="FILE", help="Dictionary of the source, such as dict.en.txt.", show_default=False)
    ],
    target_dictionary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Dictionary of the target; default: that of the source.", show_default=False)
    ] = None,
    family: Annotated[
        str,
        typer.Option(metavar="FAMILY", help="stepwise (Transformer), dag (DA-Transformer) or aggressive (SpecDec's drafter)."),
    ] = "stepwise",
    verifier: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="System that verifies the drafts of a drafter.", show_default=False)
    ] = None,
    max_positions: Annotated[
        int, typer.Option(min=2, metavar="TOKENS", help="Longest source and target; a drafter and its verifier need the same.")
    ] = 1024,
    languages: Annotated[str, typer.Option(metavar="SOURCE-TARGET", help="Language codes.")] = "en-de",
) -> None:
    """Write a system directory for a checkpoint of fairseq or of a paper's authors, whose text is split already."""
    if family not in FAMILIES:
        raise DataError(f"--family: expected {', '.join(FAMILIES)}, got {family}")
    if (verifier is None) == (family == "aggressive"):
        expected = "the system that verifies the drafts" if family == "aggressive" else "none for this family"
        raise DataError(f"--verifier: expected {expected}, got {verifier or 'none'}")
    source, _, target = languages.partition("-")
    if not source or not target:
        raise DataError(f"--languages: expected two codes such as en-de, got {languages}")
    companions = {} if verifier is None else {"verifier": verifier}
    write_checkpoint(
        checkpoint, output, (source_dictionary, target_dictionary or source_dictionary), family, (source, target), companions,
        max_positions,
    )  # fmt: skip
    print(f"written: {output}; its text is split as the dictionaries are (docs/guide/teachers.md)")


def write_checkpoint(
    checkpoint: Path,
    output: Path,
    dictionaries: tuple[Path, Path],
    family: str,
    languages: tuple[str, str],
    companions: Mapping[str, Path],
    max_positions: int,
) -> None:
    """Write the network of a checkpoint as a system to a new directory, atomically; `companions` are systems by their role.

    Raises DataError for an output that exists and for files that hold no such network, ArtifactError for a companion that is no
    system or does not fit, StageError when the disk is full.
    """
    from fewstep.system.format import BundleError
    from models.imports.files import ForeignModelError

    if output.exists():
        raise DataError(f"convert: expected a new directory, got {output}, which exists; remove it or name another")
    fresh = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        _write(checkpoint, fresh, dictionaries, family, languages, companions, max_positions)
        durable.rename(fresh, output)
    except ForeignModelError as error:
        raise DataError(f"convert {checkpoint}: {error}") from error
    except BundleError as error:
        raise ArtifactError(str(error)) from error
    except OSError as error:
        raise StageError(access_problem(output, error, write=True)) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write(
    checkpoint: Path,
    directory: Path,
    dictionaries: tuple[Path, Path],
    family: str,
    languages: tuple[str, str],
    companions: Mapping[str, Path],
    max_positions: int,
) -> None:
    from fewstep.vocabulary import RESERVED
    from models.bundle.directory import load_system, write_system
    from models.bundle.weights import save_weights
    from models.family import family_named
    from models.imports.fairseq_network import read_network
    from stages.shared.dictionary import symbols
    from stages.vocabulary.words import word_model

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
