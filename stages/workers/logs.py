"""The log file of an attempt, which the step and its workers in other processes write to."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fewstep.text.escape import EscapingFormatter
from stages.errors import FULL


class _LogFile(logging.FileHandler):
    """A log file that silently loses lines on a full disk, since the step itself reports the full disk."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if not (isinstance(error, OSError) and error.errno in FULL):
            super().handleError(record)


@contextmanager
def logged(path: Path) -> Iterator[logging.Logger]:
    """Append log records of the logger `fewstep` to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s [%(process)d] %(message)s"))
    logger = logging.getLogger("fewstep")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):  # lines that are lost on a full disk
            handler.close()
        logger.setLevel(level)
        logger.propagate = propagate
