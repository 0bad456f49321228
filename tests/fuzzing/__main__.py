"""Mutate files of systems and stores, and count outcomes: `python -m tests.fuzzing DIRECTORY... --trials N --json FILE`.

A directory with `system.json` is a system; any other one is a folder of artifacts. The exit code is 1 if a trial ended in a
traceback, a signal or a hang.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

from tests.fuzzing.artifacts import ArtifactTarget
from tests.fuzzing.systems import SystemTarget
from tests.fuzzing.trials import Outcome, run_trials

FINDINGS = ("traceback", "signal", "hang")


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--trials", type=int, default=10_000, help="Number of trials over all directories.")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="File for the counts and the findings.")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    started, found, each = time.monotonic(), [], -(-options.trials // len(options.directories))
    for directory in options.directories:
        seeds = range(options.first_seed, options.first_seed + each)
        found += [(directory.name, outcome) for outcome in trials(directory, seeds)]
        counts = Counter(outcome.kind for _, outcome in found)
        print(f"{directory.name}: {dict(counts)} after {time.monotonic() - started:.0f} s", flush=True)
        if options.json:
            options.json.write_text(json.dumps(record(found), indent=1, ensure_ascii=True) + "\n")
    return int(any(outcome.kind in FINDINGS for _, outcome in found))


def trials(directory: Path, seeds: range) -> list[Outcome]:
    """Return the outcomes of trials with one directory."""
    target = SystemTarget if (directory / "system.json").exists() else ArtifactTarget
    with tempfile.TemporaryDirectory() as scratch:
        return list(run_trials(partial(target, directory, Path(scratch)), seeds))


def record(found: list[tuple[str, Outcome]]) -> dict[str, object]:
    """Return counts by outcome, and all findings."""
    kinds = Counter(outcome.kind for _, outcome in found)
    findings = [{"directory": name, **outcome._asdict()} for name, outcome in found if outcome.kind in FINDINGS]
    return {"trials": len(found), "outcomes": dict(sorted(kinds.items())), "findings": findings}


if __name__ == "__main__":
    raise SystemExit(main())
