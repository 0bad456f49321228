"""Measure the memory of a system in a separate process.

`python -m stages.benchmark.peak_memory` reads a request as JSON from stdin and prints the result as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fewstep.system.description import read_description
from models.bundle.directory import load_system
from models.family import family_named
from models.stepwise.ctranslate2_model import ctranslate2
from stages.benchmark.timing import timed_translator
from stages.errors import StageError


def peak_memory(system: Path, search: Mapping[str, Any], lines: Sequence[str], device: str, threads: int) -> dict[str, float]:
    """Return the increase of a process's memory in MiB: after loading the system (`loaded`), and the peak while it translates
    `lines` as one batch (`peak`). On a GPU also the peak of the memory that torch allocated there (`gpu`).

    Raises StageError when the process fails.
    """
    request = {"system": str(system), "search": dict(search), "lines": list(lines), "device": device, "threads": threads}
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", "stages.benchmark.peak_memory"],
        input=json.dumps(request),
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StageError(
            f"benchmark: expected a measurement of the memory of {system}, but the process failed: {done.stderr.strip()[-1000:]}; "
            "set benchmark.memory to false to skip it"
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _memory(key: str) -> float:
    """The current (VmRSS) or the peak (VmHWM) memory of this process in MiB. (`getrusage` would count memory of its parent.)"""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


def _measure(request: Mapping[str, Any]) -> dict[str, float]:
    torch.set_num_threads(request["threads"])
    search = family_named(read_description(Path(request["system"]))["family"]).search.from_values(request["search"])
    if search.uses_ctranslate2:
        ctranslate2()  # load the library first, so that its code is not counted
    before = _memory("VmRSS")
    system = load_system(request["system"], request["device"], verify=False)  # the benchmark has verified it
    loaded = _memory("VmRSS")
    timed_translator(system, search)(request["lines"])
    found = {"loaded": loaded - before, "peak": _memory("VmHWM") - before}
    if request["device"] != "cpu":
        found["gpu"] = torch.cuda.max_memory_allocated() / 2**20
    return found


if __name__ == "__main__":
    print(json.dumps(_measure(json.load(sys.stdin))))
