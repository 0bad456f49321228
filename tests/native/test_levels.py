"""The best instruction-set level is loaded, FEWSTEP_ISA chooses another, and what does not run here is refused.

Tests that need several levels run after `make LEVELS=all`, as in `make test-exhaustive`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fewstep_native import _processor

from fewstep.native import fewstep_native

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LEVELS = fewstep_native.LEVELS
INSTALLED = Path(fewstep_native.__file__).parent
KERNELS = ROOT / "kernels"
X86 = {
    "x86-64-v2": "-march=x86-64-v2",
    "x86-64-v3": "-march=x86-64-v3",
    "x86-64-v4": "-march=x86-64-v4",
    "x86-64-v4-vnni-bf16": "-march=x86-64-v4 -mavx512vnni -mavx512bf16",
}
"""Levels and the flags of each, as in `kernels/CMakeLists.txt`."""


def python(*arguments: str, isa: str = "", first: Path | None = None) -> "subprocess.CompletedProcess[str]":
    path = [*([str(first)] if first else []), str(INSTALLED.parent), *filter(None, sys.path)]
    environment = {**os.environ, "FEWSTEP_ISA": isa, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-S", *arguments]  # without site: an editable installation would be found first
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@cache
def products(isa: str) -> dict[str, Any]:
    done = python(str(HERE / "products.py"), isa=isa)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_best_level_is_loaded() -> None:
    assert products("")["level"] == LEVELS[-1]


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_multiplies_correctly_and_repeatably(level: str) -> None:
    found = products(level)
    assert (found["level"], tuple(found["levels"])) == (level, LEVELS)
    again = python(str(HERE / "products.py"), isa=level)
    assert json.loads(again.stdout) == found


@pytest.mark.slow
@pytest.mark.skipif("x86-64-v3" not in fewstep_native.LEVELS + fewstep_native.MISSING, reason="needs an x86-64 processor")
def test_products_are_equal_on_levels_with_fused_multiply_add(tmp_path: Path) -> None:
    """Outputs lie in the lanes, so that the width of the registers changes no sum. Products of two bfloat16 are exact.

    The products of the levels that this machine runs are compiled here, without optimisation beyond the first level.
    """
    found = {}
    for level, flags in X86.items():
        if level in _processor.levels():
            found[level] = compiled_products(tmp_path / level, flags)
    assert len({float32 for level, (float32, _, _) in found.items() if level != "x86-64-v2"}) == 1, found
    assert len({int8 for level, (_, int8, _) in found.items() if level in ("x86-64-v3", "x86-64-v4")}) == 1, found
    assert len({bfloat16 for _, _, bfloat16 in found.values()}) == 1, found


def compiled_products(program: Path, flags: str) -> tuple[str, ...]:
    """Return the digests of products in float32, int8 and bfloat16 of code that is compiled with `flags`."""
    sources = [*(KERNELS / "csrc/base").glob("*.cc"), *(KERNELS / "csrc/inference/gemm").glob("*.cc"), HERE / "products.cc"]
    options = ["-std=c++20", "-O1", "-ffp-contract=off", "-w", "-pthread", *flags.split(), f"-I{KERNELS}"]
    subprocess.run([os.environ.get("CXX", "g++"), *options, *map(str, sources), "-o", str(program)], check=True)
    return tuple(subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("wrong", ["x86-64-v9", "avx2", "x86-64-v2 "])
def test_a_level_that_does_not_exist_is_refused(wrong: str) -> None:
    done = python("-c", "import fewstep.native", isa=wrong)
    expected = rf"NativeError: .* FEWSTEP_ISA: expected one of {re.escape(', '.join(LEVELS))} .*, got {wrong}; unset it"
    assert re.search(expected, done.stderr), done.stderr


PRETEND = """
import sys, types
processor = types.ModuleType("fewstep_native._processor")
processor.levels = lambda: {levels!r}
processor.architecture = lambda: ""
sys.modules["fewstep_native._processor"] = processor
import fewstep_native
print(fewstep_native.LEVEL)
"""
"""The import on a processor that runs only some levels."""


def test_a_processor_below_the_installed_levels_is_refused() -> None:
    none = python("-c", PRETEND.format(levels=()))
    assert f"ImportError: fewstep_native: expected a processor that runs one of the levels {LEVELS[0]}" in none.stderr
    assert "got one that runs none, not even x86-64-v2 (SSE4.2 and POPCNT); use a newer machine" in none.stderr


@pytest.mark.skipif(not {"x86-64-v2", "x86-64-v3"} <= {*LEVELS}, reason="needs an x86-64 processor and all levels")
def test_lesser_processors() -> None:
    assert python("-c", PRETEND.format(levels=("x86-64-v2",))).stdout == "x86-64-v2\n"
    assert python("-c", PRETEND.format(levels=("x86-64-v2", "x86-64-v3"))).stdout == "x86-64-v3\n"
    more = python("-c", PRETEND.format(levels=("x86-64-v2",)), isa="x86-64-v3")
    assert (
        "FEWSTEP_ISA: expected one of x86-64-v2 (levels that are installed and that this processor runs), got x86-64-v3"
        in more.stderr
    )


@pytest.mark.skipif(len(LEVELS) < 2, reason="needs two levels")
def test_a_module_under_the_name_of_another_level_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "fewstep_native"
    shutil.copytree(INSTALLED, package)
    low, high = (next(package.glob(f"_{level.replace('-', '_')}.*")) for level in (LEVELS[0], LEVELS[-1]))
    shutil.copyfile(high, low)
    done = python("-c", "import fewstep_native", isa=LEVELS[0], first=tmp_path)
    assert f"expected the module of the level {LEVELS[0]}, got: " in done.stderr
    assert done.stderr.rstrip().endswith("reinstall the package")
    low.write_bytes(b"\x7fELF")
    cut = python("-c", "import fewstep_native", isa=LEVELS[0], first=tmp_path)
    assert f"expected the module of the level {LEVELS[0]}, got: " in cut.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", LEVELS[:-1])
def test_kernels_and_networks_on_lower_levels(level: str) -> None:
    """The best level is tested by the tests themselves; programs for GPUs have no levels."""
    folders = ["tests/kernels", "tests/fewstep/networks", "tests/fewstep/search", "--ignore-glob=*/test_gpu_*"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow and not exhaustive and not gpu", *folders]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "FEWSTEP_ISA": level}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
