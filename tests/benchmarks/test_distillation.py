"""The benchmark of distillation finds its folders."""

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pipeline import distillation


class ReachedError(Exception):
    pass


@pytest.mark.parametrize("options", [[], ["--work", "work", "--rows", "2"]])
def test_the_program_reaches_its_measurement(options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: dict[str, Any] = {}

    def measure(arguments: Any, folder: Path) -> None:
        measured.update(text=arguments.text, folder=folder, exists=folder.is_dir())
        raise ReachedError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(distillation, "measure", measure)
    monkeypatch.setattr(distillation, "cut", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["distillation", "data", "teacher", *options])
    with pytest.raises(ReachedError):
        distillation.main()
    assert measured["exists"]
    if options:
        assert (measured["folder"], measured["text"]) == (tmp_path / "work", tmp_path / "work/head")
    else:
        assert measured["text"] == tmp_path / "data"
