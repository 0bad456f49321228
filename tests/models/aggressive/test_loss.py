"""The networks of drafters: what slots carry, what prefixes see, the weights that they start from, and their loss."""

import dataclasses
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.format import WEIGHTS
from fewstep.vocabulary import EOS, MASK, PAD
from models.aggressive.decode import AggressiveDecoder, DraftDecoder
from models.aggressive.family import FAMILY
from models.aggressive.loss import draw, loss, shown_slots
from models.aggressive.model import AggressiveModel, fits, sequences
from models.aggressive.on_verifier import head_loss
from models.bundle.weights import load_matching_weights, save_weights
from models.common.glancing import ratio
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.loss import loss as stepwise_loss
from models.stepwise.model import StepwiseModel
from models.training.batch import collate
from models.training.config import TrainingConfig
from models.training.optimizer import Optimizer
from tests.models.aggressive.networks import DRAFTER, VERIFIER, drafter_of, head_of, sources, verifier_of

# ---- the networks of drafters: what slots carry, what prefixes see, and the weights that they start from


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_a_soft_copy_depends_on_place_and_source_alone(kind):
    model = drafter_of(encoder=kind)
    source = torch.tensor([[8, 9, 10, EOS], [11, EOS, PAD, PAD]])
    lengths = torch.tensor([4, 2])
    with torch.inference_mode():
        copies = model.soft_copy(model.slot_codes(5), model.read(source, lengths))
        alone = model.soft_copy(model.slot_codes(5), model.read(source[1:, :2], lengths[1:]))
    assert torch.allclose(copies[1], alone[0], atol=1e-6)
    weights = torch.linalg.lstsq(model.read(source, lengths).embedded[1, :2].t().double(), copies[1].t().double()).solution
    assert torch.allclose(weights.sum(0), torch.ones(5, dtype=torch.float64), atol=1e-4)
    assert (weights > 0).all()


@pytest.mark.parametrize("scaled", [True, False])
def test_scores_of_a_soft_copy_are_divided_by_the_root_of_the_width_unless_the_config_says_no(scaled):
    model = drafter_of(copy_scale=scaled)
    with torch.inference_mode():
        codes, read = model.slot_codes(5), model.read(torch.tensor([[8, 9, 10, EOS]]), torch.tensor([4]))
        scores = (codes @ model.copy.weight.t()) @ (read.embedded[0] + model._source_codes(4)).t()
        expected = (scores / (codes.size(1) ** 0.5 if scaled else 1.0)).softmax(1) @ read.embedded[0]
        torch.testing.assert_close(model.soft_copy(codes, read)[0], expected, rtol=1e-4, atol=1e-5)


