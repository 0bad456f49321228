import string
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.families.stepwise.orders import ORDERS, GenerationOrder, OrderName
from fewstep.vocabulary import EOS, PAD
from models.common.layers.embeddings import sinusoids
from models.stepwise.arrangement import permutation, restore, step_mask
from models.stepwise.model import arrange, labelled
from models.stepwise.outputs import Outputs
from models.stepwise.slots import signed
from models.training.batch import collate

MASKS = {
    (1, 1): "100000 110000 111000 111100 111110 111111",
    (1, 2): "110000 110000 111100 111100 111111 111111",
    (1, 3): "111000 111000 111000 111111 111111 111111",
    (2, 1): "110000 110000 111100 111100 111111 111111",
    (2, 2): "111100 111100 111100 111100 111111 111111",
    (4, 1): "111100 111100 111100 111100 111111 111111",
}
MULTI = ORDERS["multi-directional"]
PRESETS = pytest.mark.parametrize("name", ORDERS)


def order_of(h, c):
    return GenerationOrder(arrangement={1: "l2r", 2: "fold"}.get(h, "multi"), directions=h, tokens_per_direction=c)


def drawn(mask):
    return " ".join("".join(str(int(seen)) for seen in row) for row in mask)


@pytest.mark.parametrize(("h", "c"), MASKS)
def test_masks_are_the_published_matrices(h, c):
    assert drawn(step_mask(order_of(h, c), 6, torch.device("cpu"))) == MASKS[h, c]


def test_masks_of_the_ablations():
    device = torch.device("cpu")
    independent = "100000 010000 101000 010100 101010 010101"
    assert drawn(step_mask(ORDERS["independent-directions"], 6, device)) == independent
    assert drawn(step_mask(ORDERS["causal-mask"], 6, device)) == MASKS[1, 1]


