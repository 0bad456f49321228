"""Losses of slots: by place and by CTC."""

import copy
import math
from itertools import groupby

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fewstep.vocabulary import BLANK, BOS, EOS, LENGTH, MASK, PAD, RESERVED
from kernels.reference import ctc as reference
from models.common.losses.cross_entropy import cross_entropy
from models.parallel import ctc
from models.parallel import loss as module
from models.parallel.ctc import ctc_best_alignment, ctc_log_likelihood, slots_needed, target_scores, targets_of
from models.parallel.glancing import shown_slots
from models.parallel.loss import hidden_slots, log_probability, loss
from models.training.batch import Batch
from tests.models.parallel.networks import OBJECTIVES, PAIRS, SMALL, batch_of, network

# ---- objectives by their formulas; glancing and masks; independence of padding and of other pairs


REAL = torch.tensor([[True] * 4, [True, True, True, False]])


def log_probs_of(model, source, slots):
    """Return the log-probabilities [T,V] of one source with a target of `slots` slots, by a plain pass."""
    batch = batch_of([(source, [])])
    read = model.read(batch.source, batch.source_lengths)
    lengths = torch.tensor([slots])
    logits = model.logits(model.states(model.inputs(read, lengths, slots), lengths, read))[0]
    never = [PAD, BOS, MASK, LENGTH, EOS if model.config.uses_ctc else BLANK]
    logits[:, never] = -math.inf
    lengths = None if read.lengths is None else read.lengths[0].log_softmax(0)
    return logits.log_softmax(1), lengths


@pytest.mark.parametrize("slot_input", ["uniform", "mask", "soft"])
def test_a_pair_scores_its_tokens_and_its_length(slot_input):
    model = network(slot_input=slot_input)
    with torch.no_grad():
        found = log_probability(model, batch_of(PAIRS)).tolist()
        for (source, target), value in zip(PAIRS, found, strict=True):
            tokens, lengths = log_probs_of(model, source, len(target) + 1)
            expected = sum(row[token] for row, token in zip(tokens, [*target, EOS], strict=True))
            assert value == pytest.approx((expected + lengths[len(target) - len(source) + 128]).item(), abs=1e-4)