def test_all_random_weights_of_a_drafter_may_be_those_of_bert():
    weights = drafter_of(initialisation="normal").decoder.layers[0].attention.output.weight
    assert float(weights.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_a_soft_copy_does_not_depend_on_the_order_of_tokens_with_their_positions(monkeypatch):
    model = drafter_of()
    source, order = torch.tensor([[8, 9, 10, 9, EOS]]), torch.tensor([3, 0, 4, 2, 1])
    with torch.inference_mode():
        codes, read = model.slot_codes(6), model.read(source, torch.tensor([5]))
        expected, places = model.soft_copy(codes, read), model._source_codes(5)
        monkeypatch.setattr(model, "_source_codes", lambda count: places[order])
        moved = model.soft_copy(codes, read._replace(embedded=read.embedded[:, order]))
        monkeypatch.setattr(model, "_source_codes", lambda count: places)
        other = model.soft_copy(codes, read._replace(embedded=read.embedded[:, order]))
    torch.testing.assert_close(moved, expected)
    assert not torch.allclose(other, expected, atol=1e-3), "words that change places are other words"


def test_a_prefix_that_sees_only_itself_does_not_change_with_what_comes_after():
    model = drafter_of(decoder_layers=2, prefix_attention="causal")
    source = model.read(torch.tensor([[8, 9, EOS]]), torch.tensor([3]))
    tokens = torch.tensor([[9, 10, 11, 12]])
    short, long = (
        model.states(sequences(tokens, p, torch.tensor([3])), p, p + 3, source) for p in (torch.tensor([2]), torch.tensor([4]))
    )
    assert torch.allclose(short[:, :2], long[:, :2], atol=1e-6)
    both = drafter_of(decoder_layers=2)
    source = both.read(torch.tensor([[8, 9, EOS]]), torch.tensor([3]))
    one, other = (
        both.states(sequences(tokens, p, torch.tensor([3])), p, p + 3, source) for p in (torch.tensor([2]), torch.tensor([4]))
    )
    assert not torch.allclose(one[:, :2], other[:, :2], atol=1e-3)


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_a_drafter_that_starts_from_its_verifier_reads_as_it_does(kind, tmp_path):
    verifier = verifier_of()
    save_weights(tmp_path / WEIGHTS, verifier.state_dict())
    model = drafter_of(encoder=kind, seed=5)
    assert load_matching_weights(tmp_path / WEIGHTS, model) > 0
    source, lengths = torch.tensor([[8, 9, 10, EOS], [11, EOS, PAD, PAD]]), torch.tensor([4, 2])
    with torch.inference_mode():
        mine, theirs = model.encoded(source, lengths)[0], verifier.encoded(source, lengths)[0]
    assert mine.equal(theirs)
    assert model.target_embedding.weight.equal(verifier.target_embedding.weight)


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_a_drafter_copies_the_decoder_of_its_verifier_only_if_asked_to(kind, tmp_path):
    verifier = verifier_of()
    save_weights(tmp_path / WEIGHTS, verifier.state_dict())
    for copied in ("encoder", "all"):
        model, fresh = (drafter_of(encoder=kind, seed=5, copied_weights=copied) for _ in range(2))
        load_matching_weights(tmp_path / WEIGHTS, model)
        mine, drawn, theirs = (one.state_dict() for one in (model, fresh, verifier))
        matrices = [name for name in mine if name.startswith("decoder.") and name in theirs and mine[name].dim() == 2]
        assert matrices
        assert all(mine[name].equal((theirs if copied == "all" else drawn)[name]) for name in matrices)
        assert all(mine[name].equal(theirs[name]) for name in mine if name.startswith(("encoder.", "target_embedding.")))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_head_begins_as_the_last_layer_of_its_verifier(norm, tmp_path):
    verifier = verifier_of(norm=norm)
    save_weights(tmp_path / WEIGHTS, verifier.state_dict())
    model = head_of(verifier_of(norm=norm, seed=6), norm=norm)
    taken = load_matching_weights(tmp_path / WEIGHTS, model)
    assert taken == sum(
        values.numel() for name, values in model.state_dict().items() if not name.startswith(("features.", "words."))
    )
    mine, theirs = model.state_dict(), verifier.state_dict()
    assert all(mine[name].equal(theirs[name]) for name in model.shared_parameters())
    layer = model.head.layers[0].state_dict()
    assert all(values.equal(layer[name]) for name, values in verifier.decoder.layers[1].state_dict().items())
    assert all(values.equal(model.head.norm.state_dict()[name]) for name, values in verifier.decoder.norm.state_dict().items())


# ---- blocks, glancing and the objective of the drafter


frozen = partial(AggressiveDecoder, frozen=True)
"""A decoder of finished networks."""


def batch_of(count, length, seed=0):
    rows = [source or [8] for source in sources(count, length, seed)]
    return collate(range(count), rows, rows[::-1])


def test_every_prefix_comes_as_often_and_the_empty_one_too():
    """A target of m = 6 tokens with EOS has prefixes p of 0 to 5 tokens, each a sixth of the time."""
    batch = collate(range(6000), [[8]] * 6000, [[9, 10, 11, 12, 13]] * 6000)
    torch.manual_seed(0)
    counts = torch.bincount(draw(DRAFTER, batch, training=True).prefix_lengths, minlength=6)
    assert len(counts) == 6
    assert ((counts / 6000 - 1 / 6).abs() < 0.02).all()
    fixed = draw(DRAFTER, batch, training=False).prefix_lengths
    assert (torch.bincount(fixed, minlength=6) / 6000 - 1 / 6).abs().max() < 0.02
    assert fixed.equal(draw(DRAFTER, batch, training=False).prefix_lengths)


def test_widths_are_drawn_from_their_range():
    config = dataclasses.replace(DRAFTER, draft_width_range=(2, 6))
    torch.manual_seed(0)
    widths = draw(config, batch_of(500, 9), training=True).widths
    assert set(widths.tolist()) == {2, 3, 4, 5, 6}
    assert set(draw(config, batch_of(50, 9), training=False).widths.tolist()) == {4}


def test_a_block_has_its_width_even_past_the_end():
    ids = sequences(torch.tensor([[9, 10, EOS, PAD], [11, EOS, PAD, PAD]]), torch.tensor([2, 0]), torch.tensor([3, 2]))
    assert ids.tolist() == [[9, 10, MASK, MASK, MASK], [MASK, MASK, PAD, PAD, PAD]]


@given(st.integers(1, 6), st.integers(1, 9), st.floats(0, 1), st.integers(0, 1000))
def test_exactly_a_share_of_what_is_wrong_is_shown(rows, size, share, seed):
    torch.manual_seed(seed)
    labelled, right = torch.rand(rows, size) < 0.7, torch.rand(rows, size) < 0.5
    shown = shown_slots(share, labelled, right, torch.rand(rows, size))
    assert not (shown & ~labelled).any()
    for row in range(rows):
        wrong = int(labelled[row].sum() - (right & labelled)[row].sum())
        assert int(shown[row].sum()) == int(share * wrong + 1e-6)


def test_the_share_falls_evenly():
    config = dataclasses.replace(DRAFTER, glancing_updates=100)
    assert [ratio(config, update) for update in (0, 50, 100, 500)] == pytest.approx([0.5, 0.4, 0.3, 0.3])


def test_slots_past_the_end_are_not_trained():
    """The loss counts, for each sentence, the slots of its block up to EOS; what the padding holds does not matter."""
    model = drafter_of(glancing_ratio=0.0, glancing_ratio_end=0.0).train()
    batch = batch_of(12, 9)
    found = []
    for padding in (PAD, 9):
        place = torch.arange(batch.target.size(1))
        changed = torch.where(place < batch.target_lengths[:, None], batch.target, padding)
        model.zero_grad()
        torch.manual_seed(3)
        one = loss(model, dataclasses.replace(batch, target=changed), 1, 0.1)
        one.total.backward()
        found.append((one, [values.grad.clone() for values in model.parameters()]))
    torch.manual_seed(3)
    blocks = draw(model.config, batch, training=True)
    assert int(found[0][0].count) == int(torch.minimum(blocks.widths, batch.target_lengths - blocks.prefix_lengths).sum())
    assert found[0][0].total.equal(found[1][0].total)
    assert all(one.equal(other) for one, other in zip(found[0][1], found[1][1], strict=True))


def test_several_prefixes_of_a_pair_are_as_many_pairs():
    """The source is read once; everything else is as if each pair stood so often in the batch."""
    several, one = (drafter_of(glancing_ratio=0.0, glancing_ratio_end=0.0, dropout=0.0, prefixes=count).train() for count in (3, 1))
    one.load_state_dict(several.state_dict())
    batch = batch_of(12, 9)
    repeated = batch.select(torch.arange(12).repeat_interleave(3))
    found = []
    for model, pairs in ((several, batch), (one, repeated)):
        torch.manual_seed(3)
        result = loss(model, pairs, 1, 0.1)
        result.total.backward()
        found.append((result, [values.grad for values in model.parameters()]))
    assert found[0][0].count == found[1][0].count > 12
    torch.testing.assert_close(found[0][0].total, found[1][0].total)
    for mine, theirs in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
    several.eval()
    assert loss(several, batch, 1, 0.0).count == loss(one.eval(), batch, 1, 0.0).count


@pytest.mark.parametrize("carried", [False, True])
def test_empty_slots_may_carry_the_last_token(carried):
    """With one layer, whose other inputs are the same for both prefixes but for what attention brings: it is shut off."""
    model = drafter_of(decoder_layers=1, feed_last_token=carried)
    for layer in model.decoder.layers:
        torch.nn.init.zeros_(layer.attention.output.weight)
    source = model.read(torch.tensor([[8, 9, EOS]]), torch.tensor([3]))
    first, second, none = (
        model.states(
            sequences(torch.tensor([tokens]), torch.tensor([count]), torch.tensor([2])),
            torch.tensor([count]),
            torch.tensor([count + 2]),
            source,
        )
        for tokens, count in (([9, 10], 2), ([9, 11], 2), ([9, 10], 0))
    )
    assert torch.allclose(first[:, 2:], second[:, 2:], atol=1e-6) != carried
    assert none.shape[1] == 2


def test_what_is_shown_carries_no_loss():
    model = drafter_of().train()
    batch = batch_of(40, 9)
    torch.manual_seed(3)
    blocks = draw(model.config, batch, training=True)
    labelled = int(torch.minimum(blocks.widths, batch.target_lengths - blocks.prefix_lengths).sum())
    torch.manual_seed(3)
    one = loss(model, batch, 0, 0.0)
    assert 0 < one.statistics["shown"] < labelled
    assert int(one.count) + int(one.statistics["shown"]) == labelled


def test_both_passes_drop_the_same():
    """With dropout, under one generator state, a pass without gradient finds what one with gradient does."""
    model = drafter_of(dropout=0.5).train()
    batch = batch_of(4, 9)
    source = model.read(batch.source, batch.source_lengths)
    lengths = torch.full((4,), 3)
    ids = sequences(batch.target, torch.zeros(4, dtype=torch.int64), lengths)
    with torch.random.fork_rng(), torch.no_grad():
        first = model.states(ids, lengths * 0, lengths, source)
    assert torch.allclose(first, model.states(ids, lengths * 0, lengths, source), atol=1e-5)
    assert not torch.allclose(first, model.states(ids, lengths * 0, lengths, source), atol=1e-2)


def test_the_statistic_of_acceptance_is_what_a_verifier_that_writes_the_target_would_keep():
    model = drafter_of()
    batch = batch_of(30, 9)
    with torch.inference_mode():
        one = loss(model, batch, 1, 0.0)
        blocks = draw(model.config, batch, training=False)
        source = model.read(batch.source, batch.source_lengths)
        expected = 0
        for row in range(30):
            p, k, m = int(blocks.prefix_lengths[row]), int(blocks.widths[row]), int(batch.target_lengths[row])
            ids = sequences(batch.target, blocks.prefix_lengths, blocks.widths)
            states = model.states(ids, blocks.prefix_lengths, blocks.prefix_lengths + blocks.widths, source)
            for slot in range(p, min(p + k, m)):
                if int(model.logits(states[row, slot]).argmax()) != int(batch.target[row, slot]):
                    break
                expected += 1
    assert int(one.statistics["accepted"]) == expected


def test_a_shared_encoder_stays_as_it_is_and_reads_without_dropout():
    model = drafter_of(encoder="shared", dropout=0.5).train()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    batch = batch_of(8, 9)
    assert model.read(batch.source, batch.source_lengths).embedded.requires_grad is False
    optimizer = Optimizer(model, TrainingConfig(updates=3, warmup_updates=1, weight_decay=0.1, precision="float32"))
    for update in (1, 2):
        optimizer.clear()
        one = loss(model, batch, update, 0.1)
        one.total.backward()
        optimizer.step(update, one.count.float())
    changed = {name for name, values in model.state_dict().items() if not values.equal(before[name])}
    assert changed
    assert not {name for name in changed if name.startswith(("encoder.", "target_embedding.", "source_"))}
    with torch.random.fork_rng():
        first = model.read(batch.source, batch.source_lengths).memories[0].keys
    assert first.equal(model.read(batch.source, batch.source_lengths).memories[0].keys)


def test_a_block_needs_room_behind_the_longest_prefix():
    config = dataclasses.replace(DRAFTER, max_positions=20, draft_width_range=(2, 6))
    assert fits(config, 19, 14)
    assert not fits(config, 20, 14)
    assert not fits(config, 19, 15)
    assert fits(dataclasses.replace(config, draft_width=8), 19, 12), "validation has blocks of draft_width"
    assert not fits(dataclasses.replace(config, draft_width=8), 19, 13)


def test_a_head_carries_the_states_that_its_verifier_writes_from_and_learns_nothing_else():
    """Also while it is trained with dropout; only its own layer and projection have gradients, and what a slot carries comes from
    before it."""
    verifier = verifier_of()
    model = head_of(verifier, dropout=0.5).train()
    batch = batch_of(12, 9)
    expected = verifier.hidden(batch.target, verifier.encode(batch.source, batch.source_lengths))
    found = model.verifier_states(batch.target, model.encode(batch.source, batch.source_lengths))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    head_loss(model, batch, 0.1).total.backward()
    trained = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if name not in model.shared_parameters()}
    assert all(name.startswith(("features.", "head.")) for name in trained)
    model.eval()
    source = model.read(batch.source, batch.source_lengths)
    before, place = model.states(batch.target, expected, source.head), 3
    changed, target = expected.clone(), batch.target.clone()
    changed[:, place], target[:, place] = 7.0, 8
    after = model.states(target, changed, source.head)
    assert torch.equal(before[:, : place + 1], after[:, : place + 1])
    assert not torch.isclose(before[:, place + 1], after[:, place + 1]).all(-1).any()


