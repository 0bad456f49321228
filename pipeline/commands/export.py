"""`fewstep export`: write a finished system to pass it on, or in the format of another toolkit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fewstep.system.format import BundleError
from fewstep.text.escape import escaped
from pipeline.commands.new_directory import new_directory
from pipeline.commands.options import STORE, NoVerify, StorePath, SystemLocation, SystemName
from pipeline.commands.output import warn_of_unknown_licences
from pipeline.commands.translate import system_directory
from pipeline.errors import ArtifactError, DataError, StageError

FORMATS = {
    "fewstep": "read README.md; fewstep.load, fewstep serve and mlflow models serve take it (docs/guide/library.md#sharing)",
    "marian": "transformers' MarianMTModel and MarianTokenizer take it (docs/guide/benchmark.md#export)",
    "ctranslate2": "encode lines with source.spm, decode pieces with target.spm (docs/guide/benchmark.md#export)",
}
"""The formats, each with what to do with a directory of it."""
PRECISIONS = ("float32", "int8", "float16", "bfloat16")


def export(
    where: SystemLocation,
    to: Annotated[Path, typer.Option("--to", metavar="DIRECTORY", help="A new directory.", show_default=False)],
    system: SystemName = None,
    format: Annotated[  # the name of the option
        str,
        typer.Option(
            metavar="FORMAT",
            help="Format: fewstep (the system with a card, its runtime, and what MLflow needs to serve it), or, of an "
            "autoregressive system, ctranslate2 or marian (a model of transformers).",
        ),
    ] = "fewstep",
    precision: Annotated[
        str, typer.Option(metavar="PRECISION", help="Precision of CTranslate2's weights: float32, int8, float16 or bfloat16.")
    ] = "float32",
    no_verify: NoVerify = False,
    store: StorePath = STORE,
) -> None:
    """Write a finished system into a directory, to pass it on or for another toolkit."""
    for option, value, known in (("--format", format, tuple(FORMATS)), ("--precision", precision, PRECISIONS)):
        if value not in known:
            raise DataError(f"{option}: expected {' or '.join(known)}, got {value}")
    directory = system_directory(store, where, system)
    export_system(directory, to, format, precision, verify=not no_verify)
    warn_of_unknown_licences([directory])
    print(escaped(f"written: {to}; {FORMATS[format]}"))


def export_system(system: Path, output: Path, format: str = "fewstep", precision: str = "float32", *, verify: bool = True) -> None:
    """Write the system in the directory `system` to a new directory `output`, atomically. With `verify`, the system's files are
    compared with their digests first.

    Raises DataError for an output that exists and for a system that the format cannot express, StageError where
    a library is not installed or the disk is full, ArtifactError for a broken system.
    """
    from models.stepwise.ctranslate2_model import EngineError

    with new_directory("export", output) as fresh:
        try:
            _write(system, fresh, format, precision, verify)
        except (EngineError, ImportError) as error:
            raise StageError(str(error)) from error
        except BundleError as error:
            raise ArtifactError(str(error)) from error
        except ValueError as error:
            raise DataError(f"export {system}: {error}") from error


def _write(system: Path, output: Path, format: str, precision: str, verify: bool) -> None:
    from models.bundle.export import export_ctranslate2
    from models.bundle.marian import export_marian
    from pipeline.tracking.models import write_shared

    if format == "ctranslate2":
        export_ctranslate2(system, output, precision, verify)
    elif format == "marian":
        export_marian(system, output, verify)
    else:
        write_shared(system, output, verify=verify)
