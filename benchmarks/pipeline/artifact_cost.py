"""The time to commit, plan with and verify an artifact of many shards, compared with an earlier version of the pipeline.

    python -m benchmarks.pipeline.artifact_cost --before CHECKOUT --shards 10000 --rounds 5 --json build/artifact_cost.json

Both versions run in processes of their own, in alternation, on copies of the same files. The table has the median of each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys, time
from pathlib import Path
from pipeline.store.artifacts import Store
from pipeline.store.manifest import Manifest

root = Path(sys.argv[1])
store, directory = Store(root), root / "encode" / ("a" * 32)
described = dict(
    stage="encode", version=1, step="encode:a", fingerprint="a" * 32, config={}, inputs={}, environment={}, git_revision="",
    run_id="r", attempt="x", seconds=0.0, finished=0.0,
)
seconds = {}

def timed(name, call):
    started, used = time.perf_counter(), time.process_time()
    call()
    seconds[name] = time.perf_counter() - started
    seconds[name + " (processor)"] = time.process_time() - used

timed("commit", lambda: store.commit(directory, Manifest(**described, code_digest="")))
timed("plan", lambda: store.manifest(directory))
timed("verify, unchanged", lambda: store.verify(directory))
(store._stamp_file(directory)).unlink()
timed("verify, all bytes", lambda: store.verify(directory))
print(json.dumps(seconds))
"""
"""The program that both versions run."""
MODULES, EARLIER_MODULE = re.compile(r"pipeline\.store\.\w+"), "pipeline.store"


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="Checkout of the earlier version.")
    parser.add_argument("--extension", type=Path, help="Folder of its compiled extension.")
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=16_384, help="Size of a shard.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
    with tempfile.TemporaryDirectory() as folder:
        origin = Path(folder) / "shards"
        origin.mkdir()
        for number in range(options.shards):
            (origin / f"{number:05}.arrow").write_bytes(os.urandom(options.bytes))
        for _ in range(options.rounds):
            found["before"].append(measure(origin, Path(folder) / "store", options.before, options.extension))
            found["now"].append(measure(origin, Path(folder) / "store", ROOT, None))
    medians = {side: {name: statistics.median(one[name] for one in rounds) for name in rounds[0]} for side, rounds in found.items()}
    rows = [(name, medians["before"][name], medians["now"][name]) for name in medians["now"]]
    for name, before, now in rows:
        print(f"{name}: {before:.3f} s before, {now:.3f} s now, {now / before - 1:+.1%}")
    if options.json:
        options.json.write_text(json.dumps({"columns": ["call", "before", "now"], "rows": rows, "rounds": found}, indent=1) + "\n")


def measure(origin: Path, store: Path, checkout: Path, extension: Path | None) -> dict[str, float]:
    """Return the seconds of each call of one version on a new store."""
    shutil.rmtree(store, ignore_errors=True)
    earlier = checkout != ROOT
    partial = store / "encode" / ("a" * 32 + (".partial" if earlier else ".partial-x"))
    shutil.copytree(origin, partial / "shards")
    os.sync()
    program = MODULES.sub(EARLIER_MODULE, PROGRAM) if earlier else PROGRAM
    path = os.pathsep.join([str(checkout), str(extension or ""), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", program, str(store)]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()
