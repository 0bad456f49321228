"""The machine and the versions of a measurement."""

from __future__ import annotations

import os
import platform
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
