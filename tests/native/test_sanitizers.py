"""Teams of threads, parallel loops and the aligner under the sanitizers of addresses, undefined behaviour and threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "kernels"
SOURCES = [KERNELS / "csrc" / "base" / f"{name}.cc" for name in ("files", "thread_team")]


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_threads_share_loops_without_races(sanitizers: str, tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("the sanitizers need g++ or clang++")
    program = tmp_path / "threads"
    flags = ["-std=c++20", "-O1", "-g", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-pthread", "-I", str(KERNELS)]
    aligner = sorted((KERNELS / "csrc" / "ops" / "align").glob("*.cc"))
    files = [HERE / "threads.cc", *SOURCES, *aligner]
    subprocess.run([compiler, *flags, *map(str, files), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "all hold\n"), done.stderr[-4000:]
