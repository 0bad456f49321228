"""The wheel of this checkout, which compiles the extension for all levels."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture import ROOT


def build(folder: Path) -> None:
    """Build the wheel into `folder`, from the objects of the checkout's own build where there is one: `make` compiles the same."""
    cache = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {}
    options = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        f"--wheel-dir={folder}",
        "--config-settings=cmake.define.FEWSTEP_LEVELS=",
    ]
    options += [f"--config-settings=build-dir={built}" for built in (ROOT / "build/editable").glob("*")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], env={**os.environ, **cache}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
