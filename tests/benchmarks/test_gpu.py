"""The benchmark of GPUs runs on the CPU too, without the packages of the pipeline."""

import json
import os
import subprocess
import sys
import time
from functools import partial

import pytest
import torch

from benchmarks.gpu import __main__, decoding, rivals
from benchmarks.gpu.worker import Worker
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch

PROGRAM = """
import runpy, sys
sys.modules.update(ray=None, mlflow=None, pydantic=None)
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""
SMALL = ["--device", "cpu", "--size", "tiny", "--precision", "float32", "--training-precision", "float32"]
QUICK = ["--batch-tokens", "54", "--updates", "1", "--rounds", "1", "--graphs", "2", "4", "12", "--tokens", "5", "--batches", "1"]
PATIENT = ["--seconds", "600"]


def run(*options):
    """Run the program in a process in which ray, mlflow and pydantic cannot be imported."""
    return subprocess.run([sys.executable, "-c", PROGRAM, *options], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The results of a run and what it printed."""
    path = tmp_path_factory.mktemp("gpu") / "gpu.json"
    names = ("autoregressive 4-4 greedy", "aggressive", "lattice 16", "graph lookahead", "ctc")
    parts = ("limits", "checks", "graph loss", "training", *(f"decoding {name}" for name in names))
    found = run(*SMALL, *QUICK, *PATIENT, "--only", *parts, "--json", str(path))
    assert found.returncode == 0, found.stdout + found.stderr
    return json.loads(path.read_text(encoding="utf-8")), found.stdout


@pytest.mark.slow
def test_checks_pass_and_training_is_measured(finished):
    result, text = finished
    assert {row["name"]: row["passed"] for row in result["checks"]} == {
        "graph loss and gradients": True,
        "lattice search": True,
        "greedy and beam search": True,
        "coupled slots": True,
        "graph search": True,
        "draft and verify": True,
        "slots": True,
        "gradients of an update": True,
        "data-parallel training": True,
    }
    assert all(row["bare"] > 0 and row["ours"] > 0 for row in result["training"])
    assert result["graph loss"][0]["ms"].keys() == {"native", "torch", "copy"}
    assert text.count(" s] checks: ") == 9


@pytest.mark.slow
def test_entries_decode_and_costs_are_shares_of_the_limits(finished):
    result, _ = finished
    assert [row["name"] for row in result["decoding"]] == [
        "autoregressive 4-4 greedy",
        "graph lookahead",
        "lattice 16 candidates",
        "aggressive k15, all accepted",
        "aggressive k15, none accepted",
        "aggressive k15, tree of 16",
        "ctc greedy",
    ]
    for row in result["decoding"]:
        assert "error" not in row
        assert ("share" in row["batch 1"]) == ("tree" not in row["name"])
    (limits,), row = result["limits"], result["decoding"][0]
    least = 1000 * row["batch 1"]["bytes"] / limits["bandwidth"]
    assert row["batch 1"]["share"] >= 0.999 * least / row["batch 1"]["ms"]


@pytest.mark.slow  # the import of transformers takes long
@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_transformers_writes_as_many_tokens(strategy):
    pytest.importorskip("transformers")
    limits = OutputLimits(min_tokens=5, max_tokens=5)
    decode = rivals.transformers("tiny", (1, 1), StepwiseSearch(strategy=strategy, output_limits=limits), "cpu")
    assert [len(ids) for ids in decode([[8, 9, 10], [11, 12, 13]])] == [5, 5]


def test_tasks_without_time_say_so_and_a_missing_check_is_a_failure(tmp_path, monkeypatch):
    path = tmp_path / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu", *SMALL, *QUICK, "--seconds", "0", "--json", str(path)])
    assert __main__.main() == 1
    result = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for part in __main__.PARTS for row in result[part]]
    assert {row["error"] for row in rows} == {"TimeoutError: no time was left"}
    assert len(result["decoding"]) == 24


def test_the_first_entries_are_those_that_matter_most():
    setting = decoding.Setting("base", 27, "float16", "cuda", (1, 32))
    found = decoding.entries(setting)
    assert list(found)[:4] == [
        "autoregressive 6-6 greedy",
        "transformers 6-6 greedy",
        "ctranslate2 6-6 greedy",
        "autoregressive 6-1 greedy",
    ]
    _, _, decoder, output = found["autoregressive 6-6 greedy"].phases
    assert decoder.passes == output.passes == 27
    assert output.weights == 2 * 32000 * 512
    assert decoder.weights == 2 * 6 * (6 * 512**2 + 2 * 512 * 2048)


def process(value):
    return {"process": os.getpid(), "value": value}


def fail():
    raise ValueError("expected this")


@pytest.fixture
def worker():
    found = Worker("cpu")
    yield found
    found.close()


def test_an_error_keeps_the_process_and_one_that_ends_or_hangs_is_replaced(worker):
    first = worker.call(partial(process, 1), 600)
    error = worker.call(fail, 600)
    assert error["error"] == "ValueError: expected this"
    assert "in fail" in error["traceback"]
    assert worker.call(partial(process, 2), 600) == {"process": first["process"], "value": 2}
    ended = "RuntimeError: expected a result, but the process ended with exit code 3"
    assert worker.call(partial(os._exit, 3), 600) == {"error": ended}
    second = worker.call(partial(process, 3), 600)
    assert second["value"] == 3
    assert second["process"] not in (first["process"], os.getpid())
    assert worker.call(partial(time.sleep, 600), 0.1) == {"error": "TimeoutError: expected a result within 0 s, got none"}
    assert worker.call(partial(process, 4), 600)["process"] not in (first["process"], second["process"], os.getpid())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_program_names_the_alternative(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cuda"])
    assert __main__.main() == 2
    assert "expected a CUDA GPU that torch can use, found none; try --device cpu" in capsys.readouterr().out
