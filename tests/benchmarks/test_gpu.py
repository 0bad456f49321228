"""The benchmark of GPUs runs on the CPU too, without the packages of the pipeline."""

import json
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import runpy, sys
sys.modules.update(ray=None, mlflow=None, pydantic=None)
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""
SMALL = ["--device", "cpu", "--size", "tiny", "--precision", "float32", "--training-precision", "float32"]
QUICK = ["--batch-tokens", "54", "--updates", "1", "--rounds", "1", "--graphs", "2", "4", "12", "--minutes", "0"]


def run(*options):
    """Run the program in a process in which ray, mlflow and pydantic cannot be imported."""
    return subprocess.run([sys.executable, "-c", PROGRAM, *options], capture_output=True, text=True, check=False)


def test_checks_pass_and_entries_without_time_say_so(tmp_path):
    found = run(*SMALL, *QUICK, "--json", str(tmp_path / "gpu.json"))
    assert found.returncode == 0, found.stdout + found.stderr
    result = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert {row["check"]: row["passed"] for row in result["checks"]} == {
        "graph loss and gradients": True,
        "lattice search": True,
        "greedy and beam search": True,
        "graph search": True,
        "draft and verify": True,
        "gradients of an update": True,
    }
    assert all(row["bare"] > 0 and row["ours"] > 0 for row in result["training"])
    assert {row["error"] for row in result["decoding"]} == {"TimeoutError: no time was left"}
    assert len(result["decoding"]) == 20


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_program_names_the_alternative():
    found = run("--device", "cuda")
    assert found.returncode == 2
    assert "expected a CUDA GPU that torch can use, found none; try --device cpu" in found.stdout
