"""What can go wrong in a stage. `pipeline.errors` turns each into an exit code."""

import errno
import shutil
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the errors that say that a disk is full, or a file has reached the size that is allowed."""


class FewstepError(Exception):
    """A failure that is explained to the user in one message, without a traceback.

    The message says where, what was expected, what was got and what to do.
    """


class DataError(FewstepError):
    """The user's text or files cannot be used: missing, unequal, badly encoded, empty (exit code 2)."""


class ArtifactError(FewstepError):
    """A finished artifact is not what its manifest says, or was written by another version (exit code 1)."""


class StageError(FewstepError):
    """A step failed for a reason that lies in the machine: disk full, memory, a dead worker (exit code 1)."""


class TransientError(StageError):
    """A failure that is worth another attempt: the executor repeats the step."""


def unwritable(path: Path, error: OSError) -> StageError:
    """The error that a user can act on when a file of the store could not be written, mostly because the disk is full."""
    place = next((p for p in (path, *path.parents) if p.exists()), Path("/"))
    free = shutil.disk_usage(place).free
    return StageError(
        f"{path}: could not be written: {error.strerror or error} ({free / 2**20:.1f} MiB free); nothing finished is lost: "
        "free some space, or set store.path to a larger disk, and repeat the run command"
    )


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the valid name that is closest to `name`, or nothing if none is close."""
    near = get_close_matches(name, list(valid), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
