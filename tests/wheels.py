"""The wheel of this checkout, which compiles the extension for all levels."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture import ROOT


def shared_wheel(folder: Path) -> Path:
    """Return the wheel in `folder`. The first of the processes that share the folder builds it, the others wait for that one."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("*.whl")):
            build(folder)
    (found,) = folder.glob("*.whl")
    return found


def build(folder: Path) -> None:
    """Build the wheel, with the compiler's cache where there is one."""
    cache = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {}
    options = ["--quiet", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], env={**os.environ, **cache}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