@pytest.mark.parametrize("model", [drafter_of(), head_of(verifier_of())], ids=["parallel", "head"])
def test_a_drafter_ranks_tokens_by_their_counts_in_training(model):
    model.words.counts.zero_()
    assert model.words.most_common(4).tolist() == [EOS, 7, 8, 9], "of equals the lower id, nothing reserved"
    batch = collate(range(3), [[8]] * 3, [[9, 12, 12], [12, 12, 9], [12, 10, 9]])
    options = {"glancing_ratio": 0.0, "glancing_ratio_end": 0.0}
    model.config = dataclasses.replace(model.config, draft_width=8, **options)
    FAMILY.loss(model.eval(), batch, 1, 0.1)
    assert not model.words.counts.any()
    torch.manual_seed(0)
    for _ in range(40):
        FAMILY.loss(model.train(), batch, 1, 0.1)
    model.eval()
    assert model.words.most_common(4).tolist() == [EOS, 12, 9, 10]
    assert model.words.most_common(99).tolist() == [EOS, 12, 9, 10, 7, 8, *range(11, 12), *range(13, 23)]
    assert set(model.words.counts.nonzero()[:, 0].tolist()) == {EOS, 9, 10, 12}


def test_the_loss_of_a_head_is_that_of_its_next_tokens():
    model = head_of(verifier_of())
    batch = batch_of(7, 9)
    source = model.read(batch.source, batch.source_lengths)
    states = model.states(batch.target, model.verifier_states(batch.target, source.verifier), source.head)
    scores = model.logits(states).log_softmax(2)
    real = torch.arange(scores.size(1)) < batch.target_lengths[:, None]
    chosen = scores.gather(2, batch.target[:, :, None])[:, :, 0]
    one = head_loss(model, batch, 0.1)
    assert one.total.item() == pytest.approx(-(0.9 * chosen + 0.1 * scores.mean(2))[real].sum().item(), rel=1e-5)
    assert one.statistics["nll"].item() == pytest.approx(-chosen[real].sum().item(), rel=1e-5)
    assert one.statistics["correct"] == ((scores.argmax(2) == batch.target) & real).sum()
    assert one.count == batch.target_lengths.sum()


