"""Folders that all processes of pytest-xdist share, so that costly contents are made once; parameters by tier; public data."""

import fcntl
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

DONE = "done"


def rest_exhaustive(values: Iterable[Any], kinds: Collection[Any]) -> list[Any]:
    """Return parameters of which those that are not in `kinds`, one of each kind, are left to the exhaustive tests."""
    values = list(values)
    assert set(kinds) <= set(values), f"expected some of {values}, got {kinds}"
    return [value if value in kinds else pytest.param(value, marks=pytest.mark.exhaustive) for value in values]


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


ROOT = Path(__file__).resolve().parent.parent


def public_data(name: str) -> Path:
    """File or folder `name` below the folder that FEWSTEP_DATA names, or a usual one; where it is absent the test is skipped."""
    places = [Path(os.environ["FEWSTEP_DATA"])] if "FEWSTEP_DATA" in os.environ else [ROOT / "data", ROOT.parent / "shared/data"]
    found = next((place / name for place in places if (place / name).exists()), None)
    if found is None:
        pytest.skip(f"no {name}: set FEWSTEP_DATA to a folder that holds it")
    return found
