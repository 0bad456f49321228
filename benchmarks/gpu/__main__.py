"""Correctness and speed on a GPU, in one command that needs neither Ray, MLflow nor a network.

    python -m benchmarks.gpu [--device cuda] [--size base] [--precision float16] [--seconds 300] [--only checks graph] [--json FILE]

It measures the device's limits, checks kernels and engines against references on the CPU, decodes with every family at batch 1, 32
and 128, as do transformers and CTranslate2 where they are installed, compares the time of the loss of graphs (native and the
recurrence in torch) with that of a copy of the same memory, and the speed of training with that of a bare loop. Networks have
random weights and read and write 27 tokens.

Tasks run in a process of their own: one that fails, hangs or breaks the device says why, and the next one goes on. Each part has a
share of the time; tasks that would begin later are left out. Every result is printed and written at once. The exit code is 1 if a
check failed. `--device cpu --size tiny --precision float32` tries the program without a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.decoding.roofline import Phase, least_seconds, sentence_bytes, sentence_products
from benchmarks.gpu import BEGAN, agreement, decoding, limits, training
from benchmarks.gpu.limits import out_of_time
from benchmarks.gpu.worker import Row, Worker
from benchmarks.origin import command, commit, machine, versions

Result = dict[str, Any]


def summary(part: str, row: Row) -> str:
    """Return the result of one task in a line."""
    if "error" in row and not any(key.startswith("batch") for key in row):
        return f"FAILED: {row['error']}" if part == "checks" else str(row["error"])
    return {"limits": _limits, "checks": _check, "decoding": _decoding, "graph loss": _graph_loss, "training": _training}[part](row)


def _limits(row: Row) -> str:
    products = ", ".join(f"{name} {2 * value / 1e12:.1f}" for name, value in row["products"].items())
    replayed = "" if row["replay"] is None else f", in a graph {1e6 * row['replay']:.2f}"
    launches = f"microseconds a launch {1e6 * row['launch']:.2f}{replayed}"
    return f"{row['card']}: {row['bandwidth'] / 1e9:.0f} GB/s, TFLOP/s {products}, {launches}"


def _check(row: Row) -> str:
    return f"{'ok' if row['passed'] else 'FAILED'}, difference {row['difference']:.3g}"


def _graph_loss(row: Row) -> str:
    return ", ".join(f"{name} {value:.3f} ms" for name, value in row["ms"].items())


def _training(row: Row) -> str:
    return f"tokens/s bare {row['bare']:,.0f}, ours {row['ours']:,.0f}"


def _decoding(row: Row) -> str:
    parts = []
    for key, found in row.items():
        if key.startswith("batch"):
            share = f" ({found['share']:.1%} of the limits)" if "share" in found else ""
            parts.append(f"{key}: {found['ms']:.2f} ms{share}")
    return ", ".join([*parts, *([row["error"]] if "error" in row else [])])


def show(result: Result, batches: list[int]) -> None:
    """Print the results as tables."""
    print(f"\n{result.get('card', 'no card')}, torch {result['versions'].get('torch')}, {result['seconds']:.0f} s")
    for part in ("limits", "checks", "graph loss", "training"):
        for row in result[part]:
            print(f"{part:12}{row['name']:36}{summary(part, row)}")
    if result["decoding"]:
        head = "".join(f"{f'batch {batch}: ms':>16}{'sentences/s':>14}{'share':>8}" for batch in batches)
        print(f"{'decoding, ' + result['precision']:36}{head}")
    for row in result["decoding"]:
        measured = [(batch, row[f"batch {batch}"]) for batch in batches if f"batch {batch}" in row]
        text = "".join(_cells(batch, found) for batch, found in measured)
        print(f"{row['name']:36}{text} {row.get('error', '')}")


def _cells(batch: int, found: Row) -> str:
    share = f"{found['share']:.1%}" if "share" in found else ""
    return f"{found['ms']:16.2f}{1000 * batch / found['ms']:14.0f}{share:>8}"


PARTS = {"limits": 0.2, "checks": 0.4, "decoding": 0.85, "graph loss": 0.9, "training": 1.0}
"""The parts in their order, and the share of the time after which no task of a part begins. Time that a part leaves is the next
one's."""
TASK_SHARE = 0.3
"""The share of the time after which a task is stopped."""
GRACE_SHARE = 0.1
"""The share of the time for which a task may outlast its part."""
FIRST_SECONDS = 60
"""Time in which the driver of a GPU must answer."""


