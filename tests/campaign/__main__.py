"""Kill and stop the processes of runs at random: `python -m tests.campaign --kills 200 --stops 1000 [--seed N] [--json FILE]`.

In each round two drivers make one tiny run on one store, with equal host names, in pid namespaces of their own or in that of the
machine, and with clocks that differ by up to a day. Three rounds of four are in process, and one is on Ray (`--ray-every`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.campaign.rounds import options, play
from tests.end_to_end.runs import Watched

KILLS, STOPS = 8, 40
"""Faults of a round."""
IN_PROCESS_SECONDS, ON_RAY_SECONDS = 30.0, 120.0
"""The time within which they are injected."""


def main() -> int:
    """Run the program. The exit code is 1 if a round failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="Number of SIGKILLs.")
    parser.add_argument("--stops", type=int, default=1000, help="Number of SIGSTOPs, each of which is followed by a SIGCONT.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the first round.")
    parser.add_argument("--ray-every", type=int, default=4, help="Number of rounds of which one is on Ray.")
    parser.add_argument("--json", type=Path, help="File for the counts.")
    arguments = parser.parse_args()
    counts, failures, started, seed = Counter[str](), list[str](), time.monotonic(), arguments.seed
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Watched(Path(folder) / "undisturbed", *options(on_ray=False))
        undisturbed.finish()
        while killed(counts) < arguments.kills or stopped(counts) < arguments.stops:
            on_ray, store = (seed + 1) % arguments.ray_every == 0, Path(folder) / f"round-{seed}"
            seconds = ON_RAY_SECONDS if on_ray else IN_PROCESS_SECONDS
            try:
                counts += play(seed, store, undisturbed, on_ray=on_ray, kills=KILLS, stops=STOPS, seconds=seconds)
            except AssertionError as error:
                failures.append(f"round {seed}: {error}")
                print(failures[-1], flush=True)
                shutil.copytree(store, f"{tempfile.gettempdir()}/failed-round-{seed}", symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(store, ignore_errors=True)
            seed += 1
            counts["rounds on Ray" if on_ray else "rounds in process"] += 1
            record = {"seconds": round(time.monotonic() - started), **counts, "failures": failures}
            print({**record, "failures": len(failures)}, flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(record, indent=1) + "\n")
    return int(bool(failures))


def killed(counts: Counter[str]) -> int:
    """Return the number of kills."""
    return counts["drivers killed"] + counts["workers killed"]


def stopped(counts: Counter[str]) -> int:
    """Return the number of stops."""
    return counts["drivers stopped"] + counts["workers stopped"]


if __name__ == "__main__":
    sys.exit(main())
