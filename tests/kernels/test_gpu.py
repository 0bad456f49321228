"""Kernels of a GPU, by the interpreter of Triton, against those of the CPU."""

import itertools
import math
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import lattice_viterbi
from kernels.reference import dag as reference
from kernels.reference import training as slow
from models.common import top_k
from tests.kernels.dag_graphs import (
    STEEP,
    Graphs,
    banded,
    extreme_graphs,
    figure_11,
    five_vertices,
    of_dense,
    paths,
    random_graphs,
    steep,
    uniform,
)
from tests.kernels.test_lattice import Lattices, by_hand, lattices, random_lattices
from tests.kernels.test_training import batch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # triton reads it when it is imported
pytest.importorskip("triton", reason="the package triton is not installed")

from kernels.gpu import dag, lattice  # noqa: E402
from kernels.gpu import token_scores as gpu  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with numpy


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kernels.gpu import dag_kernels, dag_path_kernels, lattice_kernels, token_score_kernels


def compiled(module, name, types, sizes, **given):
    program = getattr(module, name)
    types = {x: "constexpr" if x in sizes else types.get(x, "*fp32") for x in program.arg_names} | given
    sizes = {x: size for x, size in sizes.items() if x in types}
    for capability in (80, 90):
        source = ASTSource(program, types, constexprs=sizes)
        assert triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 8}).asm["cubin"]
    print(name)


TYPES = dict.fromkeys(("target_lengths", "graph_lengths", "vertices"), "*i64")
TYPES |= dict.fromkeys(("max_tokens", "max_vertices", "band", "per_sentence", "betas"), "i32")
SIZES = {"many": 64, "few": 32, "rows": 32, "columns": 64, "steps": 32, "block": 1024, "tiny": 1e-28}
for name in ("exponentials", "sums", "token_gradients", "transition_gradients"):
    compiled(dag_kernels, name, TYPES, SIZES)
compiled(dag_path_kernels, "best_paths", TYPES | {"predecessors": "*i32"}, SIZES)
TYPES = {"origins": "*i32", "slots": "i32", "candidates": "i32"}
TYPES |= dict.fromkeys(("min_lengths", "max_lengths", "path", "lengths"), "*i64")
compiled(lattice_kernels, "best_paths", TYPES, {"many": 64, "few": 64})
TYPES = {"targets": "*i64", "rows": "*i64", "best": "*i64", "allowed": "*u8", "smoothing": "fp32", "penalty": "fp32"}
TYPES |= {"size": "i32", "most": "i32", "vertices": "i32"}
for name in ("scores", "gradients", "best_tokens"):
    for logits in ("*fp32", "*bf16", "*fp16"):
        compiled(token_score_kernels, name, TYPES, {"block": 2048, "many": 64, "with_best": True, "count": 2}, logits=logits)
