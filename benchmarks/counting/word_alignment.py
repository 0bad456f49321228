"""Word alignment: whole processes compared with upstream fast_align, and the traffic of EM over shards.

Both programs read the same file with the same flags (`-d -o -v`) and take turns. Without an upstream program (`--upstream`, or
fast_align on PATH) only ours is measured. Shards are processed one after the other, so that the time of the slowest is that of
a machine for each; counts go up and probabilities come down once in each of the first four iterations.

    python -m benchmarks.counting.word_alignment --source data/multi30k/train.en --target data/multi30k/train.de [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import publish, spread
from fewstep.native import fewstep_native as native
from kernels import AlignOptions
from kernels.fast_align import shards
from kernels.fast_align.em import Sums, fit_tension, summarise
from kernels.fast_align.shards import Part
from stages.benchmark.rivals.process import environment

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-d", "-o", "-v"]
PROGRAMS = ("native", "upstream")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "data/multi30k/train.en", help="A sentence a line, split at blanks.")
    parser.add_argument("--target", type=Path, default=ROOT / "data/multi30k/train.de")
    parser.add_argument("--upstream", default=shutil.which("fast_align"), help="The upstream program.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


def measured(command: list[str], threads: int, output: Path) -> dict[str, float]:
    """Return wall-clock and CPU seconds and peak memory (MB) of a process on `threads` cores, from its start to its end.

    Both programs use as many threads as they have cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    started = time.perf_counter()
    with output.open("wb") as out:
        os.sched_setaffinity(0, cores[:threads])  # the process inherits it
        try:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=environment({}), cwd=ROOT)
        finally:
            os.sched_setaffinity(0, cores)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: failed with status {status}")
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss * 1024 / 1e6,
    }


def programs(arguments: argparse.Namespace, lines: Path, folder: Path) -> dict[str, Any]:
    """Measure both programs in turns, and count the lines in which their links differ when upstream has one thread."""
    commands = {"native": [sys.executable, "-m", "kernels.fast_align"]}
    if arguments.upstream:
        commands["upstream"] = [arguments.upstream]
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for turn in range(arguments.rounds):
        for name in sorted(commands, reverse=turn % 2 == 1):
            command = [*commands[name], "-i", str(lines), *FLAGS]
            taken[name].append(measured(command, arguments.threads, folder / name))
    result: dict[str, Any] = {
        name: {key: statistics.median(one[key] for one in rounds) for key in rounds[0]} | {"rounds": rounds}
        for name, rounds in taken.items()
    }
    if arguments.upstream:
        measured([arguments.upstream, "-i", str(lines), *FLAGS], 1, folder / "exact")
        ours, theirs = ((folder / name).read_bytes().splitlines() for name in ("native", "exact"))
        result["lines_that_differ"] = sum(a != b for a, b in zip(ours, theirs, strict=True))
        result["ratio"] = statistics.median(
            theirs["seconds"] / ours["seconds"] for ours, theirs in zip(taken["native"], taken["upstream"], strict=True)
        )
    return result


