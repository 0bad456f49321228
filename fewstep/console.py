"""The program `fewstep` that an installation provides: the pipeline's in a checkout of the project, otherwise the runtime's.

A wheel holds the runtime alone. The commands of the pipeline include those of the runtime, with runs as a further way to name a
system. `python -m pipeline` and `python -m fewstep` start either of them.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from fewstep.__main__ import main as runtime

CHECKOUT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Run the command in `sys.argv` and return the exit code."""
    # Folders of installed packages have no pyproject.toml: a package of another project that is called pipeline is not meant.
    if not all((CHECKOUT / name).is_file() for name in ("pyproject.toml", "pipeline/__main__.py")):
        return runtime()
    sys.path.insert(0, str(CHECKOUT))
    runpy.run_module("pipeline", run_name="__main__", alter_sys=True)  # ends with SystemExit
    return 0
