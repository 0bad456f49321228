"""`fewstep convert`: make a system of a checkpoint of fairseq or of a paper's authors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from fewstep.system.format import BundleError
from fewstep.text.escape import escaped
from pipeline.commands.new_directory import new_directory
from pipeline.errors import ArtifactError, DataError
from stages.vocabulary.words import word_model

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
        typer.Option(
            metavar="FAMILY",
            help="Family of the network: stepwise (Transformer), dag (DA-Transformer) or aggressive (SpecDec's drafter).",
        ),
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
    print(escaped(f"written: {output}; its text is split as the dictionaries are (docs/guide/teachers.md)"))


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
    from stages.import_network.checkpoint import ForeignModelError, write_converted

    with new_directory("convert", output) as fresh:
        try:
            write_converted(checkpoint, fresh, dictionaries, family, languages, companions, max_positions, word_model)
        except ForeignModelError as error:
            raise DataError(f"convert {checkpoint}: {error}") from error
        except BundleError as error:
            raise ArtifactError(str(error)) from error
