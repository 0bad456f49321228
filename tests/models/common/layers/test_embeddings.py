import math

import torch
from torch import nn

from models.common.layers.embeddings import Embedding, Positions, embed, sinusoids
from models.common.layers.initialisation import initialise


def test_sinusoids_are_the_formula_with_halves_concatenated():
    codes = sinusoids(torch.tensor([0, 1, 7, 100]), 8)
    for row, position in enumerate([0, 1, 7, 100]):
        for j in range(4):
            angle = position * 10000 ** (-j / 3)
            assert math.isclose(codes[row, j], math.sin(angle), abs_tol=1e-5)
            assert math.isclose(codes[row, 4 + j], math.cos(angle), abs_tol=1e-5)


def test_a_negative_position_turns_only_the_sine_half():
    left, right = sinusoids(torch.tensor([5, -5]), 16)
    torch.testing.assert_close(right, torch.cat((-left[:8], left[8:])))


def test_embedding_is_scaled_and_positions_learned_on_request():
    table = Embedding(9, 16)
    torch.testing.assert_close(embed(torch.tensor([[3, 4]]), table), 4.0 * table.weight[None, 3:5])
    assert list(Positions("sinusoidal", 10, 16).parameters()) == []
    learned = Positions("learned", 10, 16)
    torch.testing.assert_close(learned(torch.tensor([2, 9])), learned.table.weight[[2, 9]])


def test_fresh_weights_have_their_spread():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(2000, 64), nn.Linear(64, 192))
    initialise(module)
    assert abs(module[0].weight.std().item() - 64**-0.5) < 0.002
    bound = math.sqrt(6 / (64 + 192))
    assert module[1].weight.abs().max() <= bound
    assert abs(module[1].weight.std().item() - bound / math.sqrt(3)) < 0.003
    assert module[1].bias.eq(0).all()
