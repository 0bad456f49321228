"""Time and memory of preparing text: the whole command up to token shards on growing numbers of synthetic pairs. For each step
seconds, CPU seconds, pairs per second and the peak memory of all its processes together (proportional set size). The clean text
must have the same bytes for any number of workers; one worker is the process of the step, without an actor.

    python -m benchmarks.pipeline.corpus_scale --pairs 1000000 5000000 --cpus 1 2 4 --json build/corpus_scale.json
    python -m benchmarks.pipeline.corpus_scale --pairs 20000000 --steps corpus:train
    python -m benchmarks.pipeline.corpus_scale --pairs 1000000 --steps corpus:train --tmx
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import publish
from pipeline.run.run_directory import Run

STEPS = ("corpus:train", "vocabulary:joint", "encode:raw")
WORDS = 60_000
CHUNK = 50_000
SAMPLE_SECONDS = 0.5


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 2_000_000, 5_000_000])
    parser.add_argument(
        "--cpus",
        type=int,
        nargs="+",
        default=[len(os.sched_getaffinity(0))],
        help="CPUs, which are workers too; one run for each number.",
    )
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, help="The steps that are measured, in this order.")
    parser.add_argument("--tmx", action="store_true", help="Write the pairs as the units of one TMX file.")
    parser.add_argument(
        "--folder", type=Path, help="The folder for texts and stores during the run; the system's temporary folder if not given."
    )
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


def vocabulary(generator: np.random.Generator) -> list[str]:
    """Return distinct words of 2 to 10 letters, the common ones short."""
    letters = np.array(list("etaoinshrdlucmfwypvbgkqjxz"))
    weights = 1 / np.arange(1, len(letters) + 1)
    words: dict[str, None] = {}
    while len(words) < WORDS:
        length = 2 + min(8, len(words) // 2000 + int(generator.integers(0, 4)))
        words["".join(generator.choice(letters, length, p=weights / weights.sum()))] = None
    return list(words)


def write_side(path: Path, pairs: int, seed: int) -> None:
    """Write sentences of 3 to 40 words that follow Zipf's law; every fiftieth pair is a copy of the first of its chunk."""
    generator = np.random.default_rng(seed)
    words = vocabulary(generator)
    shares = np.cumsum(1 / np.arange(3, WORDS + 3))
    lengths_of = np.random.default_rng(0)  # alike on both sides
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, pairs, CHUNK):
            count = min(CHUNK, pairs - start)
            lengths = lengths_of.integers(3, 41, count)
            drawn = np.searchsorted(shares, generator.random(int(lengths.sum())) * shares[-1]).tolist()
            ends = np.cumsum(lengths).tolist()
            lines = [" ".join([words[i] for i in drawn[end - n : end]]) for n, end in zip(lengths.tolist(), ends, strict=True)]
            lines[::50] = [lines[0]] * len(lines[::50])
            file.write("\n".join(lines) + "\n")


class Usage:
    """A thread that samples the memory and CPU time of a process and all of its descendants."""

    def __init__(self, pid: int) -> None:
        self.samples: list[tuple[float, int, float]] = []
        """Times, bytes of memory, and CPU seconds since the start."""
        self._cpu: dict[int, float] = {}
        """CPU seconds by process, also of those that have ended."""
        self._root = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def peak(self, start: float, end: float) -> float:
        """Return the highest number of MiB between two moments."""
        return max((used for moment, used, _ in self.samples if start <= moment <= end), default=0) / 2**20

    def cpu_seconds(self, start: float, end: float) -> float:
        """Return the CPU seconds of all processes between two moments."""
        inside = [seconds for moment, _, seconds in self.samples if start <= moment <= end]
        return max(inside, default=0.0) - min(inside, default=0.0)

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            processes = _descendants(self._root)
            self._cpu.update({pid: _cpu_seconds(pid) or self._cpu.get(pid, 0.0) for pid in processes})
            self.samples.append((time.time(), sum(map(_proportional_set_size, processes)), sum(self._cpu.values())))


