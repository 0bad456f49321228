import pytest
import torch

from models.common.layers import fused_attention
from models.common.layers.attention import CrossAttention, SelfAttention, attend, padding_mask

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
