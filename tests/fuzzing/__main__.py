"""Mutate files of systems and stores, numbers of systems, or arguments of the compiled extension, and count outcomes:
`python -m tests.fuzzing {files,numbers,calls} [DIRECTORY...] --trials N --json FILE`.

A directory with `system.json` is a system; any other one is a folder of artifacts. Without directories, small systems of all
families and a store are made. A finding, which is a traceback, a signal or a hang, is shown at once with its text and kept in FILE,
and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.fuzzing.calls import CallTarget
from tests.fuzzing.store import ArtifactTarget
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
    parser.add_argument("--every", type=int, default=1, help="Difference between the seeds of a directory.")
    parser.add_argument("--json", type=Path, default=Path("build/fuzzing.json"), help="File for the counts and the findings.")
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
    """Return the outcomes of all trials with their directories. They are reported after each directory, findings at once."""
    started, found, each = time.monotonic(), list[tuple[str, Outcome]](), -(-options.trials // len(directories))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    for directory in directories:
        seeds = range(options.first_seed, options.first_seed + each * options.every, options.every)
        for outcome in trials(directory, seeds, numbers=options.kind == "numbers"):
            found.append((directory.name, outcome))
            if outcome.kind in FINDINGS:
                print(f"{directory.name}: seed {outcome.seed}: {outcome.kind}: {outcome.text!a}", flush=True)
                write_record(options.json, found)
        counts = Counter(outcome.kind for _, outcome in found)
        print(f"{directory.name}: {dict(counts)} after {time.monotonic() - started:.0f} s", flush=True)
        write_record(options.json, found)
    return found


def trials(directory: Path, seeds: range, *, numbers: bool = False) -> Iterator[Outcome]:
    """Yield the outcomes of trials with one directory, or with calls. `numbers`: of changed numbers of a system."""
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
        yield from run_trials(make, seeds, LITTLE_MEMORY if numbers or directory == CALLS else MEMORY)


def write_record(path: Path, found: list[tuple[str, Outcome]]) -> None:
    """Write counts by outcome, and all findings."""
    kinds = Counter(outcome.kind for _, outcome in found)
    findings = [{"directory": name, **outcome._asdict()} for name, outcome in found if outcome.kind in FINDINGS]
    record = {"trials": len(found), "outcomes": dict(sorted(kinds.items())), "findings": findings}
    path.write_text(json.dumps(record, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
