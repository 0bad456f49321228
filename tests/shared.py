"""Folders that all processes of pytest-xdist share, so that costly contents are made once."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

DONE = "done"


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` has filled: the first process fills it, the others wait. Tests must not change it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / DONE).exists():
            make(folder / "content")
            (folder / DONE).touch()
    return folder / "content"
