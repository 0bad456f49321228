"""The log file of an attempt, which the step and its workers in other processes write to."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fewstep.text.escape import EscapingFormatter


class _LogFile(logging.FileHandler):
    """A log file that silently loses lines on a full disk or one that fails: the step itself reports the disk."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


@contextmanager
def logged(path: Path) -> Iterator[logging.Logger]:
    """Append the records of the logger `fewstep` to `path`. No other user may read it, since messages may quote other programs
    and the environment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
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
        with suppress(OSError):  # lines that are lost on such a disk
            handler.close()
        logger.setLevel(level)
        logger.propagate = propagate
