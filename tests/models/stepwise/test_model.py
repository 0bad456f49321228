"""The autoregressive network of all generation orders: what its slots see, its arrangement of targets, and its loss."""

import dataclasses
import string
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.families.stepwise.orders import ORDERS, GenerationOrder, OrderName
from fewstep.vocabulary import EOS, PAD
from models.common.buffers import Inputs, Size
from models.common.layers.embeddings import sinusoids
from models.family import family_named
from models.stepwise.arrangement import permutation, restore, step_mask
from models.stepwise.loss import log_probability, loss
from models.stepwise.model import StepwiseModel, arrange, build, fits, labelled, signed
from models.stepwise.search.greedy import Outputs
from models.stepwise.search.incremental import IncrementalDecoder
from models.training.batch import Batch, collate

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


def test_dropout_acts_only_in_training():
    model = network(dropout=0.5)
    batch = random_batch([4, 2])
    predict = lambda: model(batch.source, batch.source_lengths, batch.target, batch.target_lengths).states  # noqa: E731
    assert torch.equal(predict(), predict())
    model.train()
    assert not torch.equal(predict(), predict())


def test_heads_divide_the_width():
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


# ---- order


MASKS = {
    (1, 1): "100000 110000 111000 111100 111110 111111",
    (1, 2): "110000 110000 111100 111100 111111 111111",
    (1, 3): "111000 111000 111000 111111 111111 111111",
    (2, 1): "110000 110000 111100 111100 111111 111111",
    (2, 2): "111100 111100 111100 111100 111111 111111",
    (4, 1): "111100 111100 111100 111100 111111 111111",
}
MULTI = ORDERS["multi-directional"]


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


# ---- loss


SOURCES = [[7, 8, 9], [12], [10, 11, 12, 13, 9], [8, 8]]
TARGETS = [[9, 8], [11, 12, 13, 14, 15], [10], [7, 7, 7]]


