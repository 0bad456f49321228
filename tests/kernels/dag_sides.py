"""The implementations of the sums and best paths of graphs that tests compare: the reference, and two routes of native code."""

import pytest
import torch

import kernels
from fewstep.native import fewstep_native
from kernels.reference import dag as reference
from tests.kernels.dag_graphs import banded, dense, of_dense

log_likelihood = of_dense(kernels.dag_log_likelihood)
max_log_likelihood = of_dense(kernels.dag_max_log_likelihood)
best_alignment = of_dense(kernels.dag_best_alignment)


def native(graphs, *, careful=False, threads=1):
    """Return likelihoods and posteriors of the extension itself."""
    band = banded(graphs.transitions, beyond=torch.nan)
    arrays = [x.contiguous().numpy() for x in graphs._replace(transitions=band)]
    found = torch.empty(len(graphs.tokens), dtype=graphs.tokens.dtype)
    cells = torch.full_like(graphs.tokens, torch.nan), torch.full_like(band, torch.nan)
    fewstep_native.dag_posteriors(*arrays, found.numpy(), *(x.numpy() for x in cells), log_space=careful, threads=threads)
    alone = torch.empty_like(found)
    fewstep_native.dag_log_likelihood(*arrays, alone.numpy(), log_space=careful, threads=threads)
    torch.testing.assert_close(alone, found, rtol=1e-9, atol=0, equal_nan=True)
    return found, cells[0], dense(cells[1])


def by_autograd(log_likelihood):
    def passes(graphs):
        scores = [x.clone().requires_grad_() for x in graphs[:2]]
        found = log_likelihood(*scores, *graphs[2:])
        return (found.detach(), *torch.autograd.grad(found.sum(), scores, materialize_grads=True))

    return passes


SIDES = {
    "reference": by_autograd(of_dense(reference.dag_log_likelihood)),
    "native": by_autograd(log_likelihood),
    "careful": lambda graphs: native(graphs, careful=True),
}
"""Likelihoods and gradients [B], [B,M,L], [B,L,L]."""
sides = pytest.mark.parametrize("side", SIDES)
aligners = pytest.mark.parametrize("align", [of_dense(reference.dag_best_alignment), best_alignment])


def close(found, expected, atol=1e-9, rtol=1e-9):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), atol=atol, rtol=rtol)
