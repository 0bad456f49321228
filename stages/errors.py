"""Errors of stages. `pipeline.errors` maps each of them to an exit code."""

import errno
import os
import shutil
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from fewstep.access import FULL


class FewstepError(Exception):
    """A failure that one message explains to the user without a traceback: the place, the expectation, the finding, the remedy."""


class DataError(FewstepError):
    """The text or files of the user are missing, unequal, badly encoded or empty (exit code 2)."""


class ArtifactError(FewstepError):
    """A finished artifact differs from its manifest or was written by another version (exit code 1)."""


class StageError(FewstepError):
    """A step failed because of the machine: a full disk, too little memory, a dead worker (exit code 1)."""


class TransientError(StageError):
    """A failure after which the executor repeats the step."""


class LeaseLostError(TransientError):
    """An attempt lost the lease of its step to another driver, because it did not renew it in time."""


__all__ = [
    "FULL", "ArtifactError", "DataError", "FewstepError", "LeaseLostError", "StageError", "TransientError", "suggestion",
    "unwritable",
]  # fmt: skip


def unwritable(path: Path, error: OSError) -> StageError:
    """Return the error for a file of the store that could not be written, with a remedy for its cause."""
    problem = f"{path}: could not be written: {error.strerror or error}"
    if error.errno not in FULL:
        return StageError(f"{problem}; finished work is kept: {_remedy(error)}, and repeat the run command")
    return StageError(
        f"{problem}{_free_space(path)}; finished work is kept: free some space, or set store.path to a larger disk, and repeat the "
        "run command"
    )


def _free_space(path: Path) -> str:
    """Return the free space in words; nothing where the disk does not answer, or has been moved away."""
    existing = next((p for p in (path, *path.parents) if os.path.exists(p)), "/")
    try:
        return f" ({shutil.disk_usage(existing).free / 2**20:.1f} MiB free)"
    except OSError:
        return ""


def _remedy(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "give this user the right to write there, or set store.path to another directory"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return "check whether another program moved or removed the directory"
    return "check the disk or the file server that holds the directory" + (" and its free space" if error.errno is None else "")


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the valid name that is closest to `name`, or nothing if none is close."""
    near = get_close_matches(name, list(valid), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
