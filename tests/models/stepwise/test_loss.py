import dataclasses

import pytest
import torch

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.families.stepwise.orders import ORDERS, GenerationOrder
from fewstep.vocabulary import EOS
from models.stepwise.loss import log_probability, loss
from models.stepwise.model import StepwiseModel, arrange
from models.training.batch import Batch, collate

SMALL = StepwiseConfig(encoder_layers=2, decoder_layers=2, width=16, feed_forward=24, heads=2, dropout=0.0, max_positions=40)
SOURCES = [[7, 8, 9], [12], [10, 11, 12, 13, 9], [8, 8]]
TARGETS = [[9, 8], [11, 12, 13, 14, 15], [10], [7, 7, 7]]


def network(order=None, sizes=None, **changes):
    torch.manual_seed(0)
    return StepwiseModel(dataclasses.replace(SMALL, **changes), sizes or Sizes(16, 16, True), order or GenerationOrder()).eval()


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


def test_log_probability_scores_each_sentence():
    model = network()
    scores = log_probability(model, collate(range(4), SOURCES, TARGETS))
    for score, source, target in zip(scores, SOURCES, TARGETS, strict=True):
        nll = loss(model, collate([0], [source], [target]), 0, 0.0).statistics["nll"]
        torch.testing.assert_close(score, -nll, rtol=1e-5, atol=1e-5)


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
