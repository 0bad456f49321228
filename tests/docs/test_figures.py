"""The committed figures are those that their programs draw."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT

FIGURES = ROOT / "docs/methods/figures"


def test_figures_of_methods_are_those_that_the_program_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(FIGURES / "draw.py"), str(tmp_path)], check=True)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg")}
    assert drawn == {path.name: path.read_text(encoding="utf-8") for path in FIGURES.glob("*.svg")}
