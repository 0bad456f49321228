"""Runs of programs that are linked with libFuzzer."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def fuzz(
    program: Path, runs: int, megabytes: int, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> None:
    """Try inputs made from those of `given` beside the program, within a limit of memory; new ones are left in `found`.

    Raises AssertionError for a finding, which is left beside the program, and where no input reached new code.
    """
    folder = program.parent
    found = folder / "found"
    found.mkdir()
    limits = [f"-runs={runs}", "-timeout=100", f"-rss_limit_mb={megabytes}", "-print_final_stats=1", f"-artifact_prefix={folder}/"]
    # A program that is started counts the peak memory of its parent as its own, and libFuzzer reads that: a shell has little.
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    command = [*shell, str(program), *limits, *options, str(found), str(folder / "given")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert done.returncode == 0, f"{folder}: {done.stderr[-4000:]}"
    assert int(done.stderr.rpartition("stat::number_of_executed_units:")[2].split()[0]) >= runs
    assert list(found.iterdir()), "no input reached new code: the given ones are not read"
