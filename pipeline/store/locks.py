"""Locks between the processes that use a store. Whoever waits for one says who holds it, since when, and what to do."""

from __future__ import annotations

import json
import logging
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pipeline.store.host import Host

log = logging.getLogger(__name__)


def locked(path: Path, host: Host, *, shared: bool = False) -> AbstractContextManager[None]:
    """Hold the lock on a file, exclusive unless `shared`. After half a second of waiting, and each minute, print who holds it."""
    holder = json.dumps({**host.process(), "command": _command(), "since": host.time()})
    return host.disk.lock(path, shared=shared, holder=holder, waiting=lambda found: log.warning("%s", _waiting(path, found)))


def _command() -> str:
    """Return the command of this process. Its arguments may contain credentials."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    return f"fewstep {name}" if name.isalpha() else "fewstep"


def _waiting(path: Path, content: str) -> str:
    try:
        holder = dict(json.loads(content))
        pid = int(holder["pid"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"{path}: waits for another process that holds this lock, and goes on as soon as that ends"
    host = holder.get("host")
    since = _date(holder.get("since"))
    return (
        f"{path}: waits for process {pid} of {host} ({holder.get('command')}), which has held this lock since {since}, and goes on "
        f"as soon as that ends. If it was suspended with Ctrl-Z, continue it with `fg` in its terminal or with `kill -CONT {pid}`; "
        f"`kill {pid}` ends it"
    )


def _date(moment: Any) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
    except (TypeError, ValueError, OverflowError):
        return "an unknown time"
