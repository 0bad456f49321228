"""`fewstep export`: write a finished system in the format of another toolkit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

import durable
from fewstep.access import access_problem
from pipeline.commands.options import STORE, NoVerify, StorePath, SystemLocation, SystemName
from pipeline.commands.output import warn_of_unknown_licences
from pipeline.commands.translate import system_directory
from pipeline.errors import ArtifactError, DataError, StageError

FORMATS = ("ctranslate2",)
PRECISIONS = ("float32", "int8", "float16", "bfloat16")


def export(
    where: SystemLocation,
    output: Annotated[Path, typer.Option("--output", metavar="DIRECTORY", help="A new directory.", show_default=False)],
    system: SystemName = None,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="Format: ctranslate2.")] = "ctranslate2",
    precision: Annotated[
        str, typer.Option(metavar="PRECISION", help="Precision of the weights: float32, int8, float16 or bfloat16.")
    ] = "float32",
    no_verify: NoVerify = False,
    store: StorePath = STORE,
) -> None:
    """Write a finished autoregressive system as a CTranslate2 model with its vocabularies."""
    for option, value, known in (("--to", to, FORMATS), ("--precision", precision, PRECISIONS)):
        if value not in known:
            raise DataError(f"{option}: expected {' or '.join(known)}, got {value}")
    directory = system_directory(store, where, system)
    export_system(directory, output, precision, verify=not no_verify)
    warn_of_unknown_licences([directory])
    print(f"written: {output}; encode lines with source.spm, decode pieces with target.spm (docs/guide/benchmark.md)")


def export_system(system: Path, output: Path, precision: str, verify: bool = True) -> None:
    """Write the system in the directory `system` to a new directory `output`, atomically. With `verify`, the system's files are
    compared with their digests first.

    Raises DataError for an output that exists and for a system that CTranslate2 cannot express, StageError where
    CTranslate2 is not installed or the disk is full, ArtifactError for a broken system.
    """
    from fewstep.system.format import BundleError
    from models.bundle.export import export_ctranslate2
    from models.stepwise.ctranslate2_model import EngineError

    if output.exists():
        raise DataError(f"export: expected a new directory, got {output}, which exists; remove it or name another")
    fresh = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        export_ctranslate2(system, fresh, precision, verify)
        durable.rename(fresh, output)
    except EngineError as error:
        raise StageError(str(error)) from error
    except BundleError as error:
        raise ArtifactError(str(error)) from error
    except ValueError as error:
        raise DataError(f"export {system}: {error}") from error
    except OSError as error:
        raise StageError(access_problem(output, error, write=True)) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
