"""Samples of the vocabulary that a graph's words are normalised over in training."""

import pytest
import torch

from models.dag.loss import loss
from models.dag.sampled_vocabulary import sample_vocabulary
from tests.models.dag.test_loss import PAIRS, batch_of, network

TARGETS = torch.tensor([[1, 5, 9, 5], [1, 9, 0, 0]])


def inputs(size=40, width=6):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(7, width, generator=generator), torch.randn(size, width, generator=generator)


def test_a_sample_holds_the_targets_and_the_stated_number_of_others():
    _, weight = inputs()
    words = sample_vocabulary(weight, TARGETS, 12)
    assert torch.equal(words.weight[words.targets], weight[TARGETS])
    assert len(words.weight.unique(dim=0)) == 4 + 12
    assert words.bias.tolist() == pytest.approx([0.0] * 4 + [torch.log(torch.tensor(36 / 12)).item()] * 12)


def test_normalisers_are_on_average_those_over_all_tokens():
    states, weight = inputs()
    torch.manual_seed(0)
    samples = [sample_vocabulary(weight, TARGETS, 12) for _ in range(4000)]
    sums = torch.stack([(states @ words.weight.t() + words.bias).exp().sum(1) for words in samples])
    error = sums.std(0) / len(sums) ** 0.5
    assert ((sums.mean(0) - (states @ weight.t()).exp().sum(1)).abs() < 4 * error).all()


@pytest.mark.parametrize("glancing", ["none", "number-random"])
def test_a_sample_of_everything_changes_neither_loss_nor_gradient(glancing):
    found = []
    for sampled in (None, 14, 99):
        model = network(glancing=glancing, sampled_tokens=sampled).train()
        torch.manual_seed(7)
        result = loss(model, batch_of(PAIRS), 1, 0.0)
        result.total.backward()
        found.append((result.total.item(), model.target_embedding.weight.grad.clone()))
    for total, gradient in found[1:]:
        assert total == pytest.approx(found[0][0], abs=1e-5)
        torch.testing.assert_close(gradient, found[0][1], rtol=1e-4, atol=1e-6)


def test_evaluation_is_over_all_tokens():
    batch = batch_of(PAIRS)
    with torch.no_grad():
        assert loss(network(sampled_tokens=1), batch, 1, 0.0).total == loss(network(), batch, 1, 0.0).total


def test_training_learns_from_a_sample():
    """The network that saw samples ranks by the loss over all words what it was taught."""
    model, batch = network(sampled_tokens=3, glancing="none"), batch_of(PAIRS)
    before = loss(model, batch, 1, 0.0).total.item()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    torch.manual_seed(1)
    for update in range(60):
        optimiser.zero_grad()
        loss(model.train(), batch, update, 0.0).total.backward()
        optimiser.step()
    assert loss(model.eval(), batch, 1, 0.0).total.item() < 0.3 * before