@pytest.mark.parametrize("slot_input", ["repeat", "gaussian"])
def test_a_pair_scores_all_its_alignments(slot_input):
    model = network(objective="ctc", slot_input=slot_input, upsampling=1.5)
    with torch.no_grad():
        found = log_probability(model, batch_of(PAIRS)).tolist()
        for (source, target), value in zip(PAIRS, found, strict=True):
            rows, _ = log_probs_of(model, source, math.ceil(1.5 * (len(source) + 1)))
            assert value == pytest.approx(reference.log_likelihood(rows.tolist(), target, BLANK), abs=1e-4)
            assert rows.exp().sum(1).tolist() == pytest.approx([1.0] * len(rows), abs=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_loss_is_the_sum_of_its_parts(objective):
    model = network(objective=objective)
    with torch.inference_mode():
        result = loss(model, batch_of(PAIRS), 1, 0.0)
        whole = log_probability(model, batch_of(PAIRS))
    tokens = sum(len(target) for _, target in PAIRS)
    assert result.statistics["nll"].item() > 0
    if model.config.uses_ctc:
        assert int(result.count) == tokens
        assert result.total.item() == pytest.approx(-whole.sum().item(), abs=1e-3)
    elif objective == "cmlm":
        assert 1 <= int(result.count) <= tokens + len(PAIRS)
    else:
        assert int(result.count) == tokens + len(PAIRS)
        lengths = result.total - result.statistics["nll"]
        assert (result.statistics["nll"] + 10 * lengths).item() == pytest.approx(-whole.sum().item(), abs=1e-3)


@pytest.mark.parametrize("objective", ["nat", "ctc"])
def test_label_smoothing_spreads_over_the_tokens_that_can_be_written(objective):
    model, pair = network(objective=objective, length_loss_weight=0.0), PAIRS[0]
    with torch.no_grad():
        result, plain = (loss(model, batch_of([pair]), 1, smoothing).total.item() for smoothing in (0.3, 0.0))
        rows, _ = log_probs_of(model, pair[0], 8 if objective == "ctc" else 3)
    spread = -rows[:, rows[0].isfinite()].mean(1).sum().item()
    assert result == pytest.approx(0.7 * plain + 0.3 * spread, rel=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_pairs_and_padding_do_not_change_the_loss_of_a_pair(objective):
    torch.manual_seed(7)
    model = network(objective=objective).train()
    torch.manual_seed(3)
    together = loss(model, batch_of(PAIRS), 1, 0.1).total.item()
    alone = sum(loss(model, batch_of([pair], [number]), 1, 0.1).total.item() for number, pair in enumerate(PAIRS))
    assert together == pytest.approx(alone, abs=1e-3)
    batch = batch_of(PAIRS)
    noisy = Batch(batch.ids, batch.source.clone(), batch.source_lengths, F.pad(batch.target, (0, 2), value=9), batch.target_lengths)
    noisy.source[1, 2:] = 13
    assert loss(model, noisy, 1, 0.1).total.item() == pytest.approx(together, abs=1e-3)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradients_are_those_of_finite_differences(objective):
    model = network(objective=objective).train().double()
    weight = model.decoder.layers[0].cross_attention.queries.weight
    torch.manual_seed(3)
    loss(model, batch_of(PAIRS), 1, 0.1).total.backward()
    step = 1e-2 * weight.grad / weight.grad.norm()
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            weight.add_(sign * step)
        values.append(loss(model, batch_of(PAIRS), 1, 0.1).total.item())
        with torch.no_grad():
            weight.sub_(sign * step)
    assert weight.grad.norm().item() == pytest.approx((values[0] - values[1]) / 2e-2, rel=0.01)


def test_impossible_targets_cost_nothing_and_leave_their_neighbours_alone():
    model = network(objective="ctc", upsampling=1.0)
    pairs = [([8], [9, 9]), PAIRS[0], ([8], [9, 10, 11])]
    found = loss(model, batch_of(pairs), 1, 0.1)
    alone = loss(model, batch_of(pairs[1:2]), 1, 0.1)
    assert int(found.statistics["impossible"]) == 2
    assert found.total.item() == pytest.approx(alone.total.item(), rel=1e-5)
    assert int(found.count) == int(alone.count)
    found.total.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    assert log_probability(model, batch_of(pairs)).isfinite().tolist() == [False, True, False]
    only = loss(model, batch_of(pairs[:1]), 1, 0.1)
    assert (only.total.item(), int(only.count)) == (0.0, 1)


def test_lengths_beyond_the_classes_are_counted():
    model = network(max_positions=300)
    long = batch_of([([8], [9] * 200), ([8] * 200, [9]), ([8], [9])])
    result = loss(model, long, 1, 0.0)
    assert int(result.statistics["length_clamped"]) == 2
    assert result.total.isfinite()
    assert log_probability(model, long).isfinite().tolist() == [False, False, True]


# Glancing.


def glanced(wrong, update=1, real=REAL, **changes):
    config = SMALL.__class__(**{**vars(SMALL), "objective": "glat", **changes})
    return shown_slots(config, update, torch.tensor(wrong), real, torch.arange(len(wrong)))


@pytest.mark.parametrize(("share", "distance", "shown"), [(0.5, 2, 1), (0.3, 2, 0), (0.3, 3, 0), (0.3, 4, 1), (0.5, 4, 2)])
def test_the_number_of_shown_slots_is_the_share_of_the_wrong_ones_rounded_down(share, distance, shown):
    wrong = [[slot < distance for slot in range(4)]]
    found = glanced(wrong, real=REAL[:1], glancing_ratio=share, glancing_ratio_end=share)
    assert found.sum().item() == shown


def test_shown_slots_are_chosen_whether_right_or_wrong():
    torch.manual_seed(1)
    wrong = torch.tensor([[True, True, False, False]]).expand(2000, 4)
    found = glanced(wrong.tolist(), real=torch.ones(2000, 4, dtype=torch.bool), glancing_ratio=0.5, glancing_ratio_end=0.5)
    assert found.float().mean(0).tolist() == pytest.approx([0.25] * 4, abs=0.04)


@pytest.mark.parametrize("count", ["poisson", "bernoulli"])
def test_random_numbers_of_shown_slots_have_the_same_mean(count):
    wrong = torch.ones(4000, 20, dtype=torch.bool)
    found = glanced(wrong.tolist(), real=wrong, glancing_count=count, glancing_ratio=0.3, glancing_ratio_end=0.3)
    assert found.sum(1).float().mean().item() == pytest.approx(6.0, abs=0.15)
    assert found.sum(1).float().var().item() == pytest.approx(6.0 if count == "poisson" else 4.2, rel=0.15)


def test_a_shown_token_is_seen_and_not_trained(monkeypatch):
    model = network(objective="glat", glancing_ratio=1.0, glancing_ratio_end=1.0).train()
    taken = []

    def spy(states, weight, labels, smoothing):
        taken.append((states, labels))
        return cross_entropy(states, weight, labels, smoothing)

    monkeypatch.setattr(module, "cross_entropy", spy)
    result = loss(model, batch_of(PAIRS), 1, 0.0)
    tokens = sum(len(target) + 1 for _, target in PAIRS)
    assert 0 < int(result.statistics["shown"]) == tokens - int(result.count)
    assert len(taken[0][1]) == int(result.count)
    monkeypatch.setattr(module, "shown_slots", lambda config, update, wrong, real, ids: torch.zeros_like(real))
    unseen = loss(model, batch_of(PAIRS), 1, 0.0)
    assert not torch.allclose(taken[0][0][0], taken[1][0][0])
    assert int(unseen.count) == tokens


def test_slots_are_shown_the_tokens_of_the_best_alignment_and_all_are_trained(monkeypatch):
    """Blanks are shown as well, and the likelihood is that of all slots, shown or not."""
    model = network(objective="ctc-glat", glancing_ratio=1.0, glancing_ratio_end=1.0).train()
    passes, masks = [], []

    def spied_states(inputs, lengths, source, states=model.states):
        passes.append((inputs, states(inputs, lengths, source)))
        return passes[-1][1]

    def spied_slots(*arguments):
        masks.append(shown_slots(*arguments))
        return masks[-1]

    monkeypatch.setattr(model, "states", spied_states)
    monkeypatch.setattr(ctc, "shown_slots", spied_slots)
    batch = batch_of(PAIRS)
    total = loss(model, batch, 1, 0.0).total
    (empty, first), (inputs, second) = passes
    (shown,) = masks
    target = targets_of(model, batch)
    layout = target.ids, target.lengths, target.slots
    rows = ctc_best_alignment(target_scores(model, first, target).log_probs, *layout)
    tokens = F.pad(target.ids, (1, 0), value=BLANK).gather(1, rows.clamp(min=0))
    revealed = math.sqrt(16) * model.target_embedding.weight[tokens]
    assert {bool(is_blank) for is_blank in tokens[shown] == BLANK} == {True, False}
    torch.testing.assert_close(inputs[shown], revealed[shown])
    assert torch.equal(inputs[~shown], empty[~shown])
    assert not torch.allclose(inputs[shown], empty[shown])
    whole = ctc_log_likelihood(target_scores(model, second, target).log_probs, *layout)
    assert total.item() == pytest.approx(-whole.sum().item(), rel=1e-6)


@pytest.mark.parametrize("objective", ["glat", "ctc-glat"])
def test_without_shown_slots_glancing_is_plain_training(objective):
    plain = objective.replace("ctc-glat", "ctc").replace("glat", "nat")
    results = []
    for name in (objective, plain):
        model = network(objective=name, dropout=0.3, glancing_ratio=0.0, glancing_ratio_end=0.0).train()
        torch.manual_seed(5)
        results.append(loss(model, batch_of(PAIRS), 1, 0.1).total)
    assert torch.equal(*results)


@pytest.mark.parametrize("objective", ["glat", "ctc-glat"])
def test_both_passes_drop_the_same_units(objective):
    same, other = [], []
    for kept, flag in ((same, True), (other, False)):
        model = network(objective=objective, dropout=0.3, glancing_same_dropout=flag).train()
        model.decoder.register_forward_hook(lambda decoder, inputs, output, kept=kept: kept.append(inputs[0]))
        torch.manual_seed(5)
        loss(model, batch_of(PAIRS), 1, 0.1)
    dropped = [[(x == 0) for x in passes] for passes in (same, other)]
    assert torch.equal(*dropped[0])
    assert not torch.equal(*dropped[1])


def test_nothing_is_shown_in_evaluation():
    model = network(objective="glat", glancing_ratio=1.0, glancing_ratio_end=1.0)
    assert int(loss(model, batch_of(PAIRS), 1, 0.0).statistics["shown"]) == 0


def test_a_blank_has_an_input_of_its_own():
    model = network(objective="ctc-glat")
    embedded = model.embedded(torch.tensor([[BLANK, MASK, EOS, *RESERVED[:0]]]))
    assert len({tuple(row.tolist()) for row in embedded[0]}) == 3


# Hidden tokens.


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 2**31))
def test_one_to_all_tokens_are_hidden(lengths, seed):
    torch.manual_seed(seed)
    sizes = torch.tensor(lengths)
    real = torch.arange(max(lengths)) < sizes[:, None]
    hidden = hidden_slots(torch.arange(len(lengths)), sizes, real, training=True)
    assert (hidden & ~real).sum() == 0
    assert (hidden.sum(1) >= 1).all()
    later = hidden_slots(torch.arange(len(lengths)), sizes, F.pad(real, (0, 3)), training=True)
    assert torch.equal(later[:, : real.size(1)], hidden)


