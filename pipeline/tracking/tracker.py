"""The publication of a run while it goes on."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from fewstep.text.escape import escaped
from pipeline.credentials import masked
from pipeline.tracking.publisher import Publisher, Settings, short_reason

SYNC_SECONDS = 5.0
"""Interval between two synchronisations of a running run."""
BACKOFF_SECONDS = 60.0
"""Longest pause while the server cannot be reached."""
FINAL_SECONDS = 60.0
"""Time for which the end of a run waits for the last synchronisation."""


class Tracker:
    """A thread that publishes a run while it goes on. Its failures neither end nor delay the run."""

    def __init__(
        self, run_dir: Path, settings: Settings, *, seconds: float = SYNC_SECONDS, final_seconds: float = FINAL_SECONDS
    ) -> None:
        self._publisher = Publisher(run_dir, settings) if settings.enabled else None
        self._seconds = seconds
        self._final_seconds = final_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tracking", daemon=True)
        self._warned = False

    def __enter__(self) -> Tracker:
        if self._publisher is not None:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._publisher is None:
            return
        self._thread.join(self._final_seconds)
        if self._thread.is_alive():
            self._warn(self._publisher, f"the last records were not sent within {self._final_seconds:g} s")

    def _loop(self) -> None:
        assert self._publisher is not None
        pause = 0.0
        while not self._over.wait(pause):
            succeeded = self._sync(self._publisher, final=False)
            pause = self._seconds if succeeded else min(BACKOFF_SECONDS, max(self._seconds, 2 * pause))
        self._sync(self._publisher, final=True)

    def _sync(self, publisher: Publisher, *, final: bool) -> bool:
        try:
            publisher.sync(final=final)
        except Exception as error:
            self._warn(publisher, short_reason(error))
            return False
        self._warned = False
        return True

    def _warn(self, publisher: Publisher, reason: str) -> None:
        """Print one warning for each outage. `logging` is not used: a step in this process may have redirected it to its log."""
        if not self._warned:
            self._warned = True
            warning = (
                f"warning: the run continues, but MLflow at {masked(publisher.uri)} does not accept its records ({reason}); "
                f"publish them later: fewstep publish {publisher.run.path}"
            )
            print(escaped(warning), file=sys.stderr)
