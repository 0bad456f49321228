"""Glancing: the tokens shown in training, their number, and their effect on the paths."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.families.dag.config import DagConfig
from kernels import dag_log_likelihood
from models.common.glancing import ratio
from models.dag.glancing import Glance, choose, pinned, reveal
from tests.kernels.dag_graphs import banded

LENGTHS = torch.tensor([7, 4, 2])


def situation(seed):
    generator = torch.Generator().manual_seed(seed)
    vertices = torch.tensor([[0, 2, 3, 5, 8, 9, 11], [0, 1, 6, 7, -1, -1, -1], [0, 3, -1, -1, -1, -1, -1]])
    right = torch.rand(vertices.shape, generator=generator) < 0.5
    return vertices, right, torch.rand((3, 8), generator=generator)


def test_the_share_falls_evenly_and_then_stays():
    config = DagConfig(glancing_ratio=0.5, glancing_ratio_end=0.1, glancing_updates=200)
    assert [ratio(config, update) for update in (0, 100, 200, 10**9)] == pytest.approx([0.5, 0.3, 0.1, 0.1])


@given(st.integers(0, 1000), st.floats(0, 1))
def test_the_stated_share_of_tokens_is_shown(seed, share):
    vertices, right, noise = situation(seed)
    amounts = {
        "number-random": lambda length, correct, drawn: (length - correct) * share,
        "uniform": lambda length, correct, drawn: length * drawn,
        "fixed": lambda length, correct, drawn: length * share,
    }
    for name, amount in amounts.items():
        config = DagConfig(glancing=name, glancing_ratio=share, glancing_ratio_end=share)
        glance = choose(config, 1, vertices, right, LENGTHS, noise)
        correct = [int((right[row] & (vertices[row] >= 0)).sum()) for row in range(3)]
        assert glance.correct.tolist() == correct
        assert not glance.shown[vertices < 0].any()
        for row, shown in enumerate(glance.shown.sum(1).tolist()):
            exact = amount(int(LENGTHS[row]), correct[row], noise[row, -1].item()) + 0.5
            assert shown in {math.floor(exact - 1e-4), math.floor(exact + 1e-4)}


def test_all_or_nothing_is_shown_at_the_ends_of_the_range():
    vertices, right, noise = situation(0)
    nothing = choose(DagConfig(glancing="fixed", glancing_ratio=0, glancing_ratio_end=0), 1, vertices, right, LENGTHS, noise)
    everything = choose(DagConfig(glancing="fixed", glancing_ratio=1, glancing_ratio_end=1), 1, vertices, right, LENGTHS, noise)
    assert not nothing.shown.any()
    assert torch.equal(everything.shown, vertices >= 0)


def test_each_token_is_shown_by_itself_with_the_share_that_is_wrong():
    vertices = torch.arange(4).expand(20000, 4)
    right = torch.tensor([True, False, False, False]).expand(20000, 4)
    noise = torch.rand((20000, 5), generator=torch.Generator().manual_seed(0))
    config = DagConfig(glancing="bernoulli", glancing_ratio=0.8, glancing_ratio_end=0.8)
    shown = choose(config, 1, vertices, right, torch.full((20000,), 4), noise).shown.float()
    assert shown.mean(0).tolist() == pytest.approx([0.6] * 4, abs=0.015)
    assert shown.sum(1).var() == pytest.approx(4 * 0.6 * 0.4, abs=0.05)


def test_shown_tokens_stand_at_their_vertices():
    empty = torch.tensor([[1, 4, 4, 4, 2]])
    glance = Glance(torch.tensor([[0, 2, 4]]), torch.tensor([[False, True, False]]), torch.tensor([0]))
    assert reveal(empty, torch.tensor([[1, 9, 2]]), glance).tolist() == [[1, 4, 9, 4, 2]]


# Five vertices: transitions to the following ones, token probabilities by row over the vertices.
TRANSITIONS = [[0, 0.5, 0.25, 0.125, 0.125], [0, 0, 0.5, 0.25, 0.25], [0, 0, 0, 0.5, 0.5], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
TOKENS = [[1, 0, 0, 0, 0], [0.1, 0.5, 0.2, 0.4, 0.1], [0.1, 0.1, 0.6, 0.5, 0.1], [0, 0, 0.1, 0.2, 0.9]]


@pytest.mark.parametrize(("pin", "expected"), [("none", 117 / 1600), ("row", 9 / 160), ("column", 99 / 1600)])
def test_a_pinned_token_restricts_the_paths(pin, expected):
    tokens = torch.tensor([TOKENS]).log().requires_grad_()
    glance = Glance(torch.tensor([[0, 1, 2, 4]]), torch.tensor([[False, False, True, False]]), torch.tensor([0]))
    edges = banded(torch.tensor([TRANSITIONS]).log())
    found = dag_log_likelihood(pinned(tokens, glance, pin), edges, torch.tensor([4]), torch.tensor([5]))
    assert found.exp().item() == pytest.approx(expected, rel=1e-5)
    found.sum().backward()
    assert (tokens.grad[0, 2, 2] == 0) == (pin != "none")
    assert tokens.grad.isfinite().all()