def _descendants(root: int) -> set[int]:
    """Return the process and all of its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            children.setdefault(int(path.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(path.parent.name))
    found = {root}
    waiting = [root]
    while waiting:
        new = children.get(waiting.pop(), [])
        found.update(new)
        waiting += new
    return found


def _proportional_set_size(pid: int) -> int:
    """Return the bytes of memory of a process, shared pages divided among their users (Linux, proc(5), smaps_rollup)."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return 0


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, 0 if it has ended (Linux, proc(5), stat)."""
    with suppress(OSError):
        user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def write_text(pairs: int, folder: Path) -> dict[str, Path]:
    """Write `pairs` pairs of sentences; return the file of each side."""
    files = {side: folder / f"{pairs}.{side}" for side in ("source", "target")}
    for seed, path in enumerate(files.values(), 1):
        write_side(path, pairs, seed)
    return files


def as_tmx(sides: dict[str, Path]) -> dict[str, Path]:
    """Write the pairs as a translation memory, and remove the files of their sides."""
    path = sides["source"].with_suffix(".tmx")
    with path.open("w", encoding="utf-8") as memory, ExitStack() as stack:
        files = [stack.enter_context(side.open(encoding="utf-8")) for side in sides.values()]
        memory.write(
            '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n<header srclang="en" datatype="plaintext"/>\n<body>\n'
        )
        for number, (source, target) in enumerate(zip(*files, strict=True)):
            memory.write(
                f'<tu tuid="{number}"><tuv xml:lang="en"><seg>{source.rstrip()}</seg></tuv>'
                f'<tuv xml:lang="de"><seg>{target.rstrip()}</seg></tuv></tu>\n'
            )
        memory.write("</body>\n</tmx>\n")
    for side in sides.values():
        side.unlink()
    return {"tmx": path}


def measure(files: dict[str, Path], pairs: int, cpus: int, steps_measured: Sequence[str], folder: Path) -> dict[str, Any]:
    """Run on `pairs` pairs; return seconds, pairs a second and peak MiB by step, and the digest of the clean text."""
    size = sum(path.stat().st_size for path in files.values())
    store = folder / f"store-{pairs}"
    config = {
        "name": "scale",
        "corpus": {
            "train": {side: str(path) for side, path in files.items()},
            "validation": {"embedded": 100},
            "test": {"synthetic": {"embedded": 100}},
        },
        "vocabulary": {"size": 8000, "sentences": 20_000},
        "store": {"path": str(store)},
        "cluster": {"cpus": cpus},
        "tracking": {"enabled": False},
    }
    path = folder / f"{pairs}.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "pipeline", "run", str(path), "--until", steps_measured[-1]]
    process = subprocess.Popen(command, start_new_session=True)
    usage = Usage(process.pid)
    try:
        code = process.wait()
    finally:
        usage.stop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    if code:
        raise SystemExit(f"the run on {pairs} pairs ended with {code}")
    state = Run((store / "runs/latest").resolve()).state()
    steps = {name: state.steps[name] for name in steps_measured}
    result: dict[str, Any] = {
        "pairs": pairs,
        "cpus": cpus,
        "text_bytes": size,
        "peak_mib": usage.peak(0, time.time()),
        "corpus_sha256": clean_text_digest(store),
        "steps": {},
    }
    for name, step in steps.items():
        start, end = step.started or 0.0, step.finished or 0.0
        seconds = step.seconds or 0.0
        result["steps"][name] = {
            "seconds": seconds,
            "cpu_seconds": usage.cpu_seconds(start, end),
            "pairs_per_second": pairs / seconds,
            "peak_mib": usage.peak(start, end),
        }
    result["store_bytes"] = sum(p.stat().st_size for p in store.rglob("*") if p.is_file() and not p.is_symlink())
    shutil.rmtree(store)
    path.unlink()
    return result


def clean_text_digest(store: Path) -> str:
    """Return a digest of the files of the training text."""
    artifacts = [json.loads(path.read_text()) for path in (store / "corpus").glob("*/manifest.json")]
    files = next(manifest["files"] for manifest in artifacts if manifest["step"] == "corpus:train")
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def row(result: dict[str, Any]) -> list[str]:
    cells = [
        f"{one['seconds']:.1f} s ({one['cpu_seconds']:.1f} CPU s), {one['pairs_per_second']:,.0f}/s"
        for one in result["steps"].values()
    ]
    return [f"{result['pairs']:,}, {result['cpus']}", *cells, f"{result['peak_mib']:,.0f} MiB"]


def main() -> None:
    args = parse()
    results = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for pairs in args.pairs:
            files = write_text(pairs, Path(folder))
            if args.tmx:
                files = as_tmx(files)
            for cpus in args.cpus:
                results.append(measure(files, pairs, cpus, args.steps, Path(folder)))
                print(*row(results[-1]), file=sys.stderr, flush=True)
            if len({result["corpus_sha256"] for result in results if result["pairs"] == pairs}) > 1:
                raise SystemExit(f"{pairs} pairs: the bytes of the clean text depend on the number of workers")
            for path in files.values():
                path.unlink()
    publish(
        args,
        section="The machinery",
        explanation="Preparing synthetic text: time and pairs a second of each step, the peak memory of all processes together.",
        columns=["pairs, workers", *(f"`{step.partition(':')[0]}`" for step in args.steps), "memory"],
        rows=[row(result) for result in results],
        seed=1,
        rounds=1,
        spread=None,
        note="A single run has no spread.",
        figures=results,
    )


if __name__ == "__main__":
    main()
