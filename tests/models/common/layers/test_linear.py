"""Products with packed weights equal plain products."""

import pytest
import torch

from models.common.layers.linear import MIN_PACKED_PRODUCTS, MIN_PACKED_WEIGHTS, Linear, TokenTable, pack

PACKS = torch.backends.mkldnn.is_available()


@pytest.mark.skipif(not PACKS, reason="this PyTorch has no oneDNN")
@pytest.mark.parametrize("shape", [(MIN_PACKED_PRODUCTS // 128 + 1, 128), (3, 7, 256), (1, 1, 256)])
def test_packed_weights_give_the_same_products(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    network = torch.nn.ModuleList([Linear(shape[-1], 2048), TokenTable(2050, shape[-1])])
    x = torch.randn(shape)
    with torch.inference_mode():
        plain = network[0](x), network[1].logits(x)
        names = set(network.state_dict())
        pack(network)
        packed = network[0](x), network[1].logits(x)
    assert all(part.packed is not None for part in network)
    for got, expected in zip(packed, plain, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
    assert set(network.state_dict()) == names


@pytest.mark.skipif(not PACKS, reason="this PyTorch has no oneDNN")
def test_large_products_are_taken_from_the_packed_weights() -> None:
    layer = Linear(1024, 1024)
    x = torch.ones(1, 1024)
    with torch.inference_mode():
        pack(layer)
        layer.weight.zero_()
        assert layer(x).abs().sum() > layer.bias.abs().sum()
        assert torch.equal(layer(x[:, :0].new_zeros(0, 1024)), x.new_zeros(0, 1024))


def test_small_weights_stay_as_they_are() -> None:
    layer = Linear(128, MIN_PACKED_WEIGHTS // 128 - 1)
    pack(layer)
    assert layer.packed is None
