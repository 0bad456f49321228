import dataclasses

import pytest
import torch

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.families.stepwise.orders import ORDERS, GenerationOrder
from models.common.buffers import Inputs, Size
from models.family import family_named
from models.stepwise.model import StepwiseModel, arrange, build, fits
from models.stepwise.search.incremental import IncrementalDecoder
from models.training.batch import collate

SMALL = StepwiseConfig(encoder_layers=2, decoder_layers=2, width=16, feed_forward=24, heads=2, dropout=0.0, max_positions=40)
SIZES = Sizes(19, 19, True)
PRESETS = pytest.mark.parametrize("name", ORDERS)


def network(order=None, sizes=SIZES, seed=0, **changes):
    torch.manual_seed(seed)
    return StepwiseModel(dataclasses.replace(SMALL, **changes), sizes, order or GenerationOrder()).eval()


def random_batch(target_lengths, seed=1):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda count: torch.randint(7, 19, (count,), generator=generator).tolist()  # noqa: E731
    return collate(range(len(target_lengths)), [draw(2 + n % 4) for n in target_lengths], [draw(n) for n in target_lengths])


def seen(model, slots):
    """Return [slots, slots]: True if the input token at flat index k has a gradient on the states that predict index t."""
    batch = random_batch([slots - 1])
    memories = model.encode(batch.source, batch.source_lengths)
    flat = arrange(model.order, batch.target, batch.target_lengths)
    embedded = []
    original = model.embed_slots

    def embed_slots(carried, codes):
        # One row of carried tokens; the gradient is taken with respect to their embeddings.
        tokens = model.target_embedding.weight[carried].detach().requires_grad_()
        embedded.append(tokens)
        first = torch.zeros(1, model.order.step_size, 16)
        return torch.cat((first, tokens * model.config.width**0.5), 1) + codes

    model.embed_slots = embed_slots
    states = model.hidden(flat, memories)
    model.embed_slots = original
    result = torch.zeros(flat.size(1), flat.size(1), dtype=torch.bool)
    for t in range(flat.size(1)):
        # The sum of squares: the plain sum of a normalised state is constant.
        (gradient,) = torch.autograd.grad(states[0, t].pow(3).sum(), embedded[0], retain_graph=True, allow_unused=True)
        result[t, : embedded[0].size(1)] = gradient[0].ne(0).any(1)
    return result


