"""GPU twins, on a GPU if there is one, else in Triton's interpreter on tensors of the CPU."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.reference import token_scores as slow
from models.common import top_k
from tests.kernels.test_token_scores import batch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # triton reads it when it is imported
pytest.importorskip("triton", reason="the package triton is not installed")

from kernels.gpu import token_scores as gpu  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with numpy


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kernels.gpu import token_score_kernels

TYPES = {"targets": "*i64", "rows": "*i64", "best": "*i64", "allowed": "*u8", "smoothing": "fp32", "penalty": "fp32"}
TYPES |= {"size": "i32", "most": "i32", "vertices": "i32"}
SIZES = {"block": 2048, "many": 64, "with_best": True, "count": 2}
for name in ("scores", "gradients", "best_tokens"):
    program = getattr(token_score_kernels, name)
    for logits in ("*fp32", "*bf16", "*fp16"):
        types = {x: "constexpr" if x in SIZES else TYPES.get(x, "*fp32") for x in program.arg_names} | {"logits": logits}
        sizes = {x: size for x, size in SIZES.items() if x in types}
        for capability in (80, 90):
            target, source = GPUTarget("cuda", capability, 32), ASTSource(program, types, constexprs=sizes)
            assert triton.compile(source, target=target, options={"num_warps": 8}).asm["cubin"]
    print(name)
"""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(gpu, "BLOCK", 32)
    monkeypatch.setattr(gpu, "MANY", 4)


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 6)),
    vocabulary=st.sampled_from([2, 15, 32, 33, 131]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    penalty=st.sampled_from([0.0, 0.02, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_is_the_reference(sizes, vocabulary, dtype, smoothing, penalty, seed):
    logits, targets, rows, upstream = batch(*sizes, vocabulary, dtype, seed)
    scores, best = torch.full(upstream.shape, 7.0), torch.full(upstream.shape[::2], 7)
    wanted, wanted_best, exact = scores.double().numpy(), best.clone().numpy(), logits.double().numpy()
    expected = slow.token_scores(exact, targets.numpy(), rows.numpy(), wanted, wanted_best, smoothing)
    logits, scores, best = (part.to(DEVICE) for part in (logits, scores, best))
    ids = [part.to(DEVICE) for part in (targets, rows)]
    normalisers = gpu.token_scores_(logits, *ids, scores, best, smoothing=smoothing)
    np.testing.assert_allclose(normalisers.cpu().numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scores.cpu().numpy(), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(best.cpu().numpy(), wanted_best)
    gradients = slow.token_gradients(exact, targets.numpy(), rows.numpy(), upstream.double().numpy(), expected, smoothing, penalty)
    gpu.token_gradients_(logits, *ids, upstream.to(DEVICE), normalisers, smoothing=smoothing, penalty=penalty)
    error = 1e-5 if dtype == torch.float32 else 2.0**-7
    np.testing.assert_allclose(logits.cpu().double().numpy(), gradients, rtol=error, atol=1e-5)


@given(
    rows=st.integers(1, 4),
    vocabulary=st.sampled_from([2, 31, 32, 33, 131]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    shares=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_the_best_tokens_are_the_lowest_allowed_ones_of_the_highest_logits(rows, vocabulary, dtype, shares, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-4, 5, (rows, vocabulary), generator=generator).to(dtype)
    logits[torch.rand(rows, vocabulary, generator=generator) < 0.2] = -math.inf
    allowed = torch.rand(vocabulary, generator=generator) < shares
    exact = logits.double()
    wanted, order = exact.masked_fill(~allowed, -math.inf).sort(dim=1, descending=True, stable=True)
    for count in (1, 2):
        normalisers, highest, best = (part.cpu() for part in gpu.best_tokens(logits.to(DEVICE), allowed.to(DEVICE), count))
        torch.testing.assert_close(normalisers.double(), exact.logsumexp(1), atol=1e-6, rtol=1e-6)
        assert torch.equal(highest.double(), wanted[:, :count])
        finite = wanted[:, :count] > -math.inf
        assert torch.equal(best[finite], order[:, :count][finite])


@pytest.mark.parametrize("count", [1, 2])
def test_ranks_tokens_as_torch_does(count):
    logits = torch.randn(4, 70, generator=torch.Generator().manual_seed(1), dtype=torch.float32) * 3
    logits[:, 5] = -math.inf
    never = torch.arange(70) == logits.argmax(1)[0]
    wanted = top_k.rank(logits, count, never, (3, 5))
    found = top_k.rank_in_one_sweep(logits.to(DEVICE), count, never.to(DEVICE), (3, 5))
    assert torch.equal(found.ids.cpu(), wanted.ids)
    for one, other in ((found.scores, wanted.scores), (found.given, wanted.given)):
        torch.testing.assert_close(one.cpu(), other, atol=1e-5, rtol=1e-5)
    assert not found.ids.eq(logits.argmax(1)[0]).any()
    assert (found.given[:, 1] == -math.inf).all()


def test_rows_without_a_number_have_tokens_of_the_vocabulary():
    logits = torch.full((3, 70), -math.inf, device=DEVICE)
    logits[1] = math.nan
    logits[2, 69] = 1.0
    normalisers, highest, best = gpu.best_tokens(logits, torch.ones(70, dtype=torch.bool, device=DEVICE), 2)
    assert normalisers[0] == -math.inf
    assert normalisers[1].isnan()
    assert ((best >= 0) & (best < 70)).all()
    assert best[2, 0] == 69
    assert highest[2].tolist() == [1.0, -math.inf]


def test_three_best_tokens_are_refused():
    with pytest.raises(ValueError, match="count: expected 1, or 2 of at least 2 tokens, got 3 of 70"):
        gpu.best_tokens(torch.zeros(1, 70, device=DEVICE), torch.ones(70, dtype=torch.bool, device=DEVICE), 3)


@pytest.mark.slow
def test_the_programs_compile_for_a_gpu(tmp_path):
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
    assert done.stdout.split() == ["scores", "gradients", "best_tokens"], done.stderr
