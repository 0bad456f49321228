"""Layers that all networks share: attention, dropout, embeddings, linear layers and logits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from models.common.layers import fused_attention
from models.common.layers.attention import CrossAttention, SelfAttention, attend, padding_mask
from models.common.layers.backbone import initialise
from models.common.layers.dropout import Dropout, dropout
from models.common.layers.embeddings import Embedding, Positions, embed, sinusoids
from models.common.layers.linear import MIN_PACKED_PRODUCTS, MIN_PACKED_WEIGHTS, Linear, TokenTable, pack
from models.common.layers.logits import CPU_LOGITS, CPU_ROWS, logits_parts, with_logits

# ---- attention


NEXT_TO_NOTHING = 1e-9
"""A probability of dropout that takes the code path of training but drops nothing."""


def by_hand(queries, keys, values, allowed):
    """Scaled dot-product attention of one head, query by query; `allowed` is [T,S]."""
    rows = []
    for query, seen in zip(queries, allowed, strict=True):
        weights = torch.softmax(torch.stack([query @ key for key in keys[seen]]) / query.numel() ** 0.5, 0)
        rows.append(weights @ values[seen])
    return torch.stack(rows)


@pytest.mark.parametrize("dropout", [0.0, NEXT_TO_NOTHING])
@pytest.mark.parametrize("causal", [False, True])
def test_both_ways_compute_attention(dropout, causal):
    torch.manual_seed(0)
    queries, keys, values = (torch.randn(2, 3, 5, 4) for _ in range(3))
    lengths = torch.tensor([5, 3])
    mask = None if causal else padding_mask(lengths, 5)
    mixed = attend(queries, keys, values, mask, causal=causal, dropout=dropout)
    for row in range(2):
        allowed = torch.ones(5, 5, dtype=torch.bool).tril() if causal else (torch.arange(5) < lengths[row]).expand(5, 5)
        for head in range(3):
            expected = by_hand(queries[row, head], keys[row, head], values[row, head], allowed)
            torch.testing.assert_close(mixed[row, head], expected, rtol=1e-5, atol=1e-5)


def test_dropout_falls_on_attention_weights():
    torch.manual_seed(0)
    queries, keys = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1000, 4)
    mixed = attend(queries, keys, torch.eye(1000)[None, None], None, dropout=0.25)
    assert abs((mixed != 0).float().mean().item() - 0.75) < 0.05
    torch.testing.assert_close(mixed[mixed != 0], torch.full_like(mixed[mixed != 0], 1e-3 / 0.75))


def test_no_mask_without_padding():
    assert padding_mask(torch.tensor([4, 4]), 4) is None
    assert padding_mask(torch.tensor([4, 2]), 4)[:, 0, 0].tolist() == [[True] * 4, [True, True, False, False]]


def test_rows_of_one_sentence_share_its_memory():
    torch.manual_seed(0)
    cross = CrossAttention(8, 2, 0.0).eval()
    encoded, mask = torch.randn(2, 5, 8), padding_mask(torch.tensor([5, 2]), 5)
    x = torch.randn(6, 3, 8)
    shared = cross(x, cross.memory(encoded, mask))
    repeated = cross(x, cross.memory(encoded.repeat_interleave(3, 0), mask.repeat_interleave(3, 0)))
    torch.testing.assert_close(shared, repeated)


def test_one_matrix_projects_queries_keys_and_values():
    assert {name: tuple(p.shape) for name, p in SelfAttention(8, 2, 0.0).named_parameters()} == {
        "projection.weight": (24, 8), "projection.bias": (24,), "output.weight": (8, 8), "output.bias": (8,),
    }  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
def test_training_mixes_alike_with_and_without_the_fused_kernel(causal, monkeypatch):
    """Outputs and all gradients agree for padded sequences over padded memories."""
    torch.manual_seed(0)
    own, cross = SelfAttention(16, 4, 0.0), CrossAttention(16, 4, 0.0)
    x, encoded, weights = torch.randn(3, 7, 16), torch.randn(3, 5, 16), torch.randn(3, 7, 16)
    mask = None if causal else padding_mask(torch.tensor([7, 4, 1]), 7)
    read = padding_mask(torch.tensor([5, 2, 3]), 5)
    leaves = [x.requires_grad_(), encoded.requires_grad_(), *own.parameters(), *cross.parameters()]
    found = []
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr(fused_attention, "applies", lambda *_: False)
        mixed = cross(own(x, mask, causal=causal), cross.memory(encoded, read))
        found.append([mixed, *torch.autograd.grad((mixed * weights).sum(), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_fused_kernel_drops_weights_by_the_state_of_the_generator():
    torch.manual_seed(0)
    queries, keys = torch.zeros(1, 1, 1000), torch.zeros(1, 1, 1000, 1000)
    values = torch.eye(1000)[None, None].requires_grad_()
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(fused_attention.cross_attention(queries, keys, values, None, dropout=0.25)[0, 0])
    mixed, again = found
    assert torch.equal(mixed, again)
    assert not torch.equal(mixed, fused_attention.cross_attention(queries, keys, values, None, dropout=0.25)[0, 0])
    assert abs((mixed != 0).float().mean().item() - 0.75) < 0.05
    torch.testing.assert_close(mixed[mixed != 0], torch.full_like(mixed[mixed != 0], 1e-3 / 0.75))
    (gradient,) = torch.autograd.grad(mixed.sum(), values)
    torch.testing.assert_close(gradient[0, 0].mean(1), mixed.detach())


@pytest.mark.parametrize("mask", [None, padding_mask(torch.tensor([6, 4]), 6)])
def test_self_attention_in_training_drops_weights(mask):
    torch.manual_seed(0)
    own, plain = SelfAttention(8, 2, 0.5), SelfAttention(8, 2, 0.0)
    plain.load_state_dict(own.state_dict())
    x = torch.randn(2, 6, 8)
    assert not torch.allclose(own(x, mask), plain(x, mask))
    torch.testing.assert_close(own.eval()(x, mask), plain(x, mask), rtol=1e-4, atol=1e-5)


# ---- dropout


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


# ---- embeddings


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


# ---- linear layers


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


# ---- logits


@given(count=st.integers(0, 3000), vocabulary=st.integers(1, 2 * CPU_LOGITS))
def test_parts_cover_all_rows_in_order_and_are_small_enough(count, vocabulary):
    parts = list(logits_parts(count, vocabulary, torch.device("cpu")))
    assert [row for part in parts for row in range(count)[part]] == list(range(count))
    sizes = [part.stop - part.start for part in parts]
    assert all(0 < size <= CPU_ROWS and (size == 1 or size * vocabulary <= CPU_LOGITS) for size in sizes)
    assert len(set(sizes[:-1])) <= 1


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("count", [0, 1, CPU_ROWS, 2 * CPU_ROWS + 3])
def test_logits_of_all_parts_are_those_of_one_product_and_share_memory(count, biased):
    states, weight, bias = torch.randn(count, 4), torch.randn(7, 4), torch.randn(7) if biased else None
    found, places = torch.empty(count, 7), set()
    for part, row in with_logits(states, weight, bias):
        found[part] = row
        places.add(row.data_ptr())
    torch.testing.assert_close(found, torch.nn.functional.linear(states, weight, bias))
    assert len(places) == min(count, 1)
