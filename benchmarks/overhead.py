"""What the machinery itself costs: a run of trivial steps on Ray, and the memory of the process that hands out many shards.

python benchmarks/overhead.py --steps 30 --shards 10000 --cpus 2 --json build/overhead.json
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    parser.add_argument("--json", type=Path, help="where to write the result")
    return parser.parse_args()


def write(inputs: After, config: Toy, context: StepContext) -> None:
    """A trivial step."""
    context.write_text(context.directory / "text", str(config.number))


def hand_out(inputs: After, config: Toy, context: StepContext) -> None:
    """Many trivial shards; the memory of this process, now and then."""
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
    """MiB of this process that are its own (Linux, proc(5), smaps_rollup)."""
    fields = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(field[1]) for field in fields if field[0] in ("Private_Clean:", "Private_Dirty:")) * 1024 / MIB


def run(store: Store, builder: Builder, name: str, cpus: int) -> float:
    """Seconds of a whole run, the start of Ray among them."""
    config = RunConfig(name=name, store=StoreConfig(path=store.root), cluster=Cluster(cpus=cpus), tracking=Tracking(enabled=False))
    begin = time.perf_counter()
    report = execute.run(config, builder.plan(), store, config_file=f"{name}.yaml")
    if report.failed:
        raise SystemExit(f"{name} failed: {report.failed}")
    return time.perf_counter() - begin


def steps(store: Store, count: int, cpus: int) -> float:
    """A chain of trivial steps, each of which needs the one before."""
    builder, stage = Builder(store.root), Stage("toy", 1, write, Text)
    last: tuple[Text, ...] = ()
    for number in range(count):
        last = (builder.add(stage, str(number), After(last), Toy(number)),)
    return run(store, builder, "chain", cpus)


def shards(store: Store, count: int, cpus: int) -> dict[str, Any]:
    """One step of many trivial shards; own memory of this driver before and after, and of the step on the way."""
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
        print(f"{args.steps} trivial steps, one after the other, with the start of Ray: {chain:.1f} s")
        found = shards(store, args.shards, args.cpus)
        print(
            f"{args.shards:,} trivial shards: {found['seconds']:.1f} s ({found['shards_per_second']:,.0f}/s); own memory grew by "
            f"{found['driver_growth_mib']:.1f} MiB in the driver, {found['step_growth_mib']:.1f} MiB in the step handing out"
        )
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        machine = {"processor": platform.processor() or platform.machine(), "cpus": args.cpus, "python": platform.python_version()}
        result = {"machine": machine, "steps": args.steps, "chain_seconds": chain, "shards": args.shards, **found}
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
