"""The cost of the pipeline itself: a run of trivial steps on Ray, and the memory of the process that hands out many shards.

    python -m benchmarks.pipeline.overhead --steps 30 --shards 10000 --cpus 2 --json build/overhead.json

The memory is the private memory of a process (Linux).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import publish
from pipeline.config.schema import Cluster, RunConfig, StoreConfig, Tracking
from pipeline.plan.step import Builder
from pipeline.run import execute
from pipeline.store.artifacts import Store
from stages.artifacts import RECORDS, Text
from stages.context import StepContext
from stages.stage import Stage

MIB = 2**20
READ_EVERY = 500
"""Shards between two readings of the memory."""


@dataclass(frozen=True)
class After:
    before: tuple[Text, ...] = ()


@dataclass(frozen=True)
class Toy:
    number: int
    shards: int = 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--cpus", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


def write(inputs: After, config: Toy, context: StepContext) -> None:
    """Run a trivial step."""
    context.write_text(context.directory / "text", str(config.number))


def hand_out(inputs: After, config: Toy, context: StepContext) -> None:
    """Process many trivial shards; record the memory of this process now and then."""
    used: list[float] = []
    for done, _ in enumerate(context.workers.map(make_nothing, None, range(config.shards)), 1):
        context.progress(done, config.shards, "shards")
        if done % READ_EVERY == 0:
            gc.collect()
            used.append(own_memory())
    context.write_json(context.records("memory.json"), used)
    write(inputs, config, context)


def make_nothing(argument: None) -> Callable[[int], int]:
    return nothing


def nothing(shard: int) -> int:
    return shard


def own_memory() -> float:
    """Return the private MiB of this process (Linux, proc(5), smaps_rollup)."""
    fields = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(field[1]) for field in fields if field[0] in ("Private_Clean:", "Private_Dirty:")) * 1024 / MIB


def run(store: Store, builder: Builder, name: str, cpus: int) -> float:
    """Return the seconds of a whole run, including the start of Ray."""
    config = RunConfig(name=name, store=StoreConfig(path=store.root), cluster=Cluster(cpus=cpus), tracking=Tracking(enabled=False))
    begin = time.perf_counter()
    report = execute.run(config, builder.plan(), store, config_file=f"{name}.yaml")
    if report.failed:
        raise SystemExit(f"{name} failed: {report.failed}")
    return time.perf_counter() - begin


def steps(store: Store, count: int, cpus: int) -> float:
    """Run a chain of trivial steps, each of which needs the one before; return the seconds."""
    builder, stage = Builder(store.root), Stage("toy", 1, write, Text)
    last: tuple[Text, ...] = ()
    for number in range(count):
        last = (builder.add(stage, str(number), After(last), Toy(number)),)
    return run(store, builder, "chain", cpus)


def shards(store: Store, count: int, cpus: int) -> dict[str, Any]:
    """Run one step of many trivial shards; return its speed, and the growth in memory of this driver and of the step."""
    builder = Builder(store.root)
    made = builder.add(Stage("map", 1, hand_out, Text, distributes=True), "all", After(), Toy(0, count))
    gc.collect()
    before = own_memory()
    seconds = run(store, builder, "map", cpus)
    gc.collect()
    used = json.loads((made.path / RECORDS / "memory.json").read_text())
    return {
        "seconds": seconds,
        "shards_per_second": count / seconds,
        "driver_growth_mib": own_memory() - before,
        "step_growth_mib": max(used) - used[0],
        "step_mib": used,
    }


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        chain = steps(store, args.steps, args.cpus)
        found = shards(store, args.shards, args.cpus)
    speed = [f"{found['seconds']:.1f}", f"{found['shards_per_second']:,.0f}"]
    growth = [f"{found[key]:.1f} MiB" for key in ("driver_growth_mib", "step_growth_mib")]
    publish(
        args,
        section="The machinery",
        explanation="The cost of the pipeline itself, with the start of Ray, and the growth of its memory.",
        columns=["run", "seconds", "shards a second", "growth of the driver", "growth of the step"],
        rows=[
            [f"{args.steps} trivial steps in a chain", f"{chain:.1f}", "-", "-", "-"],
            [f"one step over {args.shards:,} trivial shards", *speed, *growth],
        ],
        seed=None,
        rounds=1,
        spread=None,
        note="Nothing is random; a single run has no spread.",
        figures={"chain_seconds": chain, **found},
    )


if __name__ == "__main__":
    main()
