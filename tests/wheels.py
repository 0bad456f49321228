"""The wheel of this checkout, with the levels that it was compiled for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fewstep.native import fewstep_native
from tests.architecture import ROOT


def build(folder: Path) -> None:
    """Build the wheel into `folder`, from the objects of the checkout's own build where there is one."""
    cache = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {}
    options = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        f"--wheel-dir={folder}",
        f"--config-settings=cmake.define.FEWSTEP_LEVELS={'native' if fewstep_native.MISSING else 'all'}",
    ]
    options += [f"--config-settings=build-dir={built}" for built in (ROOT / "build/editable").glob("*")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], env={**os.environ, **cache}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
