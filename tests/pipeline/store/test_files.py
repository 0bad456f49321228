"""Tests of small files."""

import errno
from pathlib import Path

import pytest

from pipeline.store.artifacts import write_atomically
from stages.errors import StageError


def test_a_full_disk_during_an_atomic_write_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StageError, match=r"run\.json: could not be written: No space left"):
        write_atomically(tmp_path / "run.json", "{}")
