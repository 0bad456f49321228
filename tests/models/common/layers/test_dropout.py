import pytest
import torch

from models.common.layers.dropout import Dropout, dropout


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_drops_the_right_share_scales_the_rest_and_passes_gradient_only_there(probability, dtype):
    torch.manual_seed(5)
    x = torch.ones(501, 401, dtype=dtype, requires_grad=True)
    y = dropout(x, probability)
    kept = y != 0
    assert y.dtype == dtype
    assert abs(kept.float().mean().item() - (1 - probability)) < 0.005
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / (1 - probability)))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, y.detach())


def test_units_are_dropped_independently():
    torch.manual_seed(6)
    kept = (dropout(torch.ones(200_000), 0.5) != 0).float()
    for distance in range(1, 9):
        together = (kept[distance:] * kept[:-distance]).mean().item()
        assert abs(together - 0.25) < 0.005


def test_is_a_function_of_the_generator_and_off_outside_training():
    x = torch.randn(7, 13)
    torch.manual_seed(1)
    first = dropout(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(dropout(x, 0.5), first)
    assert not torch.equal(dropout(x, 0.5), first)
    assert dropout(x, 0.0) is x
    assert Dropout(0.5).eval()(x) is x
