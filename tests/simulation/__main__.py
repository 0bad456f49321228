"""Run many histories: `python -m tests.simulation [--histories N] [--first SEED] [--processes N] [CLASS ...]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.histories import CLASSES, run_histories

SHARE = 250
"""Histories that a process runs at a time."""


def main() -> int:
    """Print for each fault class the histories, their faults and the violations. Return 1 if an invariant did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("classes", nargs="*", default=list(CLASSES), metavar="CLASS", help=f"Fault classes: {', '.join(CLASSES)}.")
    parser.add_argument("--histories", type=int, default=10_000, help="The histories of each class.")
    parser.add_argument("--first", type=int, default=0, help="The seed of the first history.")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    violated = False
    with ProcessPoolExecutor(options.processes) as pool:
        for kind in options.classes:
            began, counts, found = time.monotonic(), Counter[str](), dict[int, str]()
            end = options.first + options.histories
            shares = [range(first, min(first + SHARE, end)) for first in range(options.first, end, SHARE)]
            for more, violations in pool.map(run_histories, [kind] * len(shares), shares):
                counts += more
                found |= violations
            happened = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            print(f"{kind}: {len(found)} violations in {time.monotonic() - began:.0f} s: {happened}", flush=True)
            for seed, violation in list(found.items())[:5]:
                print(f"  {kind} {seed}: {violation}", flush=True)
            violated = violated or bool(found)
    return int(violated)


if __name__ == "__main__":
    sys.exit(main())