def test_each_number_of_hidden_tokens_is_equally_probable():
    torch.manual_seed(0)
    real = torch.ones(6000, 5, dtype=torch.bool)
    counts = hidden_slots(torch.arange(6000), torch.full((6000,), 5), real, training=True).sum(1).bincount(minlength=6)
    assert counts[0] == 0
    assert counts[1:].tolist() == pytest.approx([1200] * 5, rel=0.15)


def test_the_expected_loss_of_a_joint_is_its_mean_log_probability():
    """If the network knew the joint distribution, the mean loss of hidden tokens would be -log p(y) / M."""
    joint, y = {(0, 0): 0.4, (0, 1): 0.1, (1, 0): 0.2, (1, 1): 0.3}, (0, 1)
    torch.manual_seed(1)
    count = 20000
    masks = hidden_slots(torch.arange(count), torch.full((count,), 2), torch.ones(count, 2, dtype=torch.bool), training=True)
    costs = []
    for hidden in masks.tolist():
        shown = [slot for slot in (0, 1) if not hidden[slot]]
        total = sum(p for pair, p in joint.items() if all(pair[slot] == y[slot] for slot in shown))
        marginals = [
            sum(p for pair, p in joint.items() if all(pair[slot] == y[slot] for slot in (*shown, one))) / total
            for one in (0, 1)
            if hidden[one]
        ]
        costs.append(-sum(math.log(value) for value in marginals) / len(marginals))
    assert sum(costs) / count == pytest.approx(1.151293, abs=0.01)