def visible(order, k, t):
    """Return whether the prediction of flat index t sees the token at flat index k."""
    step = order.step_size
    if order.mask == "causal":
        return k <= t - step
    return k < step * (t // step) and (order.mask == "block" or k % order.directions == t % order.directions)


@PRESETS
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_slot_depends_on_all_tokens_it_may_see_and_on_no_others(name, norm):
    order = ORDERS[name]
    dependence = seen(network(order, norm=norm), 7)
    for t in range(dependence.size(0)):
        expected = [visible(order, k, t) for k in range(dependence.size(1))]
        assert dependence[t].tolist() == expected, f"slot {t}"


@PRESETS
@pytest.mark.parametrize("changes", [{}, {"norm": "post", "positions": "learned", "encoder_layers": 1, "decoder_layers": 3}])
def test_step_by_step_equals_all_at_once_also_after_reordering(name, changes):
    order = ORDERS[name]
    step = order.step_size
    model = network(order, **changes)
    batch = random_batch([1, 2, 3, 4, 5, 6, 7, 23])
    flat = arrange(model.order, batch.target, batch.target_lengths)
    expected = model.logits(model.hidden(flat, model.encode(batch.source, batch.source_lengths)))
    sentences = len(flat)
    size = Size(sentences, batch.source.size(1), flat.size(1))
    with torch.no_grad():
        decoder = IncrementalDecoder(model, size, beam=2, shortlists=False)
        decoder.start(Inputs(batch.source, batch.source_lengths, batch.target_lengths))
        # Of the rows of a sentence, one carries its target, the other noise; rows change places.
        target_row, tokens = 0, torch.zeros(sentences, 2, step, dtype=torch.int64)
        for index, start in enumerate(range(0, flat.size(1), step)):
            found = decoder.log_probs(tokens.view(-1, step)).view(sentences, 2, step, -1)[:, target_row]
            torch.testing.assert_close(found, expected[:, start : start + step].log_softmax(2))
            turned = index % 3 != 2
            order = torch.tensor([1, 0]) if turned else torch.tensor([0, 1])
            decoder.select((torch.arange(sentences)[:, None] * 2 + order).flatten())
            target_row = 1 - target_row if turned else target_row
            tokens = torch.randint(7, 19, (sentences, 2, step))
            tokens[:, target_row] = flat[:, start : start + step]


@PRESETS
def test_predictions_of_a_sentence_do_not_depend_on_its_company(name):
    model = network(ORDERS[name])
    batch = random_batch([5, 1, 9, 2, 8])
    together = model(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
    for row in range(5):
        source, target = batch.source[row, : batch.source_lengths[row]], batch.target[row, : batch.target_lengths[row]]
        alone = model(source[None], batch.source_lengths[row, None], target[None], batch.target_lengths[row, None])
        assert sorted(alone.labels[: len(target)].tolist()) == sorted(target.tolist())
        assert torch.equal(alone.labels, together.labels[together.rows == row])
        torch.testing.assert_close(alone.states, together.states[together.rows == row], rtol=1e-5, atol=1e-5)


def test_right_to_left_is_left_to_right_on_reversed_targets():
    forward, backward = network(), network(GenerationOrder(arrangement="r2l"))
    batch = random_batch([5, 1, 9])
    targets = [row[: length - 1].tolist() for row, length in zip(batch.target, batch.target_lengths, strict=True)]
    turned = collate(range(3), [[7]] * 3, [target[::-1] for target in targets])
    got = backward(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
    expected = forward(batch.source, batch.source_lengths, turned.target, turned.target_lengths)
    assert torch.equal(got.labels, expected.labels)
    torch.testing.assert_close(got.states, expected.states)


def test_tables_are_tied_and_stored_once():
    joint, separate = network(), network(sizes=Sizes(17, 19, False))
    names = {name for name in joint.state_dict() if "embedding" in name}
    assert names == {"target_embedding.weight"}
    shapes = {name: tuple(value.shape) for name, value in separate.state_dict().items() if "embedding" in name}
    assert shapes == {"target_embedding.weight": (19, 16), "source_embedding.weight": (17, 16)}
    batch = random_batch([3])
    predictions = joint(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
    assert predictions.weight is joint.target_embedding.weight
    (gradient,) = torch.autograd.grad(predictions.states.pow(3).sum(), joint.target_embedding.weight)
    touched = gradient.ne(0).any(1).nonzero()[:, 0].tolist()
    assert touched == sorted({*batch.source[0].tolist(), *batch.target[0, :-1].tolist()})


def test_no_bias_on_the_output():
    model = network()
    assert model.logits(torch.zeros(1, 16)).eq(0).all()


def test_dropout_acts_only_in_training():
    model = network(dropout=0.5)
    batch = random_batch([4, 2])
    predict = lambda: model(batch.source, batch.source_lengths, batch.target, batch.target_lengths).states  # noqa: E731
    assert torch.equal(predict(), predict())
    model.train()
    assert not torch.equal(predict(), predict())


def test_config_decides_sizes_and_depth():
    model = network(encoder_layers=3, decoder_layers=1, feed_forward=40)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)
    assert model.encoder.layers[0].feed_forward.widen.weight.shape == (40, 16)
    with pytest.raises(ValueError, match="heads"):
        network(heads=3)


def test_initialisation_follows_the_generator():
    first, again, other = (network(seed=seed).state_dict() for seed in (4, 4, 5))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_family_builds_the_configured_order_and_knows_what_fits():
    found = family_named("stepwise").functions
    assert found.build(StepwiseConfig(order="right-to-left"), SIZES).order == GenerationOrder(arrangement="r2l")
    assert build(StepwiseConfig(), SIZES).order == GenerationOrder()
    assert fits(SMALL, 39, 39)
    assert not fits(SMALL, 40, 1)
    assert not fits(SMALL, 1, 40)
    longest = random_batch([39])
    model = network(positions="learned")
    assert len(model(longest.source, longest.source_lengths, longest.target, longest.target_lengths).labels) == 40


@pytest.mark.parametrize("where", ["dropout", "attention_dropout", "feed_forward_dropout"])
def test_each_dropout_drops_by_itself(where):
    batch = random_batch([5, 7])

    def moved(**rates):
        model = network(**rates)
        still = model.hidden(
            arrange(model.order, batch.target, batch.target_lengths), model.encode(batch.source, batch.source_lengths)
        )
        model.train()
        live = model.hidden(
            arrange(model.order, batch.target, batch.target_lengths), model.encode(batch.source, batch.source_lengths)
        )
        return bool((still - live).abs().max() > 1e-3)

    none = {"dropout": 0.0, "attention_dropout": 0.0, "feed_forward_dropout": 0.0}
    assert not moved(**none)
    assert moved(**{**none, where: 0.5})


def test_an_unstated_dropout_is_the_common_one():
    model = network(dropout=0.3, attention_dropout=0.1)
    layer = model.decoder.layers[0]
    assert (layer.attention.dropout, layer.cross_attention.dropout) == (0.1, 0.1)
    assert (layer.feed_forward.dropout.probability, layer.attention_residual.dropout.probability) == (0.3, 0.3)
