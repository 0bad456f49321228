"""Mutate files of systems and stores, numbers of systems, or arguments of the compiled extension, and count outcomes:
`python -m tests.fuzzing {files,numbers,calls} [DIRECTORY...] --trials N --json FILE`.

A directory with `system.json` is a system; any other one is a folder of artifacts. Without directories, small systems of all
families and a store are made. The exit code is 1 if a trial ended in a traceback, a signal or a hang.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.fuzzing.artifacts import ArtifactTarget
from tests.fuzzing.calls import CallTarget
from tests.fuzzing.systems import NumberTarget, SystemTarget
from tests.fuzzing.trials import LITTLE_MEMORY, MEMORY, Outcome, Target, run_trials

FINDINGS = ("traceback", "signal", "hang")
CALLS = Path("calls")
"""In place of a directory: the compiled extension."""


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["files", "numbers", "calls"])
    parser.add_argument("directories", nargs="*", type=Path)
    parser.add_argument("--trials", type=int, default=10_000, help="Number of trials over all directories.")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="File for the counts and the findings.")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch:
        directories = [CALLS] if options.kind == "calls" else options.directories or made(Path(scratch), options.kind)
        found = run(options, directories)
    return int(any(outcome.kind in FINDINGS for _, outcome in found))


def made(scratch: Path, kind: str) -> list[Path]:
    """Return small systems of all families, and a store of files."""
    from tests.fewstep.systems import write_systems
    from tests.fuzzing.store import write_store

    stores = [write_store(scratch / "store")] if kind == "files" else []
    (scratch / "systems").mkdir()
    return [*write_systems(scratch / "systems").values(), *stores]


def run(options: argparse.Namespace, directories: list[Path]) -> list[tuple[str, Outcome]]:
    """Return the outcomes of all trials with their directories, and report them after each directory."""
    started, found, each = time.monotonic(), [], -(-options.trials // len(directories))
    for directory in directories:
        seeds = range(options.first_seed, options.first_seed + each)
        found += [(directory.name, outcome) for outcome in trials(directory, seeds, numbers=options.kind == "numbers")]
        counts = Counter(outcome.kind for _, outcome in found)
        print(f"{directory.name}: {dict(counts)} after {time.monotonic() - started:.0f} s", flush=True)
        if options.json:
            options.json.write_text(json.dumps(record(found), indent=1, ensure_ascii=True) + "\n")
    return found


def trials(directory: Path, seeds: range, *, numbers: bool = False) -> list[Outcome]:
    """Return the outcomes of trials with one directory, or with calls. `numbers`: of changed numbers of a system."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        make: Callable[[], Target]
        if directory == CALLS:
            make = partial(CallTarget, scratch)
        elif numbers:
            make = partial(NumberTarget, directory, scratch)
        else:
            kind = SystemTarget if (directory / "system.json").exists() else ArtifactTarget
            make = partial(kind, directory, scratch)
        return list(run_trials(make, seeds, LITTLE_MEMORY if numbers or directory == CALLS else MEMORY))


def record(found: list[tuple[str, Outcome]]) -> dict[str, object]:
    """Return counts by outcome, and all findings."""
    kinds = Counter(outcome.kind for _, outcome in found)
    findings = [{"directory": name, **outcome._asdict()} for name, outcome in found if outcome.kind in FINDINGS]
    return {"trials": len(found), "outcomes": dict(sorted(kinds.items())), "findings": findings}


if __name__ == "__main__":
    raise SystemExit(main())