def sharded(lines: Path, count: int, options: AlignOptions) -> dict[str, Any]:
    """Run EM over `count` shards of equal numbers of rows; return median seconds and bytes of one iteration."""
    whole_text = native.Bitext.read(str(lines))
    parts = cut(whole_text, count)

    def prepare(tension: float) -> list[native.Aligner]:
        return [shards.shard_aligner(text, options, tension) for text in parts]

    aligners = prepare(options.tension)
    local = [shards.cells_of(aligner) for aligner in aligners]
    started = time.perf_counter()
    whole = shards.merge_cells(local)
    places = [shards.cell_offsets(whole, cells) for cells in local]
    merging = time.perf_counter() - started
    sizes: dict[tuple[int, int], int] = {}
    for aligner in aligners:
        for m, n, pairs in aligner.sizes():
            sizes[m, n] = sizes.get((m, n), 0) + pairs
    listed = [(*size, sizes[size]) for size in sorted(sizes)]
    words = sum(aligner.target_words for aligner in aligners)
    tension = options.tension
    t = np.zeros(len(whole.columns))
    slowest = []
    reducing = []
    for number in range(options.iterations - 1):
        counted, seconds = [], []
        for text, place in zip(parts, places, strict=True):
            started = time.perf_counter()
            aligner = shards.shard_aligner(text, options, tension)
            if number:
                shards.take(aligner, whole.starts, place, t)
            counted.append(shards.expect(aligner, options.threads))
            seconds.append(time.perf_counter() - started)
        slowest.append(max(seconds))
        started = time.perf_counter()
        summary = summarise(sum((sums for _, sums in counted), start=Sums()), words)
        if number:
            tension = fit_tension(summary, tension, listed, options).tensions[-1]
        taken = [Part(cells.starts, place, one) for cells, place, (one, _) in zip(local, places, counted, strict=True)]
        shards.maximise(whole.starts, taken, options, t)
        reducing.append(time.perf_counter() - started)
    up = sum(counts.low.nbytes + counts.high.nbytes + 48 for counts, _ in counted)
    return {
        "shards": count,
        "cells": len(whole.columns),
        "cells_of_shards": sum(len(cells.columns) for cells in local),
        "megabytes_up": up / 1e6,
        "megabytes_down": sum(8 * len(cells.columns) + 8 for cells in local) / 1e6,
        "slowest_shard_seconds": statistics.median(slowest),
        "reducer_seconds": statistics.median(reducing),
        "merging_cells_seconds_once": merging,
        "tension": tension,
    }


def cut(text: native.Bitext, count: int) -> list[native.Bitext]:
    """Return the text in shards of equal numbers of pairs."""
    sides = [text.ids(target) for target in (False, True)]
    bounds = [text.pairs * k // count for k in range(count + 1)]
    parts = []
    for first, last in pairwise(bounds):
        rows = [(starts[first : last + 1] - starts[first], words[starts[first] : starts[last]]) for starts, words in sides]
        parts.append(shards.numbered_text(rows[0], rows[1], text.words, text.words))
    return parts


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = folder / "pairs"
        sides = [path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in (arguments.source, arguments.target)]
        lines.write_text("".join(f"{a} ||| {b}\n" for a, b in zip(*sides, strict=True)), encoding="utf-8")
        result: dict[str, Any] = {
            "pairs": len(sides[0]),
            "programs": programs(arguments, lines, folder),
            "sharded": [sharded(lines, count, AlignOptions(threads=arguments.threads)) for count in arguments.shards],
        }
    found = result["programs"]
    note = "Nothing is random."
    if "ratio" in found:
        note += f" {found['lines_that_differ']} lines of links differ from upstream with one thread."
    publish(
        arguments,
        section="Word alignment",
        explanation=f"Whole processes on {len(sides[0]):,} pairs, `{' '.join(FLAGS)}`, {arguments.threads} threads, in turns.",
        columns=["program", "wall time", "CPU time", "peak memory", "speed"],
        rows=rows(found),
        seed=None,
        rounds=arguments.rounds,
        spread=spread([[one["seconds"] for one in found[name]["rounds"]] for name in PROGRAMS if name in found]),
        note=note,
        figures=result,
    )
    show(result["sharded"])


def rows(found: dict[str, Any]) -> list[list[str]]:
    gain = f"{found['ratio']:.1f}x" if "ratio" in found else "-"
    return [
        [
            name,
            f"{found[name]['seconds']:.2f} s",
            f"{found[name]['cpu_seconds']:.2f} s",
            f"{found[name]['megabytes']:.1f} MB",
            gain if name == "native" else "1.0x",
        ]
        for name in PROGRAMS
        if name in found
    ]


def show(sharded: list[dict[str, Any]]) -> None:
    print("\nshards      cells   of shards    MB up  MB down  slowest shard   reducer")
    for one in sharded:
        print(
            f"{one['shards']:6} {one['cells']:10} {one['cells_of_shards']:11} {one['megabytes_up']:8.1f} "
            f"{one['megabytes_down']:8.1f} {one['slowest_shard_seconds']:12.3f} s {one['reducer_seconds']:8.3f} s"
        )


if __name__ == "__main__":
    main()