def copies(count, draws):
    return [torch.randint(7, 16, (6,), generator=draws).tolist() for _ in range(count)]


def taught(model, objective, draws):
    """After a few hundred updates on copying."""
    optimizer = Optimizer(model, TrainingConfig(updates=150, warmup_updates=20, learning_rate=0.005, precision="float32"))
    model.train()
    for update in range(1, 151):
        rows = copies(48, draws)
        optimizer.clear()
        one = objective(model, collate(range(48), rows, rows), update, 0.0)
        one.total.backward()
        optimizer.step(update, one.count.float())
    return model.eval()


def test_a_pair_that_has_learnt_to_copy_writes_several_tokens_a_pass():
    """More than half of each block of the drafter alone is right; with its verifier every pass brings more than half a block, and
    all outputs are greedy ones."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    draws = torch.Generator().manual_seed(1)
    config = dataclasses.replace(DRAFTER, encoder_layers=1, glancing_updates=150)
    model = taught(AggressiveModel(config, Sizes(16, 16, True)), loss, draws)
    rows = copies(40, draws)
    decoder = DraftDecoder(model)
    found = decoder.decode(decoder.prepare(rows), AggressiveSearch())
    right = sum(a == b for ranked, row in zip(found, rows, strict=True) for a, b in zip(ranked[0].ids, row, strict=False))
    assert right > 0.5 * 6 * 40
    small = dataclasses.replace(VERIFIER, encoder_layers=1, decoder_layers=1)
    verifier = taught(StepwiseModel(small, Sizes(16, 16, True), small.generation()), stepwise_loss, draws)
    rows, pair, alone = copies(1000, draws), frozen(model, verifier), StepwiseDecoder(verifier, frozen=True)
    drafted = [one.ids for (one,) in pair.decode(pair.prepare(rows), AggressiveSearch(min_tokens_per_pass=0.0))]
    assert drafted == [one.ids for (one,) in alone.decode(alone.prepare(rows), StepwiseSearch())]
    assert pair.record.tokens > 0.5 * DRAFTER.draft_width * pair.record.steps
    assert sum(one == row for one, row in zip(drafted, rows, strict=True)) > 500
    head, given = head_of(verifier, encoder_layers=1, decoder_layers=1), verifier.state_dict()
    torch.nn.init.zeros_(head.features.weight)
    head.load_state_dict({**head.state_dict(), **{name: given[other] for name, other in head.init_aliases().items()}})
    taught(head, FAMILY.loss, draws)
    top = frozen(head, verifier)
    assert [one.ids for (one,) in top.decode(top.prepare(rows), AggressiveSearch(min_tokens_per_pass=0.0))] == drafted
    assert top.record.steps < pair.record.steps
