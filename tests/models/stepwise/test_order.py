import pytest
import torch

from models.batch import collate
from models.family import EOS, PAD
from models.stepwise.config import ORDERS, Order
from models.stepwise.order import arrange, block_mask, permutation, restore

MATRICES = {
    1: "100000 110000 111000 111100 111110 111111",
    2: "110000 110000 111100 111100 111111 111111",
    3: "111000 111000 111000 111111 111111 111111",
    4: "111100 111100 111100 111100 111111 111111",
}


@pytest.mark.parametrize("step", MATRICES)
def test_masks_are_the_published_matrices(step):
    mask = block_mask(step, 6, torch.device("cpu"))
    assert " ".join("".join(str(int(seen)) for seen in row) for row in mask) == MATRICES[step]


@pytest.mark.parametrize("step", range(1, 7))
def test_each_row_sees_its_own_step_and_all_before(step):
    sums = block_mask(step, 17, torch.device("cpu")).sum(1).tolist()
    assert sums == [min(17, step * (row // step + 1)) for row in range(17)]


@pytest.mark.parametrize("arrangement", ["l2r", "r2l"])
def test_orders_are_bijections_that_restore(arrangement):
    order = Order(arrangement=arrangement)
    for length in range(40):
        index = permutation(order, torch.tensor([length]), length + 3)[0].tolist()
        assert sorted(index) == list(range(length + 3))
        assert index[length:] == list(range(length, length + 3))
        tokens = list(range(100, 100 + length))
        assert restore(order, [tokens[place] for place in index[:length]]) == tokens


@pytest.mark.parametrize("step", [1, 2, 3])
def test_flat_targets_end_once_at_n_and_fill_whole_steps(step):
    targets = [[11, 12, 13, 14, 15], [11], [11, 12]]
    batch = collate(range(3), targets, targets)
    for name, order in ORDERS.items():
        flat = arrange(Order(arrangement=order.arrangement, step_size=step), batch.target, batch.target_lengths)
        assert flat.size(1) % step == 0
        for row, target in zip(flat.tolist(), targets, strict=True):
            written = target[::-1] if name == "right-to-left" else target
            assert row == [*written, EOS] + [PAD] * (flat.size(1) - len(target) - 1)
