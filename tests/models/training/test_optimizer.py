"""Adam over a flat vector, schedules by their formulas, skipping and loss scaling."""

import math

import pytest
import torch
from torch import nn

from models.training.config import TrainingConfig
from models.training.finite import NotFiniteError
from models.training.optimizer import MAX_SKIPPED, MAX_SKIPPED_FLOAT16, Optimizer, learning_rate


def config(**values):
    return TrainingConfig(**{"learning_rate": 0.01, "warmup_updates": 10, "updates": 110, **values})


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "constant"])
def test_warm_up_is_linear_to_the_peak(schedule):
    recipe = config(schedule=schedule)
    assert [learning_rate(recipe, update) for update in (1, 5, 10)] == pytest.approx([0.001, 0.005, 0.01])


def test_schedules_follow_their_formulas():
    assert learning_rate(config(schedule="inverse_sqrt"), 40) == pytest.approx(0.005)
    assert learning_rate(config(schedule="cosine"), 60) == pytest.approx(0.005)
    assert learning_rate(config(schedule="cosine"), 35) == pytest.approx(0.01 * (1 + math.cos(math.pi / 4)) / 2)
    assert learning_rate(config(schedule="cosine"), 110) == pytest.approx(0.0)
    assert learning_rate(config(schedule="constant"), 99) == 0.01


def test_schedules_work_without_warm_up():
    recipe = config(warmup_updates=0)
    assert learning_rate(recipe, 1) == 0.01
    assert learning_rate(recipe, 4) == 0.005


class Tied(nn.Module):
    """A model with a shared weight, a bias and an odd size."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.second = nn.Linear(3, 5, bias=False)
        self.second.weight = self.first.weight
        self.last = nn.Linear(5, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)) + self.second(x)).sum()


def make(seed=0):
    torch.manual_seed(seed)
    return Tied(), torch.randn(4, 3)


def test_updates_equal_torch_adamw_with_clipping():
    recipe = config(weight_decay=0.1, clip_norm=0.05, warmup_updates=3)
    model, x = make()
    twin, _ = make()
    optimizer = Optimizer(model, recipe)
    reference = torch.optim.AdamW(twin.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
    for update in range(1, 8):
        optimizer.clear()
        model(x).backward()
        norm = optimizer.step(update, torch.tensor(8.0))
        reference.zero_grad()
        (twin(x) / 8.0).backward()
        reference.param_groups[0]["lr"] = learning_rate(recipe, update)
        assert float(norm) == pytest.approx(float(nn.utils.clip_grad_norm_(twin.parameters(), 0.05)))
        reference.step()
    for got, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(got, expected)
    assert model.first.weight is model.second.weight


def test_without_clipping_the_norm_does_not_matter():
    model, x = make()
    optimizer = Optimizer(model, config(clip_norm=0.0))
    model(x).backward()
    optimizer.gradient.mul_(1000.0)
    before = optimizer.gradient.clone()
    optimizer.step(1, torch.tensor(2.0))
    torch.testing.assert_close(optimizer.gradient, before / 2.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_update_that_is_not_finite_is_skipped_and_counted(bad):
    model, x = make()
    optimizer = Optimizer(model, config())
    model(x).backward()
    optimizer.step(1, torch.tensor(1.0))
    before = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    weights = optimizer.weights.clone()
    optimizer.gradient[2] = bad
    optimizer.step(2, torch.tensor(1.0))
    assert optimizer.weights.equal(weights)
    assert all(optimizer.state()[name].equal(before[name]) for name in ("exp_avg", "exp_avg_sq", "step"))
    assert (int(optimizer.skipped), int(optimizer.skipped_in_row)) == (1, 1)
    optimizer.clear()
    model(x).backward()
    optimizer.step(3, torch.tensor(1.0))
    assert (int(optimizer.skipped), int(optimizer.skipped_in_row)) == (1, 0)
    assert not optimizer.weights.equal(weights)


@pytest.mark.parametrize(("loss", "name"), [(math.nan, "loss"), (math.inf, "loss"), (2.0, "gradient_norm")])
def test_bad_updates_in_a_row_end_training_and_the_statistic_is_named(loss, name):
    optimizer = Optimizer(make()[0], config())
    for update in range(1, MAX_SKIPPED + 1):
        optimizer.gradient.fill_(math.nan)
        optimizer.step(update, torch.tensor(1.0))
        if update < MAX_SKIPPED:
            optimizer.check(update, torch.tensor(loss))
    with pytest.raises(NotFiniteError, match=rf"update 5: {name}: expected a finite value.*last 5 updates.*learning_rate"):
        optimizer.check(MAX_SKIPPED, torch.tensor(loss))


def test_float16_has_time_to_lower_its_scale():
    optimizer = Optimizer(make()[0], config())
    optimizer.config = config(precision="float16")
    optimizer.skipped_in_row.fill_(MAX_SKIPPED_FLOAT16 - 1)
    optimizer.check(40, torch.tensor(1.0))
    optimizer.skipped_in_row.fill_(MAX_SKIPPED_FLOAT16)
    with pytest.raises(NotFiniteError, match="gradient_norm"):
        optimizer.check(40, torch.tensor(1.0))


@pytest.mark.parametrize("rate", [1e300, 1e39])
def test_weights_that_are_not_finite_end_training_at_once(rate):
    model, x = make()
    optimizer = Optimizer(model, config(learning_rate=rate, warmup_updates=0))
    model(x).backward()
    optimizer.step(1, torch.tensor(1.0))
    with pytest.raises(NotFiniteError, match=rf"update 1: weights.*learning rate {rate:g}".replace("+", r"\+")):
        optimizer.check(1, torch.tensor(1.0))


def test_float16_on_a_cpu_names_the_choice():
    with pytest.raises(ValueError, match=r"training\.precision: expected float32 or bfloat16 on a CPU, got float16"):
        Optimizer(make()[0], config(precision="float16"))


def test_state_continues_bit_for_bit():
    model, x = make()
    optimizer = Optimizer(model, config())

    def advance(model, optimizer, updates):
        for update in updates:
            optimizer.clear()
            model(x).backward()
            optimizer.step(update, torch.tensor(1.0))

    advance(model, optimizer, (1, 2))
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    advance(model, optimizer, (3, 4))
    twin, _ = make(seed=9)
    continued = Optimizer(twin, config())
    twin.load_state_dict(weights)
    continued.load(state)
    advance(twin, continued, (3, 4))
    assert continued.weights.equal(optimizer.weights)
