"""The memory of one system: what its weights and the decoding of a batch add to a process."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from pathlib import Path


def resident_mib(field: str, process: int | str = "self") -> float:
    """Return `VmRSS`, the present memory of a process, or `VmHWM`, its peak, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def settle() -> None:
    """Return freed memory to the system and let the peak begin at the present memory."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def in_process(program: str, options: list[str], entry: str) -> float | None:
    """Return the memory of an entry in MiB by a process of its own, which prints it; None if the process failed, and say why."""
    command = [sys.executable, "-m", program, *options, "--memory-of", entry]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{entry}: memory was not measured: {done.stderr.splitlines()[-1:]}", file=sys.stderr)
        return None
    return float(done.stdout.split()[-1])