@pytest.mark.parametrize("step", range(1, 7))
def test_each_row_sees_its_own_step_and_all_before(step):
    sums = step_mask(GenerationOrder(tokens_per_direction=step), 17, torch.device("cpu")).sum(1).tolist()
    assert sums == [min(17, step * (row // step + 1)) for row in range(17)]


LETTERS = {  # lower case e: EOS
    "interleaved": ["Ae", "ABe-", "ACBe", "ADBCe-", "AEBDCe", "AFBECDe-"],
    "semi-autoregressive": ["Ae", "ABe-", "ABCe", "ABCDe-", "ABCDEe", "ABCDEFe-"],
    "interleaved-sa": ["Ae--", "ABe-", "ACBe", "ADBCe---", "AEBDCe--", "AFBECDe-"],
    "double-token-r2l": ["Ae", "BAe-", "CBAe", "DCBAe-", "EDCBAe", "FEDCBAe-"],
    "middle-to-side": ["Ae", "BAe-", "BCAe", "CBDAe-", "CDBEAe", "DCEBFAe-"],
    "bidirectional-autoregressive": ["Ae", "ABe", "ACBe", "ADBCe", "AEBDCe", "AFBECDe"],
}
MULTI_LETTERS = [(4, 6, "ADCFBEe-"), (4, 7, "AEDGBFCe"), (4, 9, "AFEIBGDHCe--"), (6, 8, "ADGCFHBEe---")]


def flat_of(order, length):
    """Return the flat target of A, B, C, ... as letters."""
    target = [ord(letter) for letter in string.ascii_uppercase[:length]]
    batch = collate([0], [target], [target])
    return "".join({EOS: "e", PAD: "-"}.get(i, chr(i)) for i in arrange(order, batch.target, batch.target_lengths)[0].tolist())


@pytest.mark.parametrize("name", LETTERS)
@pytest.mark.parametrize("tail", ["none", "fill"])
def test_flat_targets_are_the_worked_examples(name, tail):
    order = replace(ORDERS[name], tail=tail, stop="first-eos")
    for length, flat in enumerate(LETTERS[name], 1):
        assert flat_of(order, length) == (flat.replace("-", "e") if tail == "fill" else flat)


@pytest.mark.parametrize(("h", "length", "flat"), MULTI_LETTERS)
def test_flat_targets_of_several_segments_are_the_worked_examples(h, length, flat):
    assert flat_of(replace(MULTI, directions=h, step_size=0, tail="none"), length) == flat


def test_two_directions_of_one_segment_are_the_fold():
    multi, fold = GenerationOrder(arrangement="multi", directions=2), GenerationOrder(arrangement="fold", directions=2)
    lengths = torch.arange(60)
    assert torch.equal(permutation(multi, lengths, 60), permutation(fold, lengths, 60))


@pytest.mark.parametrize("order", [*ORDERS.values(), replace(MULTI, directions=6, step_size=0)], ids=str)
def test_orders_are_bijections_that_restore(order):
    lengths = torch.arange(201)
    index = permutation(order, lengths, 203)
    for length, row in enumerate(index.tolist()):
        assert sorted(row) == list(range(203))
        assert row[length:] == list(range(length, 203))
    tokens = torch.arange(100, 303).expand(201, -1)
    restored = restore(order, tokens.gather(1, index), lengths)
    assert torch.equal(restored, tokens)


@PRESETS
def test_labels_end_at_n_or_fill_their_step(name):
    order = ORDERS[name]
    targets = [list(range(10, 10 + n)) for n in range(9)]
    batch = collate(range(9), targets, targets)
    flat, counts = arrange(order, batch.target, batch.target_lengths), labelled(order, batch.target_lengths)
    assert flat.size(1) % order.step_size == 0
    for row, target, count in zip(flat.tolist(), targets, counts.tolist(), strict=True):
        n = len(target)
        ends = -(-(n + 1) // order.step_size) * order.step_size - n if order.tail == "fill" else 1
        assert sorted(row[:n]) == target
        assert row[n:] == [EOS] * ends + [PAD] * (len(row) - n - ends)
        assert count == n + ends


@given(st.sampled_from(sorted(ORDERS)), st.lists(st.integers(7, 90), max_size=13), st.data())
def test_outputs_are_cut_at_eos_whatever_follows_in_the_step(name, target, data):
    order = ORDERS[name]
    batch = collate([0], [target], [target])
    flat = arrange(order, batch.target, batch.target_lengths)
    n, step = len(target), order.step_size
    written = -(-(n + 1) // step) * step
    if order.stop == "first-eos":
        flat[0, n + 1 : written] = torch.tensor(data.draw(st.lists(st.integers(2, 90), min_size=step, max_size=step)))[
            : written - n - 1
        ]
    outputs = Outputs.cut(order, flat, torch.tensor([written]))
    assert outputs.tokens[0, :n].tolist() == target
    assert (outputs.lengths.item(), outputs.ended.item()) == (n + 1, 1)


def test_directions_that_end_one_by_one_keep_the_token_beside_eos():
    order = ORDERS["double-token"]
    flat = torch.tensor([[11, 19, EOS, 18], [11, 19, 12, EOS], [11, 19, EOS, EOS], [11, 19, 12, 18]])
    outputs = Outputs.cut(order, flat, torch.full((4,), 4))
    kept = [
        row[: n - e] for row, n, e in zip(outputs.tokens.tolist(), outputs.lengths.tolist(), outputs.ended.tolist(), strict=True)
    ]
    assert kept == [[11, 18, 19], [11, 12, 19], [11, 19], [11, 12, 18, 19]]


def test_outputs_cut_by_their_limit_keep_what_was_written():
    outputs = Outputs.cut(ORDERS["interleaved"], torch.tensor([[11, 19, 12, 18], [11, 19, 12, EOS]]), torch.tensor([3, 3]))
    assert outputs.tokens[:, :3].tolist() == [[11, 12, 19], [11, 12, 19]]
    assert outputs.ended.tolist() == [0, 0]


def test_signed_positions_run_from_both_ends():
    assert signed(torch.arange(6)).tolist() == [1, -1, 2, -2, 3, -3]
    codes = sinusoids(torch.tensor([5, -5]), 8)
    torch.testing.assert_close(codes[1], torch.cat((-codes[0, :4], codes[0, 4:])))


def test_presets_have_the_names_that_a_config_may_give():
    assert set(OrderName.__args__) == set(ORDERS)
    assert all(StepwiseConfig(order=name).generation() == order for name, order in ORDERS.items())


def test_a_config_changes_a_preset():
    assert StepwiseConfig(order="interleaved", tokens_per_direction=3).generation().step_size == 6
    assert StepwiseConfig(order="multi-directional", directions=6).generation().step_size == 6
    assert StepwiseConfig(order="interleaved", step_size=1).generation() == ORDERS["bidirectional-autoregressive"]
    assert StepwiseConfig(order="bidirectional-autoregressive", tail="none").generation().step_size == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": "interleaved", "directions": 4}, "directions: expected 2 with fold, got 4"),
        ({"order": "multi-directional", "directions": 3}, "directions: expected an even number with multi, got 3"),
        ({"order": "autoregressive", "directions": 2}, "directions: expected 1 with l2r, got 2"),
        ({"order": "multi-directional", "tokens_per_direction": 2}, "tokens_per_direction: expected 1 with multi"),
        ({"order": "interleaved", "step_size": 3}, r"step_size: expected 1 or directions x tokens_per_direction \(2\), got 3"),
        (
            {"order": "autoregressive", "target_positions": "signed"},
            "target_positions: expected absolute or learned with l2r, got signed",
        ),
        ({"order": "interleaved-sa", "mask": "same-direction"}, "mask: expected block or causal"),
        ({"order": "interleaved-sa", "stop": "per-direction"}, "stop: expected first-eos unless"),
        ({"order": "double-token", "tail": "none"}, "tail: expected fill with stop per-direction, got none"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_would(changes, message):
    with pytest.raises(ValueError, match=message):
        StepwiseConfig(**changes).generation()