def test_masked_tokens_are_trained_and_others_are_not():
    model = network(objective="cmlm").train()
    torch.manual_seed(2)
    first = loss(model, batch_of(PAIRS), 1, 0.0)
    assert int(first.statistics["shown"]) + int(first.count) == sum(len(target) + 1 for _, target in PAIRS)
    again = copy.deepcopy(model)
    torch.manual_seed(2)
    assert torch.equal(loss(again, batch_of(PAIRS), 9, 0.0).total, first.total)


# ---- cTC against enumeration, on tiny and on long lattices


EMPTY, A, B = range(3)
ROWS = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.1, 0.3, 0.6], [0.5, 0.2, 0.3]], dtype=torch.float64).log()
PROBABILITIES = {
    (A, B): 0.3302, (B, A): 0.1034, (A,): 0.1012, (B,): 0.0998, (A, B, A): 0.0926, (B, A, B): 0.0918,
    (B, B): 0.0642, (A, A): 0.0516, (A, A, B): 0.018, (A, B, A, B): 0.009, (): 0.004,
}  # fmt: skip


def batch(rows, targets, slots=None):
    """Return the arguments of the likelihood for log-probabilities [T,V] of each sentence and their targets."""
    size, width = max(len(target) for target in targets), max(len(row) for row in rows)
    ids = torch.full((len(targets), size), 99)
    scores = torch.full((len(targets), size + 1, width), -3.0, dtype=rows[0].dtype)
    for number, (row, target) in enumerate(zip(rows, targets, strict=True)):
        ids[number, : len(target)] = torch.tensor(target, dtype=torch.int64)
        scores[number, : len(target) + 1, : len(row)] = row[:, [EMPTY, *target]].t()
    lengths = torch.tensor(slots or [len(row) for row in rows])
    return scores, ids, torch.tensor([len(target) for target in targets]), lengths


def test_the_probabilities_of_all_texts_are_those_of_the_table():
    found = ctc_log_likelihood(*batch([ROWS] * len(PROBABILITIES), list(PROBABILITIES))).exp()
    assert found.tolist() == pytest.approx(list(PROBABILITIES.values()), abs=1e-12)
    assert ctc_log_likelihood(*batch([ROWS], [(A, A, A)])).tolist() == [-math.inf]


