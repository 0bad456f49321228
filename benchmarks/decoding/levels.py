"""The extension for all instruction-set levels compared with one that is compiled for this machine alone, in alternating rounds.

    python -m benchmarks.decoding.levels [--size tiny] [--batches 1 16] [--rounds 15] [--json FILE]

Compiles both into `build/levels/`, each of which a process of its own loads, with one thread. A round decodes the same sentences
with both, in alternating order. Networks are those of `base_size`, with random weights: greedy and beam search, a search over
graphs, lattices, and drafting with all drafts accepted, in float32 and int8. A figure is the speed of the build for all levels
relative to the other: the median over the rounds of the ratio of times.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.decoding.networks import VOCABULARY, sentences
from benchmarks.decoding.random_systems import Decode, by_drafts, by_graph, by_lattice, natively
from benchmarks.record import publish
from fewstep.config.network import SIZES
from fewstep.config.options import OutputLimits, Shortlist
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagSearch
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.stepwise.config import StepwiseSearch

ROOT = Path(__file__).resolve().parents[2]
BUILDS = {"all levels": "", "this machine": "native"}
"""Builds and their value of FEWSTEP_LEVELS."""
TOKENS = 27
SECONDS = 0.05
"""Decoding is repeated for at least this time in a round."""


def entries(size: str, batches: tuple[int, ...]) -> dict[str, Callable[[], Decode]]:
    """Return makers of decoders by name."""
    limits = OutputLimits(min_tokens=TOKENS, max_tokens=TOKENS)
    depth = SIZES[size]["encoder_layers"]
    found: dict[str, Callable[[], Decode]] = {}
    for precision in ("float32", "int8"):
        greedy = StepwiseSearch(rescore=False, precision=precision, output_limits=limits)
        beam = StepwiseSearch(strategy="beam", rescore=False, precision=precision, output_limits=limits)
        drafts = AggressiveSearch(
            draft_shortlist=Shortlist(tokens=2000, links=0),
            draft_precision=precision,
            verifier_precision=precision,
            output_limits=limits,
        )
        stepwise = partial(natively, size, (depth, depth), "autoregressive")
        found |= {
            f"greedy {precision}": partial(stepwise, greedy),
            f"beam 5 {precision}": partial(stepwise, beam),
            f"graph, lookahead {precision}": partial(by_graph, size, DagSearch(precision=precision)),
            f"graph, beam {precision}": partial(by_graph, size, DagSearch(strategy="beam", precision=precision)),
            f"lattice {precision}": partial(by_lattice, size, batches, TOKENS, LatticeSearch(candidates=16, precision=precision)),
            f"drafting {precision}": partial(by_drafts, size, "k4 shared 1-layer", True, drafts),
        }
    return found


def work(size: str, batches: tuple[int, ...]) -> None:
    """Time entries that are named on standard input, a JSON list [entry, batch] a line; print milliseconds a sentence."""
    import torch

    from fewstep.native import fewstep_native

    torch.set_num_threads(1)
    made = {name: make() for name, make in entries(size, batches).items()}
    print(json.dumps({"level": fewstep_native.LEVEL, "entries": list(made)}), flush=True)
    for line in sys.stdin:
        name, batch = json.loads(line)
        sources, began, count = sentences(batch, TOKENS, VOCABULARY[size]), time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < SECONDS or not count:
            made[name](sources)
            count += 1
        print(json.dumps(1000 * passed / count / batch), flush=True)


class Worker:
    """A process that has loaded one build."""

    def __init__(self, folder: Path, size: str, batches: Sequence[int]) -> None:
        path = [str(folder), str(ROOT), *filter(None, sys.path)]
        settings = {name: value for name, value in os.environ.items() if name != "FEWSTEP_ISA"}
        settings |= {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
        command = [
            sys.executable,
            "-S",
            "-m",
            "benchmarks.decoding.levels",
            "--work",
            "--size",
            size,
        ]  # -S: no editable installation
        self._process = subprocess.Popen(
            [*command, "--batches", *map(str, batches)],
            env=settings,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.described: dict[str, Any] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def milliseconds(self, entry: str, batch: int) -> float:
        """Return the time of a sentence in milliseconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([entry, batch]) + "\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def compiled(levels: str) -> Path:
    """Compile the extension, and return the folder that holds it."""
    folder, scripts = ROOT / "build/levels" / (levels or "all"), sysconfig.get_path("scripts")
    cmake, ninja = (shutil.which(name, path=scripts) or shutil.which(name) or name for name in ("cmake", "ninja"))
    options = [
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={ninja}",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DFEWSTEP_LEVELS={levels}",
    ]
    subprocess.run([cmake, "-S", ROOT / "kernels", "-B", folder, *options], check=True, stdout=sys.stderr)
    subprocess.run([cmake, "--build", folder], check=True, stdout=sys.stderr)
    return folder


def measured(workers: dict[str, Worker], names: Sequence[str], batches: Sequence[int], rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the times of each entry and batch by build. A first round warms up and is not counted."""
    for name in names:
        for batch in batches:
            times: dict[str, list[float]] = {build: [] for build in workers}
            for turn in range(rounds + 1):
                for build in list(workers)[:: 1 if turn % 2 else -1]:
                    taken = workers[build].milliseconds(name, batch)
                    if turn:
                        times[build].append(taken)
            yield {"entry": name, "batch": batch, "milliseconds": times, "speed": speed(times)}
            print(f"{name}, batch {batch}", file=sys.stderr, flush=True)


def speed(times: dict[str, list[float]]) -> float:
    """Return the speed of the first build relative to the second one."""
    first, second = times.values()
    return statistics.median(other / one for one, other in zip(first, second, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="tiny", choices=list(VOCABULARY))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", action="store_true", help="Be the process of one build.")
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.size, tuple(arguments.batches))
        return
    with ExitStack() as stack:
        workers = {name: Worker(compiled(levels), arguments.size, arguments.batches) for name, levels in BUILDS.items()}
        for worker in workers.values():
            stack.callback(worker.close)
        level, names = (next(iter(workers.values())).described[key] for key in ("level", "entries"))
        found = list(measured(workers, names, arguments.batches, arguments.rounds))
    ratios = [other / one / row["speed"] for row in found for one, other in zip(*row["milliseconds"].values(), strict=True)]
    publish(
        arguments,
        section="The build for all levels compared with one for this machine",
        explanation=(
            f"The speed of level `{level}` of the build for all levels, relative to that of `-march=native`: one thread, networks "
            f"of size `{arguments.size}`, {TOKENS} tokens in and out. At least 0.97 is expected."
        ),
        columns=["search", *(f"batch {batch}" for batch in arguments.batches)],
        rows=[[name, *(f"{row['speed']:.3f}" for row in found if row["entry"] == name)] for name in names],
        seed=1,
        rounds=arguments.rounds,
        spread=f"ratios of single rounds are {min(ratios):.0%} to {max(ratios):.0%} of their medians",
        figures=found,
    )


if __name__ == "__main__":
    main()
