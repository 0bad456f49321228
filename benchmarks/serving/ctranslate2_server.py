"""The server of `fewstep serve` with CTranslate2 as the engine of autoregressive systems.

    python -m benchmarks.serving.ctranslate2_server DIR [--port PORT ...]

It is the same program but for the engine, so that a comparison shows the engines alone. CTranslate2 ranks by its own scores: with
`rescore` each output would pass the network once more.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from fewstep.commands.serve import add_arguments, run
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.system import System
from models.bundle.directory import load_system


def load(directory: Path) -> System:
    """Return a system whose default search has the engine CTranslate2. Raises ValueError for a system that it does not support."""
    system = load_system(directory)
    if not isinstance(system.search, StepwiseSearch):
        raise ValueError(f"{directory}: expected a system of the family stepwise, got {system.family}")
    search = replace(system.search, engine="ctranslate2", rescore=False)
    if problems := [problem.text() for problem in system.problems(search)]:
        raise ValueError(f"{directory}: {'; '.join(problems)}")
    return replace(system, searches={system.default_search: search})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve systems with CTranslate2.")
    add_arguments(parser)
    sys.exit(run(parser.parse_args(), load))
