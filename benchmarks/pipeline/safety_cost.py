"""The seconds that a whole run spends on the safety of its store: syncs, digests, leases, and checks of files and numbers.

    python -m benchmarks.pipeline.safety_cost configs/demo.yaml --json build/safety_cost.json

The run is in one process. The functions of each row are replaced by ones that add up their time; one that calls another is counted
once, without the time of the other row. Seconds of threads add up as if they were in turns, so that the shares are upper bounds.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import fewstep.system.load
import models.bundle.directory
import models.bundle.weights
import models.training.averaging
import stages.train.state
from benchmarks.record import publish
from durable import RealDisk
from models.training.optimizer import Optimizer
from pipeline.commands.planning import planned
from pipeline.run import execute
from pipeline.store.artifacts import Store
from pipeline.store.lease import Lease

PARTS: dict[str, list[tuple[Any, str]]] = {
    "syncs": [(RealDisk, "sync"), (RealDisk, "sync_all")],
    "digests and manifests": [(Store, name) for name in ("verify", "commit", "digest", "check_unchanged")],
    "leases": [(Lease, name) for name in ("acquire", "renew", "check", "release", "watch")],
    "checksums of systems": [(module, "check_parts") for module in (fewstep.system.load, models.bundle.directory)],
    "finite numbers": [
        (Optimizer, "check"),
        *((module, "not_finite") for module in (models.bundle.weights, models.training.averaging, stages.train.state)),
    ],
}
"""The functions of each row, by where they are looked up."""


class Stopwatch:
    """The seconds and calls of functions by row, over all threads."""

    def __init__(self) -> None:
        self.seconds, self.calls = Counter[str](), Counter[str]()
        self._lock, self._inner = threading.Lock(), threading.local()

    def timed(self, row: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time added to `row`, but for that of timed functions within it."""

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            before, self._inner.seconds = getattr(self._inner, "seconds", 0.0), 0.0
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - begin
                with self._lock:
                    self.seconds[row] += spent - self._inner.seconds
                    self.calls[row] += 1
                self._inner.seconds = before + spent

        return run


def main() -> None:
    """Run a config in an empty store and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="A value in place of that of the config.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    args = parser.parse_args()
    watch = Stopwatch()
    for row, functions in PARTS.items():
        for place, name in functions:
            setattr(place, name, watch.timed(row, getattr(place, name)))
    with tempfile.TemporaryDirectory() as folder:
        settings, plan, store = planned(args.config, [*args.set, f"store.path={folder}/store"], until=None)
        begin = time.perf_counter()
        report = execute.run(settings, plan, store, config_file=str(args.config), in_process=True)
        total = time.perf_counter() - begin
    if report.failed:
        raise SystemExit(f"{args.config}: failed: {report.failed}")
    rows = [[row, f"{watch.calls[row]:,}", f"{watch.seconds[row]:.2f}", f"{watch.seconds[row] / total:.2%}"] for row in PARTS]
    safety = sum(watch.seconds.values())
    publish(
        args,
        section="The machinery",
        explanation=f"The share of safety in a run of {args.config} in one process, {total:.0f} s.",
        columns=["part", "calls", "seconds", "share of the run"],
        rows=[*rows, ["all", f"{sum(watch.calls.values()):,}", f"{safety:.2f}", f"{safety / total:.2%}"]],
        seed=None,
        rounds=1,
        spread=None,
        note="The seed is that of the config; one run.",
        figures={"total": total, "seconds": dict(watch.seconds), "calls": dict(watch.calls)},
    )


if __name__ == "__main__":
    main()
