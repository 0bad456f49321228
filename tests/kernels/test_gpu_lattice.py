"""GPU twins, on a GPU if there is one, else in Triton's interpreter on tensors of the CPU."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import lattice_viterbi
from tests.kernels.lattices import Lattices, by_hand, lattices, random_lattices

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # triton reads it when it is imported
pytest.importorskip("triton", reason="the package triton is not installed")

from kernels.gpu import lattice  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with numpy

COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kernels.gpu.lattice_kernels import best_paths

INTEGERS = {"origins": "*i32", "slots": "i32", "candidates": "i32"}
INTEGERS |= dict.fromkeys(("min_lengths", "max_lengths", "path", "lengths"), "*i64")
SIZES = {"many": 64, "few": 64}
types = {x: "constexpr" if x in SIZES else INTEGERS.get(x, "*fp32") for x in best_paths.arg_names}
for capability in (80, 90):
    made = triton.compile(ASTSource(best_paths, types, constexprs=SIZES), target=GPUTarget("cuda", capability, 32))
    assert made.asm["cubin"]
"""


def search(given_):
    return [x.cpu().numpy() for x in lattice.viterbi(*(torch.from_numpy(x).to(DEVICE) for x in given_))]


def test_by_hand():
    path, lengths, scores = search(by_hand(1, 3))
    assert (path.tolist(), lengths.tolist()) == ([[1, 0, -1]], [2])
    assert scores[0] == pytest.approx(-1.6)


@given(st.one_of(lattices(), lattices(np.float32)))
def test_agrees_with_the_cpu(given_):
    for found, wanted in zip(search(given_), lattice_viterbi(*given_), strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("candidates", [17, 130])
def test_several_tiles(candidates):
    given_ = random_lattices(2, 4, candidates, seed=candidates, dtype=np.float32, holes=0.3, grain=0.25)
    for found, wanted in zip(search(given_), lattice_viterbi(*given_), strict=True):
        assert np.array_equal(found, wanted)


def test_half_precision_is_widened():
    given_ = random_lattices(2, 5, 4, seed=3, dtype=np.float16)
    wide = Lattices(*(x.astype(np.float32) for x in given_[:3]), *given_[3:])
    for found, wanted in zip(search(given_), lattice_viterbi(*wide), strict=True):
        assert np.array_equal(found, wanted)


def test_a_window_outside_the_lattice_has_no_path():
    given_ = random_lattices(3, 4, 3, seed=2)._replace(min_lengths=np.array([0, 3, 1]), max_lengths=np.array([0, 2, 5]))
    path, lengths, scores = search(given_)
    assert (path == -1).all()
    assert lengths.tolist() == [0, 0, 0]
    assert (scores == -np.inf).all()


@pytest.mark.slow
def test_the_program_compiles_for_a_gpu(tmp_path):
    """The compiler refuses programs that the interpreter accepts; compiling needs no GPU."""
    script = tmp_path / "compile.py"
    script.write_text(COMPILE, encoding="utf-8")
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
