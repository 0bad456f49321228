"""New directories that commands write, each complete or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import durable
from fewstep.access import access_problem, name_problem
from pipeline.errors import DataError, StageError
from pipeline.store.marker import MARKER

URL = re.compile(r"[a-z][a-z0-9+]*:/")


@contextmanager
def new_directory(command: str, output: Path) -> Iterator[Path]:
    """Yield the path at which the directory `output` is written, in a folder of its own that is removed at the end. It gets its
    name when this ends without an error.

    Raises DataError for an output that exists, for one that is no name of a new directory, and for one in a store, whose files
    `fewstep gc` removes; StageError where it cannot be written.
    """
    if problem := _problem(output):
        raise DataError(f"{command}: expected a new directory, got {output}, {problem}")
    fresh = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        fresh.mkdir(parents=True)
        yield fresh / "made"
        durable.rename(fresh / "made", output)
    except OSError as error:
        raise StageError(access_problem(output, error, write=True)) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _problem(output: Path) -> str | None:
    if os.path.lexists(output):
        return "which exists; remove it or name another"
    if output.name in ("", "..") or URL.match(str(output)):
        return "which is no name of a directory; name a new one"
    if problem := name_problem(output):
        return f"which files cannot name: {problem}"
    if store := next((path for path in output.absolute().parents if (path / MARKER).is_file()), None):
        return f"which is in the store {store}, whose files `fewstep gc` removes; name one outside of it"
    return None
