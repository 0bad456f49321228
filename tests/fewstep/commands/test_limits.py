"""Commands on systems from elsewhere, with limits of memory and processor time: they end with words."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fewstep.system.format import write_json
from fewstep.system.integrity import seal
from tests.fewstep.systems import write_systems

MEMORY, SECONDS = 1 << 30, 20
SEARCHES = [
    ("ctc", "beam", "candidates", 1 << 62),
    ("aggressive", "tree", "tree_nodes", 1 << 61),
    ("cmlm", "passes", "iterations", (1 << 31) - 1),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["translate", "serve"])
def test_a_system_with_a_number_at_a_border_ends_a_command_with_words(command: str, tmp_path: Path) -> None:
    systems = write_systems(tmp_path)
    for name, label, option, value in SEARCHES:
        directory = shutil.copytree(systems[name], tmp_path / f"hostile-{name}")
        description = json.loads((directory / "system.json").read_text())
        description["searches"][label][option] = value
        write_json(directory / "system.json", seal(description))
        done = limited(command, str(directory))
        assert done.returncode in (1, 2)
        assert "Traceback" not in done.stderr
        assert f"{option}: expected a number of at most " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [150, 200, 300, 500])
def test_a_command_translates_or_says_that_memory_is_short(mebibytes: int, tmp_path: Path) -> None:
    done = limited("translate", str(write_systems(tmp_path)["autoregressive"]), memory=mebibytes << 20)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr


def limited(*arguments: str, memory: int = MEMORY) -> subprocess.CompletedProcess[str]:
    """Run a command of `fewstep` on a line of text, with limits."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    return subprocess.run(
        [sys.executable, "-m", "fewstep", *arguments],
        input="ein hund\n",
        text=True,
        capture_output=True,
        check=False,
        preexec_fn=limit,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