"""


@pytest.mark.slow
def test_the_programs_compile_for_a_gpu(tmp_path):
    """The compiler refuses programs that the interpreter accepts; compiling needs no GPU."""
    script = tmp_path / "compile.py"
    script.write_text(COMPILE, encoding="utf-8")
    settings = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], env=os.environ | settings, capture_output=True, text=True, check=False)
    graphs = ["exponentials", "sums", "token_gradients", "transition_gradients", "best_paths"]
    scores = [name for name in ("scores", "gradients", "best_tokens") for _ in range(3)]
    assert done.stdout.split() == [*graphs, "best_paths", *scores], done.stderr


reference_likelihood = of_dense(reference.dag_log_likelihood)
reference_alignment = of_dense(reference.dag_best_alignment)


def log_likelihood(tokens, transitions, *lengths):
    return dag.log_likelihood(tokens, banded(transitions.cpu(), beyond=torch.nan).to(DEVICE), *lengths)


def best_alignment(graphs):
    band = banded(graphs.transitions, beyond=torch.nan)
    return dag.best_alignment(*(x.to(DEVICE) for x in graphs._replace(transitions=band)))


def passes(graphs):
    scores = [x.to(DEVICE).requires_grad_() for x in graphs[:2]]
    found = log_likelihood(*scores, *(x.to(DEVICE) for x in graphs[2:]))
    return [x.detach().cpu() for x in (found, *torch.autograd.grad(found.sum(), scores))]


def expected(graphs):
    scores = [x.double().requires_grad_() for x in graphs[:2]]
    found = reference_likelihood(*scores, *graphs[2:])
    return [x.detach() for x in (found, *torch.autograd.grad(found.sum(), scores, materialize_grads=True))]


def close(found, wanted, atol, rtol):
    torch.testing.assert_close(found.double(), wanted.double(), atol=atol, rtol=rtol)


def test_known_answers():
    close(passes(figure_11("Yes"))[0], torch.tensor([math.log(0.76)]), 1e-6, 0)
    close(passes(five_vertices("A", "B"))[0], torch.tensor([math.log(117 / 1600)]), 1e-6, 0)
    close(passes(five_vertices("A"))[1][0, 1], torch.tensor([0, 0.454545, 0.181818, 0.363636, 0]), 1e-6, 0)
    graphs, exact = uniform(12, 6)
    close(passes(graphs)[0], torch.tensor([math.log(exact)]), 1e-6, 0)
    assert best_alignment(five_vertices("A", "B"))[0].tolist() == [[0, 1, 2, 4]]


@given(tokens=st.integers(1, 5), vertices=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_agrees_with_the_reference(tokens, vertices, seed):
    """Some lengths are impossible."""
    graphs = random_graphs(3, tokens, vertices, seed=seed)
    for found, wanted in zip(passes(graphs), expected(graphs), strict=True):
        close(found, wanted, 1e-9, 1e-9)
    for found, wanted in zip(passes(graphs.to(torch.float32)), expected(graphs), strict=True):
        close(found, wanted, 1e-4, 1e-4)


@given(graphs=extreme_graphs(most=7))
def test_extreme_scores_agree_with_the_reference(graphs):
    for found, wanted in zip(passes(graphs), expected(graphs), strict=True):
        close(found, wanted, 1e-7, 1e-9)


@pytest.mark.parametrize(("spread", "dtype"), [(30.0, torch.float32), (300.0, torch.float64)])
def test_sums_that_underflow_are_computed_in_log_space(spread, dtype):
    """The best step often leads to a vertex that is on no likely path."""
    graphs = random_graphs(3, 6, 70, seed=6, spread=spread).to(dtype)
    for found, wanted in zip(passes(graphs), expected(graphs), strict=True):
        close(found, wanted, 1e-3 if dtype == torch.float32 else 1e-9, 1e-4 if dtype == torch.float32 else 1e-9)


def test_sums_beyond_the_range_of_single_precision():
    slope, known = min(STEEP.items())
    graphs = steep(slope)
    found, wanted = passes(graphs), expected(graphs)
    close(found[0], torch.tensor([known]), 1e-6, 1e-7)
    for values, exact in zip(found, wanted, strict=True):
        close(values, exact, 1e-9, 1e-9)
    for values, exact in zip(passes(graphs.to(torch.float32)), wanted, strict=True):
        close(values, exact, 1e-3, 1e-4)


def test_more_vertices_than_a_program_takes_at_a_time():
    graphs = random_graphs(2, 5, 150, seed=1, spread=4.0)._replace(graph_lengths=torch.tensor([150, 71]))
    for found, wanted in zip(passes(graphs.to(torch.float32)), expected(graphs), strict=True):
        close(found, wanted, 1e-3, 1e-4)
    vertices, scores = best_alignment(graphs)
    wanted, wanted_scores = reference_alignment(*graphs)
    assert torch.equal(vertices.cpu(), wanted)
    close(scores.cpu(), wanted_scores, 1e-9, 1e-9)


@given(tokens=st.integers(1, 8), vertices=st.integers(1, 9), seed=st.integers(0, 2**32))
def test_the_best_path_is_the_lowest_of_equally_good_ones(tokens, vertices, seed):
    graphs = random_graphs(3, tokens, vertices, seed=seed)
    graphs = graphs._replace(tokens=graphs.tokens.round(), transitions=graphs.transitions.clamp_min(-9.0).round())
    found, scores = best_alignment(graphs)
    wanted, wanted_scores = reference_alignment(*graphs)
    assert torch.equal(found.cpu(), wanted)
    assert torch.equal(scores.cpu(), wanted_scores)


def test_garbage_around_a_sentence_is_never_read_and_a_broken_score_breaks_its_sentence_alone():
    graphs = random_graphs(3, 5, 9, seed=2)._replace(target_lengths=torch.tensor([4, 3, 5]), graph_lengths=torch.tensor([8, 7, 9]))
    clean = passes(graphs)
    t, j = torch.arange(5), torch.arange(9)
    inside = j < graphs.graph_lengths[:, None]
    emits = (t < graphs.target_lengths[:, None])[:, :, None] & inside[:, None]
    leads = (j > j[:, None]) & inside[:, None]
    dirty = graphs._replace(
        tokens=graphs.tokens.masked_fill(~emits, torch.nan), transitions=graphs.transitions.masked_fill(~leads, torch.nan)
    )
    for found, wanted in zip(passes(dirty), clean, strict=True):
        assert torch.equal(found, wanted)
    dirty.tokens[1, 1, 3] = torch.inf
    found = passes(dirty)
    assert found[0].isnan().tolist() == [False, True, False]
    for cells, wanted in zip(found[1:], clean[1:], strict=True):
        assert cells[1].count_nonzero() == 0
        assert torch.equal(cells[[0, 2]], wanted[[0, 2]])
    vertices, scores = best_alignment(dirty)
    assert scores.isnan().tolist() == [False, True, False]
    assert vertices[1].tolist() == [-1] * 5


def test_exactly_the_cells_of_paths_are_read():
    """A NaN invalidates the sentence if and only if a path meets it."""
    for tokens, vertices in ((2, 4), (3, 4)):
        graphs = random_graphs(1, tokens, vertices, seed=3)
        edges = {edge for path in paths(tokens, vertices) for edge in itertools.pairwise(path)}
        batch = Graphs(*(x.repeat_interleave(vertices**2, 0) for x in graphs))
        for cell in range(vertices**2):
            batch.transitions[cell, cell // vertices, cell % vertices] = torch.nan
        wanted = [(cell // vertices, cell % vertices) in edges for cell in range(vertices**2)]
        assert passes(batch)[0].isnan().tolist() == wanted
        assert best_alignment(batch)[1].isnan().tolist() == wanted


def test_lengths_beyond_the_arrays_have_no_path():
    graphs = random_graphs(2, 3, 5, seed=4)._replace(target_lengths=torch.tensor([4, 3]), graph_lengths=torch.tensor([5, 6]))
    for found in passes(graphs):
        assert torch.equal(found, torch.full_like(found, -torch.inf if found.ndim == 1 else 0.0))
    assert (best_alignment(graphs)[0] == -1).all()


def test_gradients_are_multiplied():
    graphs = random_graphs(2, 4, 7, seed=5)
    scores = [x.to(DEVICE).requires_grad_() for x in graphs[:2]]
    found = log_likelihood(*scores, *(x.to(DEVICE) for x in graphs[2:]))
    upstream = torch.tensor([2.0, -3.0], dtype=torch.float64)
    got = torch.autograd.grad(found, scores, upstream.to(DEVICE))
    for one, plain in zip(got, expected(graphs)[1:], strict=True):
        close(one.cpu(), plain * upstream[:, None, None], 1e-9, 1e-9)


def check_band(graphs, band):
    """Compare graphs with a band of transitions with dense ones."""
    cells = banded(graphs.transitions, band, beyond=torch.nan)
    size = graphs.transitions.size(1)
    outside = torch.ones(size, size).triu(band + 1) > 0
    wanted = expected(graphs._replace(transitions=graphs.transitions.masked_fill(outside, -torch.inf)))
    scores = [x.to(DEVICE).requires_grad_() for x in (graphs.tokens, cells)]
    lengths = [x.to(DEVICE) for x in graphs[2:]]
    found = dag.log_likelihood(*scores, *lengths)
    gradients = [x.cpu() for x in torch.autograd.grad(found.sum(), scores)]
    close(found.detach().cpu(), wanted[0], 1e-9, 1e-9)
    close(gradients[0], wanted[1], 1e-9, 1e-9)
    close(gradients[1], banded(wanted[2], band, beyond=0.0), 1e-9, 1e-9)
    best = dag.best_alignment(*(x.detach() for x in scores), *lengths)[0].cpu()
    assert torch.equal(best, reference.dag_best_alignment(graphs.tokens, cells, *graphs[2:])[0])


@given(tokens=st.integers(1, 5), vertices=st.integers(1, 6), band=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_a_band_is_that_of_dense_transitions(tokens, vertices, band, seed):
    check_band(random_graphs(3, tokens, vertices, seed=seed), band)


@given(tokens=st.integers(1, 5), more=st.integers(0, 4), band=st.integers(1, 8), tied=st.booleans(), seed=st.integers(0, 2**32))
def test_tiles_of_vertices_tokens_and_transitions_add_up(tokens, more, band, tied, seed):
    """Tiles so small that these graphs have many of them, at different ends; equal tokens make many paths equally good."""
    graphs = random_graphs(2, tokens, tokens + more, seed=seed, spread=20.0)
    if tied:
        graphs = graphs._replace(tokens=torch.zeros_like(graphs.tokens), transitions=graphs.transitions.clamp_min(-2.0).round())
    small = {"TILE": {torch.float64: 4}, "BEFORE": 2, "STEPS": 2, "ROWS": 4, "COLUMNS": 4, "CELLS": 32}
    with mock.patch.multiple(dag, **(small if DEVICE == "cpu" else {"CELLS": 32})):  # compiled products need 16 rows
        check_band(graphs, band)


# ---- best paths through lattices


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


# ---- scores of tokens


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
