"""Errors of Ray: which of them say that a process or a node was lost, and words for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from stages.errors import FULL, FewstepError, StageError, TransientError, unwritable

LOST = (
    ActorDiedError, ActorUnavailableError, LocalRayletDiedError, NodeDiedError, ObjectLostError, OutOfMemoryError,
    RayActorError, WorkerCrashedError,
)  # fmt: skip
"""Errors of Ray for a lost process or node, after which another attempt may succeed."""
UNANSWERED = ("WorkerHealthCheckTimeoutError", "WorkerGroupStartupTimeoutError")
"""Names of Ray Train's errors for workers that do not answer, or do not start within a minute because their node is lost. Their
classes are not public."""

FAILED_START = "WorkerGroupStartupFailedError"
"""Name of Ray Train's error for workers that fail or die while they start. Its text ends with the traceback of the worker."""


def explained(error: BaseException, shells: tuple[type[BaseException], ...] = (RayTaskError,)) -> FewstepError:
    """Convert an error of Ray: to the error that the stage raised, or to a TransientError if a process was lost.

    Errors of the types `shells` only wrap others.
    """
    for cause in _causes(error):
        if isinstance(cause, FewstepError) and not isinstance(cause, RayTaskError):  # the message of Ray's copy is a traceback
            return cause
    for cause in _causes(error):
        if isinstance(cause, LOST) or type(cause).__name__ in UNANSWERED or _died_at_start(cause):
            return TransientError(f"a worker or its node was lost: {reason_of_death(cause)}")
        if _is_broken_connection(cause):
            return TransientError(f"a training worker lost the connection to another one: {_last_line(cause)}")
    roots = [cause for cause in _causes(error) if not isinstance(cause, shells)]
    root = roots[-1] if roots else error
    if isinstance(root, OSError) and root.errno in FULL:
        return unwritable(Path(root.filename or "a file of the store"), root)
    line = _last_line(root) if type(root).__name__ == FAILED_START else _first_line(root)
    return StageError(f"{type(root).__name__}: {line}")


def _died_at_start(error: BaseException) -> bool:
    """Return whether a training worker died before the training began. Ray names the error of the worker only in the text."""
    text = str(error)
    return type(error).__name__ == FAILED_START and (
        "due to error" not in text or any(f"ray.exceptions.{kind.__name__}" in text for kind in LOST)
    )


def _is_broken_connection(error: BaseException) -> bool:
    """Return whether an error is that of a training worker that lost the connection to another one, or waited too long for it.

    It may arrive before Ray has noticed the death of the other worker. torch raises it as a `DistError`, or for gloo as a plain
    RuntimeError. (torch is not imported here, since it takes seconds.)
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    return "DistError" in names or ("RuntimeError" in names and "gloo/transport" in str(error))


def is_lost_node(error: BaseException) -> bool:
    """Return whether an error of Ray says that a node is gone, and not only a process on it."""
    return any(isinstance(cause, LocalRayletDiedError | NodeDiedError) for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and all errors that it wraps: causes, Ray's `cause`, and the failures of training workers."""
    if error is None:
        return
    yield error
    for name in ("cause", "health_check_failure", "controller_failure", "__cause__"):
        inner = getattr(error, name, None)
        if isinstance(inner, BaseException) and inner is not error:
            yield from _causes(inner)
    for inner in getattr(error, "worker_failures", {}).values():
        yield from _causes(inner)


def reason_of_death(error: BaseException) -> str:
    """Return why and where an actor died. Ray states it below a heading and properties, which may contain the node's address."""
    found = re.search(r"^.*The actor died unexpectedly.*\n((?:\s+\w+:.*\n)*)(.+?)(?:\. |$)", str(error), re.MULTILINE)
    if not found:
        return _first_line(error)
    return " ".join([found[2].strip(), *(f"({address})" for address in re.findall(r"ip: \S+", found[1]))])


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _last_line(error: BaseException) -> str:
    """Return the last line of an error: of one that was raised in another process, the line below its traceback."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
