"""The log file of an attempt."""

import logging
import stat
from pathlib import Path

import pytest

from stages.workers.logs import logged


def test_a_log_is_for_its_user_alone(tmp_path: Path) -> None:
    """Messages of other programs may hold credentials of the environment."""
    for _ in range(2):
        with logged(tmp_path / "logs" / "a.log") as log:
            log.info("started")
    assert stat.S_IMODE((tmp_path / "logs" / "a.log").stat().st_mode) == 0o600
    assert (tmp_path / "logs" / "a.log").read_text().count("started") == 2


def test_a_log_on_a_disk_that_fails_loses_lines_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def emit(handler: logging.FileHandler, record: logging.LogRecord) -> None:
        try:
            raise OSError(5, "Input/output error")
        except OSError:
            handler.handleError(record)

    with logged(tmp_path / "a.log") as log:
        monkeypatch.setattr(logging.FileHandler, "emit", emit)
        log.info("lost")
    assert capsys.readouterr().err == ""