def plain_transformer(weights, config, source, target):
    """Return log-probabilities [T,V] of one sentence by a plain autoregressive Transformer: loops, no batch, no cache."""
    heads, width = config.heads, config.width
    size = width // heads

    def linear(name, x):
        return x @ weights[f"{name}.weight"].t() + weights[f"{name}.bias"]

    def norm(name, x):
        mean, variance = x.mean(1, keepdim=True), x.var(1, unbiased=False, keepdim=True)
        return (x - mean) / (variance + 1e-5).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def attention(q, k, v, causal):
        rows = []
        for t in range(len(q)):
            visible = t + 1 if causal else len(k)
            parts = []
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                scores = torch.stack([(q[t, part] * k[s, part]).sum() / size**0.5 for s in range(visible)])
                parts.append((torch.softmax(scores, 0)[:, None] * v[:visible, part]).sum(0))
            rows.append(torch.cat(parts))
        return torch.stack(rows)

    def branch(x, name, block):
        if config.norm == "pre":
            return x + block(norm(f"{name}_residual.norm", x))
        return norm(f"{name}_residual.norm", x + block(x))

    def self_attention(name, x, causal):
        q, k, v = linear(f"{name}.projection", x).split(width, 1)
        return linear(f"{name}.output", attention(q, k, v, causal))

    def cross_attention(name, x, memory):
        k, v = linear(f"{name}.projection", memory).split(width, 1)
        return linear(f"{name}.output", attention(linear(f"{name}.queries", x), k, v, False))

    def feed_forward(name, x):
        return linear(f"{name}.narrow", linear(f"{name}.widen", x).clamp(min=0))

    def positions(count):
        rates = [10000 ** (-j / (width / 2 - 1)) for j in range(width // 2)]
        rows = [[p * rate for rate in rates] for p in range(count)]
        return torch.cat((torch.tensor(rows).sin(), torch.tensor(rows).cos()), 1)

    output = weights["target_embedding.weight"]
    x = weights.get("source_embedding.weight", output)[source] * width**0.5 + positions(len(source))
    for layer in range(config.encoder_layers):
        name = f"encoder.layers.{layer}"
        x = branch(x, f"{name}.attention", lambda y, name=name: self_attention(f"{name}.attention", y, False))
        x = branch(x, f"{name}.feed_forward", lambda y, name=name: feed_forward(f"{name}.feed_forward", y))
    memory = norm("encoder.norm", x) if config.norm == "pre" else x
    x = torch.cat((torch.zeros(1, width), output[target[:-1]] * width**0.5)) + positions(len(target))
    for layer in range(config.decoder_layers):
        name = f"decoder.layers.{layer}"
        x = branch(x, f"{name}.attention", lambda y, name=name: self_attention(f"{name}.attention", y, True))
        x = branch(x, f"{name}.cross_attention", lambda y, name=name: cross_attention(f"{name}.cross_attention", y, memory))
        x = branch(x, f"{name}.feed_forward", lambda y, name=name: feed_forward(f"{name}.feed_forward", y))
    x = norm("decoder.norm", x) if config.norm == "pre" else x
    return torch.log_softmax(x @ output.t(), 1)


@pytest.mark.parametrize(("norm", "joint"), [("pre", True), ("post", False)])
def test_equals_an_independently_written_autoregressive_transformer(norm, joint):
    model = network(norm=norm, sizes=Sizes(16, 16, joint), encoder_layers=2, decoder_layers=1)
    smoothing = 0.1
    result = loss(model, collate(range(4), SOURCES, TARGETS), 0, smoothing)
    result.total.backward()
    weights = {name: value.detach().clone().requires_grad_() for name, value in model.state_dict().items()}
    total, nll, correct, count = torch.zeros(()), 0.0, 0, 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        labels = [*target, EOS]
        log_probs = plain_transformer(weights, model.config, [*source, EOS], labels)
        for row, label in zip(log_probs, labels, strict=True):
            total = total - (1 - smoothing) * row[label] - smoothing * row.mean()
            nll, correct, count = nll - row[label].item(), correct + int(row.argmax() == label), count + 1
    total.backward()
    torch.testing.assert_close(result.total, total, rtol=1e-5, atol=1e-5)
    assert result.statistics["nll"].item() == pytest.approx(nll, rel=1e-5)
    assert (result.statistics["correct"].item(), result.count.item()) == (correct, count)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, weights[name].grad, rtol=1e-5, atol=2e-5, msg=lambda text, name=name: name + text
        )


@pytest.mark.parametrize("order", [*ORDERS.values(), GenerationOrder(tokens_per_direction=3)], ids=str)
def test_loss_of_a_batch_is_the_sum_of_its_sentences(order):
    model = network(order)
    together = loss(model, collate(range(4), SOURCES, TARGETS), 0, 0.1)
    alone = [loss(model, collate([0], [source], [target]), 0, 0.1) for source, target in zip(SOURCES, TARGETS, strict=True)]
    torch.testing.assert_close(together.total, sum(part.total for part in alone), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.statistics["nll"], sum(part.statistics["nll"] for part in alone), rtol=1e-5, atol=1e-5)
    size = order.step_size
    labels = [-(-(len(target) + 1) // size) * size if order.tail == "fill" else len(target) + 1 for target in TARGETS]
    assert together.count == sum(part.count for part in alone) == sum(labels)


def test_more_padding_changes_nothing():
    model = network()
    batch = collate(range(4), SOURCES, TARGETS)
    pad = lambda ids: torch.nn.functional.pad(ids, (0, 5))  # noqa: E731
    wider = Batch(batch.ids, pad(batch.source), batch.source_lengths, pad(batch.target), batch.target_lengths)
    torch.testing.assert_close(loss(model, wider, 0, 0.1).total, loss(model, batch, 0, 0.1).total, rtol=1e-5, atol=1e-5)


def by_hand(model, source, target):
    """Return the log-probability of writing `target` and ending it, slot by slot from teacher-forced predictions."""
    batch = collate([0], [source], [target])
    predictions = model(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
    log_probs = torch.log_softmax(model.logits(predictions.states), 1)
    flat = arrange(model.order, batch.target, batch.target_lengths)[0].tolist()
    count = len(flat) if model.order.stop == "per-direction" else len(target) + 1
    return sum(log_probs[slot, flat[slot]].item() for slot in range(count))


@pytest.mark.parametrize("name", ORDERS)
def test_log_probability_charges_what_ends_the_output_and_nothing_after_it(name):
    model = network(ORDERS[name])
    targets = [*TARGETS, [], [9, 9, 9, 9]]
    scores = log_probability(model, collate(range(6), [*SOURCES, [7], [8]], targets))
    for score, source, target in zip(scores, [*SOURCES, [7], [8]], targets, strict=True):
        assert score.item() == pytest.approx(by_hand(model, source, target), abs=1e-4)


def test_autocast_keeps_float32_sums_close():
    model = network()
    batch = collate(range(4), SOURCES, TARGETS)
    exact = loss(model, batch, 0, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = loss(model, batch, 0, 0.1)
    rounded.total.backward()
    assert rounded.total.dtype == torch.float32
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
    torch.testing.assert_close(rounded.total, exact.total, rtol=0.02, atol=0)
