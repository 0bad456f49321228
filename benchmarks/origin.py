"""The origin of a run's figures: command, commit, machine and versions. On a GPU machine it does without pydantic."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stages.shared.environment import cpu_model

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "ray", "ctranslate2", "transformers", "triton")
SETTINGS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")
"""Environment variables that change speed."""


def command(argv: list[str] | None = None) -> str:
    """Return the command of this process, with the environment variables that change speed and without `--json FILE`."""
    words = list(sys.orig_argv if argv is None else argv)
    for place, word in enumerate(words):
        if word == "--json":
            del words[place : place + 2]
            break
    settings = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
    return " ".join([*settings, "python", shlex.join(words[1:])])


def commit(root: Path = ROOT) -> str | None:
    """Return the abbreviated hash of the checked out commit, with `-dirty` if files differ from it; None outside of a checkout."""
    git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return None if found.returncode else found.stdout.strip()


def machine() -> str:
    """Return the processor and the number of cores that this process may use."""
    return f"{len(os.sched_getaffinity(0))} cores of {cpu_model()}, {platform.system()}"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that figures depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