def test_the_gradient_is_the_posterior():
    logits = ROWS.clone().requires_grad_()
    scores = logits.log_softmax(1)[:, [EMPTY, A, B]].t()[None]
    ctc_log_likelihood(scores, torch.tensor([[A, B]]), torch.tensor([2]), torch.tensor([4])).sum().backward()
    posterior = torch.tensor([[0.1672, 0.8328, 0], [0.3307, 0.5088, 0.1605], [0.0588, 0.0981, 0.8431], [0.5421, 0, 0.4579]])
    torch.testing.assert_close(logits.grad.float(), posterior - ROWS.exp().float(), rtol=0, atol=5e-5)


def test_the_gradient_is_that_of_finite_differences_and_zero_where_slots_do_not_suffice():
    logits = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    ids, sizes, slots = torch.tensor([[1, 2], [1, 1], [2, 2]]), torch.tensor([2, 2, 1]), torch.tensor([5, 4, 5])

    def likelihood(logits):
        rows = logits.log_softmax(2)
        scores = torch.cat((rows[..., :1], rows.gather(2, ids[:, None].expand(-1, 5, -1))), 2).transpose(1, 2)
        return ctc_log_likelihood(scores, ids, sizes, slots)

    torch.autograd.gradcheck(likelihood, logits)
    slots[:] = torch.tensor([1, 2, 5])
    found = likelihood(logits)
    assert found.isfinite().tolist() == [False, False, True]
    found.where(found.isfinite(), 0.0).sum().backward()
    assert not logits.grad[:2].any()
    assert logits.grad[2].any()


def test_the_kernel_of_cudnn_is_never_used(monkeypatch):
    """It ignores `zero_infinity` and has given NaN with large vocabularies; torch may choose it for targets on the CPU."""
    used, ctc_loss = [], F.ctc_loss

    def recorded(*arguments, **options):
        used.append(torch.backends.cudnn.enabled)
        return ctc_loss(*arguments, **options)

    monkeypatch.setattr(F, "ctc_loss", recorded)
    before = torch.backends.cudnn.enabled
    ctc_log_likelihood(*batch([ROWS], [(A, B)]))
    assert used == [False]
    assert torch.backends.cudnn.enabled == before


@given(st.data())
def test_likelihoods_equal_enumeration_whatever_the_padding(data):
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    slots = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    rows = [torch.randn(count, 3, generator=generator, dtype=torch.float64).log_softmax(1) for count in slots]
    targets = [data.draw(st.lists(st.integers(1, 2), max_size=4)) for _ in slots]
    found = ctc_log_likelihood(*batch(rows, targets)).tolist()
    for row, target, value in zip(rows, targets, found, strict=True):
        exact = reference.text_probabilities(row.tolist(), EMPTY)
        assert sum(exact.values()) == pytest.approx(1.0)
        assert math.exp(value) == pytest.approx(exact.get(tuple(target), 0.0), abs=1e-12)
        assert value == pytest.approx(reference.log_likelihood(row.tolist(), target, EMPTY))


@given(st.data())
def test_the_best_alignment_writes_the_target_as_well_as_any_path(data):
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    slots = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    rows = [torch.randn(count, 3, generator=generator, dtype=torch.float64).log_softmax(1) for count in slots]
    targets = [data.draw(st.lists(st.integers(1, 2), max_size=4)) for _ in slots]
    arguments = batch(rows, targets)
    needed = slots_needed(*arguments[1:3])
    for number, (row, target) in enumerate(zip(rows, targets, strict=True)):
        path = ctc_best_alignment(*arguments)[number].tolist()
        assert needed[number] == len(target) + sum(len(list(same)) - 1 for _, same in groupby(target))
        assert all(state == -1 for state in path[len(row) :])
        if needed[number] > len(row):
            assert set(path) == {-1}
            continue
        symbols = [[EMPTY, *target][state] for state in path[: len(row)]]
        assert reference.collapse(symbols, EMPTY) == tuple(target)
        score = sum(one[symbol].item() for one, symbol in zip(row, symbols, strict=True))
        assert score == pytest.approx(reference.best_path(row.tolist(), target, EMPTY))


@pytest.mark.parametrize(("target", "path"), [((A, B), [1, 0, 2, 0]), ((A, B, A), [1, 0, 2, 3])])
def test_ties_of_alignments_are_broken_by_the_rule(target, path):
    assert ctc_best_alignment(*batch([ROWS], [target])).tolist() == [path]
