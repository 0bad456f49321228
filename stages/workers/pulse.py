"""Signs of life: files that a process touches while it runs, and that another process watches.

Ray notices processes that end, and nodes that do not answer, but not a process that is stopped or hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TOUCHES = 8
"""Number of times that a file is touched in the time after which its process is considered hung."""
MAX_GAP_SECONDS = 5.0
"""Most time between two looks at a file that counts as silence: the watching process may have been stopped itself."""


@contextmanager
def pulse(path: Path, silence_seconds: float) -> Iterator[None]:
    """Touch `path` from a thread while the block runs, and remove it afterwards."""
    over = threading.Event()

    def beat() -> None:
        while True:
            with suppress(OSError):  # a file that cannot be created is not watched
                path.touch()
            if over.wait(silence_seconds / TOUCHES):
                return

    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(OSError):
            path.unlink()


class Watch:
    """Files that other processes touch. Only changes are compared, so that the clocks of machines may differ."""

    def __init__(self, silence_seconds: float) -> None:
        self._silence_seconds = silence_seconds
        self._seen: dict[Path, tuple[int, float, float]] = {}
        """Time of the last change as the file system gives it, time of the last look, and seconds of silence."""

    def silent(self, path: Path) -> bool:
        """Return whether a file was not touched for `silence_seconds`. A process without a file has not begun, or has ended.

        Call this at least every `MAX_GAP_SECONDS`.
        """
        now = time.monotonic()
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            self._seen.pop(path, None)
            return False
        before, looked, silence = self._seen.get(path, (changed, now, 0.0))
        silence = silence + min(now - looked, MAX_GAP_SECONDS) if changed == before else 0.0
        self._seen[path] = (changed, now, silence)
        return silence >= self._silence_seconds
