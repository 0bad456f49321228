"""The machine and the versions of a measurement."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stages.workers.isa import isa_level


def environment(device: str, threads: int, *, ctranslate2: bool = False) -> dict[str, Any]:
    """Return the machine and the versions of a measurement, with that of CTranslate2 if asked for."""
    from importlib.metadata import version

    import torch

    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "cpu": cpu_model(), "isa": isa_level(),
        "cpus": os.cpu_count(), "threads": threads, "precision": "float32", "torch": torch.__version__,
        **({"ctranslate2": version("ctranslate2")} if ctranslate2 else {}), "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }  # fmt: skip


def cpu_model() -> str:
    """Return the name of the processor from the kernel."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


MAX_OTHER_WORK = 0.1
"""Share of the machine's processors that others may use during a timing: Ray's and the system's own processes use less."""
PROC = Path("/proc")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Fields of a line `cpu` in `/proc/stat`: user, nice, system, interrupts, soft interrupts, and time given to other guests."""
_PARENT = 1
_OWN_TIMES = slice(11, 15)
"""Fields behind the name in `/proc/PID/stat`: user and system time of a process and of its children that ended."""


class OtherWork:
    """A measurement, from its construction on, of the processor time of all processes but this one and its descendants.

    A load average would not do: it still holds the trainings that ended minutes before the timing.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._began = time.monotonic()
        self._before = _ticks(proc)

    def processors(self) -> float | None:
        """Return how many processors were busy with other work, on average; None where the kernel does not say."""
        after = _ticks(self._proc)
        seconds = time.monotonic() - self._began
        if self._before is None or after is None or not seconds:
            return None
        return max(0.0, (after - self._before) / os.sysconf("SC_CLK_TCK") / seconds)


def is_loaded(environment: Mapping[str, Any]) -> bool:
    """Return whether other processes used more than `MAX_OTHER_WORK` of the machine of a timing."""
    return (environment["other_processors"] or 0.0) > MAX_OTHER_WORK * float(environment["cpus"])


def _ticks(proc: Path) -> int | None:
    """Return the processor time of all other processes since the start of the machine; None without Linux's `/proc`."""
    try:
        fields = (proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        return sum(int(fields[number]) for number in _BUSY) - _own_ticks(proc)
    except (OSError, ValueError, IndexError):
        return None


def _own_ticks(proc: Path) -> int:
    """Return the processor time of this process and of its descendants."""
    parents, times = dict[int, int](), dict[int, int]()
    for path in proc.glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            process = int(path.parent.name)
            parents[process] = int(fields[_PARENT])
            times[process] = sum(map(int, fields[_OWN_TIMES]))
    own = {os.getpid()}
    while found := {process for process, parent in parents.items() if parent in own} - own:
        own |= found
    return sum(times.get(process, 0) for process in own)
