"""Files that are truncated while they are in use: small ones are read, so nothing is lost; other kinds of files are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import NgramModel, fast_align
from kernels.fast_align.model import AlignmentModel
from tests.kernels.candidate_tables import SMALL, build

PROGRAM = """
import os, sys
from fewstep import CandidateTables, NgramModel
from kernels.fast_align.model import AlignmentModel
tables, ngram, model = CandidateTables.load("tables.bin"), NgramModel.load("m.ngram"), AlignmentModel.load("m.align")
def answers():
    return tables.row(10, 0), tables.prior(2, 0), ngram.score(["a", "b"]), model.probability("a", "x"), tables.verify()
before = answers()
for name in ("tables.bin", "m.ngram", "m.align"):
    os.truncate(name, 0)
assert answers() == before
"""


def test_a_file_that_is_truncated_under_its_reader_does_no_harm(tmp_path: Path) -> None:
    """Before files were read, this process ended with SIGBUS."""
    build([SMALL], tmp_path)
    NgramModel.estimate([["a", "b"], ["b"]], 2, discount_fallback=(0.5, 1.0, 1.5)).save(tmp_path / "m.ngram")
    fast_align([(["a", "b"], ["x", "y"])]).model.save(tmp_path / "m.align")
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False
    )
    assert found.returncode == 0


@pytest.mark.parametrize("load", [NgramModel.load, AlignmentModel.load])
def test_pipes_and_devices_are_refused_without_waiting(tmp_path: Path, load: object) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises((OSError, ValueError), match=path.name):
            load(path)  # type: ignore[operator]
