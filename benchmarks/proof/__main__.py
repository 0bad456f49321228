"""A whole comparison on real text in minutes of a GPU, from text to figures, without Ray, MLflow or a network.

    python -m benchmarks.proof prepare configs/proof/multi30k.yaml [--to build/proof]      # where the text is
    python -m benchmarks.proof run [--to build/proof] [--out build/proof] [--seconds 540]  # where a GPU is, as often as needed
    python -m benchmarks.proof show [--to build/proof]                                     # the results so far

`prepare` makes all that needs no training, and leaves it in files of at most 16 MiB. `run` does what is missing, piece by piece:
it trains a teacher, distils, and trains, decodes, scores and times a system after the other. It ends in time, says what it left
out and why, and leaves its state in such files again, with which another session goes on; the results are in results.json. A piece
that fails is left out with what needs it, and tried again by the next session.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.origin import ROOT, command, commit, machine, versions
from benchmarks.proof import BEGAN, state
from benchmarks.proof.pieces import Proof, proof_of
from benchmarks.proof.results import markdown, results
from benchmarks.proof.session import Outcome, Session, attempt, card
from pipeline.plan.step import Plan
from pipeline.run import execute
from stages.errors import FewstepError

CONFIG, SESSIONS, STAMP = "config.json", "sessions.json", "state"
"""Files in the folder that a proof works in: its config with overrides, what became of the pieces in each session, and the digest
of the state from which the folder was made, or which was made from it."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "run", "show"])
    parser.add_argument("config", nargs="?", type=Path, help="The config, for `prepare`.")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="For `prepare`.")
    parser.add_argument("--to", type=Path, default=Path("build/proof"), help="Folder of the state.")
    parser.add_argument("--out", type=Path, help="Another folder for the state afterwards.")
    parser.add_argument("--seconds", type=float, default=540.0, help="Time of a session, from the beginning of this program.")
    parser.add_argument("--mebibytes", type=int, default=48, help="Largest size of the state.")
    return parser.parse_args()


def prepare(file: Path, overrides: Sequence[str], folder: Path, limit: int) -> None:
    """Make all that needs no training, and write the state. Raises what the pipeline raises, and FewstepError for a failed step."""
    place = work_of(folder)
    place.mkdir(parents=True, exist_ok=True)
    for path in state.text_files(proof_of(file, overrides, place).steps.values()):
        copy = place / path.relative_to(Path.cwd())
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    file = file.absolute()
    os.chdir(place)
    _write(Path(CONFIG), {"file": str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file), "overrides": list(overrides)})
    proof = proof_of(file, overrides, place)
    steps = tuple(proof.steps.values())
    found = execute.run(
        proof.settings, Plan(tuple(proof.before_training()), steps), proof.store, config_file=str(file), in_process=True
    )
    for error in found.failed.values():
        raise error
    keep(proof, folder, limit, stamp=True)
    for step in proof.missing():
        print(step.name)


def work_of(folder: Path) -> Path:
    """Return the folder that the proof works in, beside that of its state, which may have to be carried to another machine."""
    return folder.with_name(f"{folder.name}-work")


def opened(folder: Path) -> Proof:
    """Work in the folder of the proof, which is made from the state unless it belongs to it; return the proof."""
    place = work_of(folder)
    stamp = place / STAMP
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != state.digest(folder):
        state.read(folder, place)
        stamp.write_text(state.digest(folder), encoding="utf-8")
    os.chdir(place)
    config = json.loads(Path(CONFIG).read_text(encoding="utf-8"))
    return proof_of(ROOT / config["file"], config["overrides"], place)


def keep(proof: Proof, folder: Path, limit: int, *, stamp: bool) -> None:
    """Write the state into `folder`, and say what did not fit."""
    found = state.write(folder, state.items(proof), limit)
    if stamp:
        Path(STAMP).write_text(found["sha256"], encoding="utf-8")
    for name in found["left_out"]:
        print(f"the state has no room for {name}: it will be recomputed", file=sys.stderr)


def run(proof: Proof, folder: Path, out: Path, end: float, limit: int) -> int:
    """Run a session until `end` (of time.monotonic); return 1 if a piece failed, else 0."""
    origin = {"time": time.time(), "command": command(), "commit": commit(), "machine": machine(), "versions": versions()}
    if any(request.gpus for request in proof.settings.cluster.resources.values()):
        found = attempt(card, end) or ""
        if not found.startswith("{"):
            raise SystemExit(f"the GPU does not answer: {found}")
        origin["card"] = json.loads(found)
    earlier = json.loads(Path(SESSIONS).read_text(encoding="utf-8")) if Path(SESSIONS).is_file() else []

    def save(outcomes: list[Outcome]) -> None:
        session = {**origin, "seconds": round(time.monotonic() - BEGAN, 1), "pieces": [asdict(outcome) for outcome in outcomes]}
        _write(Path(SESSIONS), [*earlier, session])
        keep(proof, out, limit, stamp=out == folder)

    with _ended_by_sigterm():
        outcomes = Session(proof, end, save).run()
    show(proof, out)
    return int(any(outcome.outcome == "failed" for outcome in outcomes))


def show(proof: Proof, out: Path) -> None:
    """Print the results, and write them with those of all sessions into `out`."""
    found = results(proof)
    sessions = json.loads(Path(SESSIONS).read_text(encoding="utf-8")) if Path(SESSIONS).is_file() else []
    _write(out / "results.json", {**found, "sessions": sessions, "missing": [step.name for step in proof.missing()]})
    print(markdown(found))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the session as Ctrl-C does: the state is saved."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    arguments = parse()
    folder = arguments.to.absolute()
    limit = arguments.mebibytes << 20
    out = (arguments.out or folder).absolute()
    try:
        if arguments.command == "prepare":
            if arguments.config is None:
                raise SystemExit("prepare: expected the path of a config, got none; name one, such as configs/proof/multi30k.yaml")
            prepare(arguments.config, arguments.overrides, folder, limit)
            return 0
        proof = opened(folder)
        if arguments.command == "run":
            return run(proof, folder, out, BEGAN + arguments.seconds, limit)
        show(proof, out)
    except FewstepError as error:
        raise SystemExit(str(error)) from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
