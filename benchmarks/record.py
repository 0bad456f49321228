"""What benchmarks keep of a run: its figures, and where they come from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from stages.benchmark.timing import environment


def save(arguments: argparse.Namespace, **found: Any) -> None:
    """Write what was found to `arguments.json`, if it was asked for, with the arguments, the machine and the versions."""
    if arguments.json is None:
        return
    path: Path = arguments.json
    path.parent.mkdir(parents=True, exist_ok=True)
    conditions = {name: value for name, value in vars(arguments).items() if name != "json"}
    whole = {**found, "conditions": conditions, "environment": environment("cpu", torch.get_num_threads(), ctranslate2=True)}
    path.write_text(json.dumps(whole, indent=1, default=str) + "\n", encoding="utf-8")
