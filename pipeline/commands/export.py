"""Give a finished system to other programs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kernels import durable
from pipeline.errors import ArtifactError, DataError, StageError

PRECISIONS = ("float32", "int8", "float16", "bfloat16")


def export(system: Path, output: Path, precision: str, verify: bool = True) -> None:
    """Write the system in the directory `system` into a new directory `output`, which is there whole or not at all. With
    `verify`, the system's files are compared with their digests first.

    Raises DataError for an output that is there already and for a system that CTranslate2 cannot express, StageError where
    CTranslate2 is not installed or the disk is full, ArtifactError for a broken system.
    """
    from models.bundle.directory import BundleError
    from models.bundle.export import export_ctranslate2
    from models.stepwise.engines.ctranslate2_model import EngineError
    from stages.errors import unwritable

    if output.exists():
        raise DataError(f"export: expected a directory that is not there yet, got {output}; remove it or name another")
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
        raise unwritable(output, error) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
