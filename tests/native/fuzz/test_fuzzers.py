"""Fuzzers of the native readers (libFuzzer) with the address and undefined-behaviour sanitizers.

Each starts from the inputs of `corpus.json`, in base64. An input that ends in a finding is left in the folder that the message
names; with its fix it is added there (`base64 -w0 FILE`).
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.fuzz.libfuzzer import fuzz

HERE = Path(__file__).parent
KERNELS = HERE.parents[2] / "kernels"
CORPUS = json.loads((HERE / "corpus.json").read_text(encoding="utf-8"))
RUNS = [4_000, pytest.param(2_000_000, marks=pytest.mark.exhaustive)]
"""Inputs for each fuzzer."""

BASE = ["csrc/base/files.cc", "csrc/base/sha256.cc"]
ALIGN = [f"csrc/ops/align/{name}.cc" for name in ("bitext", "diagonal", "fast_align", "model", "prior", "support")]
SOURCES = {
    "counts": ["csrc/ops/candidates/counts.cc", "csrc/ops/candidates/merge.cc", "csrc/inference/candidates/tables.cc"],
    "tables": ["csrc/inference/candidates/tables.cc", "csrc/inference/candidates/lookup.cc"],
    "align_model": ALIGN,
    "ngram_counts": [
        *(f"csrc/ops/ngram/{name}.cc" for name in ("build", "corpus", "counts", "estimate", "positions", "run_file", "runs")),
        "csrc/inference/ngram/model.cc",
        "csrc/inference/ngram/text.cc",
    ],
    "ngram_model": ["csrc/inference/ngram/model.cc", "csrc/inference/ngram/text.cc"],
}
"""The files of each reader."""

OPTIONS = ["-std=c++20", "-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined", "-pthread"]


@pytest.mark.slow
@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("reader", SOURCES)
def test_a_reader_answers_or_refuses(reader: str, runs: int, tmp_path: Path) -> None:
    if shutil.which("clang++") is None:
        pytest.skip("libFuzzer needs clang++ (on Debian: clang)")
    program, given = tmp_path / reader, tmp_path / "given"
    includes = ["-I", str(KERNELS), "-I", str(HERE)]
    files = [str(HERE / f"{reader}.cc"), *(str(KERNELS / source) for source in [*SOURCES[reader], *BASE])]
    subprocess.run(["clang++", *OPTIONS, *includes, *files, "-o", str(program)], check=True)
    given.mkdir()
    for number, text in enumerate(CORPUS[reader]):
        (given / str(number)).write_bytes(base64.b64decode(text))
    fuzz(program, runs, megabytes=2048)


def test_each_reader_has_a_corpus() -> None:
    assert {reader for reader, inputs in CORPUS.items() if inputs} == set(SOURCES)
