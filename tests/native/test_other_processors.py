"""Processors that this machine does not have, emulated by QEMU: the choice of a level, and the numeric code of each."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fewstep.native import fewstep_native

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "kernels"
INSTALLED = Path(fewstep_native.__file__).parent
SOURCES = ("base/*.cc", "inference/gemm/*.cc", "inference/network/layer_norm.cc", "ops/dag/*.cc", "ops/training/fused_attention.cc")
X86 = {"Nehalem": "x86-64-v2", "Haswell": "x86-64-v3"}
"""Processors and their levels; Haswell has AVX2 and no AVX-512."""

pytestmark = pytest.mark.exhaustive


def program(name: str) -> str:
    if (found := shutil.which(name)) is None:
        pytest.skip(f"{name} is not installed (Debian: qemu-user, g++-aarch64-linux-gnu)")
    return found


def emulated(architecture: str, processor: str, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    emulator = [program(f"qemu-{architecture}"), "-cpu", processor]
    return subprocess.run([*emulator, *command], env={**os.environ, **variables}, capture_output=True, text=True)


def emulated_python(processor: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    interpreter = str(Path(sys.executable).resolve())
    path = os.pathsep.join([str(INSTALLED.parent), *filter(None, sys.path)])
    return emulated(
        "x86_64", processor, interpreter, "-S", *arguments, PYTHONPATH=path, FEWSTEP_ISA="", OPENBLAS_CORETYPE="Nehalem"
    )


needs_all_levels = pytest.mark.skipif("x86-64-v2" not in fewstep_native.LEVELS, reason="needs an x86-64 processor and all levels")


@needs_all_levels
@pytest.mark.parametrize("processor", X86)
def test_the_level_of_a_processor(processor: str) -> None:
    done = emulated_python(processor, str(HERE / "products.py"))
    assert done.returncode == 0, done.stderr
    assert f'"level": "{X86[processor]}"' in done.stdout


@needs_all_levels
def test_a_processor_below_the_lowest_level() -> None:
    done = emulated_python("core2duo", "-c", "import fewstep_native")
    assert "got one that runs none, not even x86-64-v2 (SSE4.2 and POPCNT); use a newer machine" in done.stderr


CASES = [
    ("x86_64", "Nehalem", "-march=x86-64-v2", "x86-64-v2"),
    ("x86_64", "Haswell", "-march=x86-64-v3", "x86-64-v2 x86-64-v3"),
    ("aarch64", "cortex-a57", "-march=armv8-a", "arm64"),
    ("aarch64", "max", "-march=armv8.2-a+dotprod", "arm64 arm64-dotprod"),
]


@pytest.mark.parametrize(("architecture", "processor", "flag", "levels"), CASES)
def test_the_numeric_code_of_a_level(architecture: str, processor: str, flag: str, levels: str, tmp_path: Path) -> None:
    compiler = program(f"{architecture}-linux-gnu-g++")
    program(f"qemu-{architecture}")
    sources = [str(path) for pattern in SOURCES for path in sorted((KERNELS / "csrc").glob(pattern))]
    options = ["-std=c++20", "-O2", "-ffp-contract=off", "-static", "-pthread", "-w", flag, f"-I{KERNELS}"]
    binary = tmp_path / "self_test"
    subprocess.run([compiler, *options, str(HERE / "self_test.cc"), *sources, "-o", str(binary)], check=True)
    done = emulated(architecture, processor, str(binary))
    assert (done.returncode, done.stdout.splitlines()[0].split()) == (0, levels.split()), done.stdout[-2000:]