class Task(NamedTuple):
    """A measurement."""

    part: str
    name: str
    function: Callable[..., Row]
    """Takes the deadline of its part as `deadline` if `timed`."""
    timed: bool = False
    entry: decoding.Entry | None = None
    """The entry that is decoded, whose share of the limits is computed."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="base", choices=["tiny", "base"])
    parser.add_argument(
        "--precision", default="float16", choices=["float32", "float16", "bfloat16"], help="The precision of decoding."
    )
    parser.add_argument("--training-precision", default="bfloat16", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32, 128])
    parser.add_argument("--tokens", type=int, default=27)
    parser.add_argument("--batch-tokens", type=int, default=8192, help="Target tokens of an update.")
    parser.add_argument("--updates", type=int, default=5, help="Updates of a side in a round.")
    parser.add_argument("--graphs", nargs=3, type=int, default=[32, 40, 320], metavar=("B", "M", "L"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300.0, help="Time of the whole run, imports included.")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORDS", help="Tasks whose part or name contains one of these.")
    parser.add_argument("--json", type=Path, help="Write the results to this file.")
    return parser.parse_args()


def tasks(arguments: argparse.Namespace) -> Iterator[Task]:
    """Yield the tasks in their order."""
    device = arguments.device
    size = arguments.size
    rounds = arguments.rounds
    yield Task("limits", "bandwidth, products, launches", partial(limits.measure, device))
    for name in agreement.CHECKS:
        yield Task("checks", name, partial(agreement.check, name, device, size))
    setting = decoding.Setting(size, arguments.tokens, arguments.precision, device, tuple(arguments.batches))
    for name, entry in decoding.entries(setting).items():
        function = partial(decoding.measure, entry.make, size, setting.tokens, device, setting.batches, rounds)
        yield Task("decoding", name, function, True, entry)
    shape = tuple(arguments.graphs)
    yield Task("graph loss", "x".join(map(str, shape)), partial(agreement.loss_times, device, shape, rounds), True)
    for family in ("stepwise", "dag"):
        options = (family, size, arguments.training_precision, device, arguments.batch_tokens, arguments.updates, rounds)
        yield Task("training", family, partial(training.measure, *options), True)


def run(task: Task, worker: Worker, seconds: float) -> Row:
    """Return the result of a task in a run of `seconds`."""
    deadline = BEGAN + PARTS[task.part] * seconds
    now = time.monotonic()
    if out_of_time(deadline):
        return {"error": "TimeoutError: no time was left"}
    function = partial(task.function, deadline=deadline) if task.timed else task.function
    row = worker.call(function, min(TASK_SHARE * seconds, deadline + GRACE_SHARE * seconds - now))
    return {**row, "seconds": time.monotonic() - now}


def add_shares(row: Row, phases: list[Phase] | None, precision: str, measured: Row | None) -> None:
    """Add to the times of an entry what a sentence costs at least, and the share of the device's limits."""
    for key, found in row.items():
        if not key.startswith("batch") or phases is None:
            continue
        batch = int(key.split()[1])
        found |= {"bytes": sentence_bytes(phases, batch), "products": sentence_products(phases)}
        if measured is not None and "bandwidth" in measured:
            least = least_seconds(phases, batch, measured["bandwidth"], measured["products"][precision])
            found["share"] = 1000 * batch * least / found["ms"]


def write(result: Result, path: Path | None) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1), encoding="utf-8")


def main() -> int:
    arguments = parse()
    worker = Worker(arguments.device)
    if arguments.device == "cuda" and not worker.call(limits.has_gpu, FIRST_SECONDS).get("found"):
        print("device: expected a CUDA GPU that torch can use, found none; try --device cpu --size tiny --precision float32")
        return 2
    result: Result = {"command": command(), "commit": commit(), "machine": machine(), "versions": versions()}
    result["precision"] = arguments.precision
    result |= {part: [] for part in PARTS}
    for task in tasks(arguments):
        if not any(words in f"{task.part} {task.name}" for words in arguments.only):
            continue
        row = {"name": task.name, **run(task, worker, arguments.seconds)}
        if task.part == "limits":
            result["card"] = row.get("card")
        if task.entry is not None:
            add_shares(row, task.entry.phases, arguments.precision, next(iter(result["limits"]), None))
        result[task.part].append(row)
        result["seconds"] = time.monotonic() - BEGAN
        write(result, arguments.json)
        print(f"[{result['seconds']:6.1f} s] {task.part}: {task.name}: {summary(task.part, row)}", flush=True)
    worker.close()
    show(result, arguments.batches)
    return 0 if all(row.get("passed") for row in result["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
