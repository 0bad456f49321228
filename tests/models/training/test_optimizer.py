"""The optimizer, averages of weights, checkpoints, and passes that do not fit into memory."""

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from models.bundle import weights
from models.bundle.weights import save_weights
from models.family import Loss
from models.training import checkpoint
from models.training.averaging import Validation, kept, mean, stopped
from models.training.batch import Batch
from models.training.checkpoint import Checkpoint, newest, save
from models.training.config import TrainingConfig
from models.training.finite import NotFiniteError
from models.training.loop import updates
from models.training.memory import Passes, TrainingMemoryError
from models.training.optimizer import MAX_SKIPPED, MAX_SKIPPED_FLOAT16, Optimizer, learning_rate
from models.training.worker import TrainingWorker
from tests.models.training.test_loop import RECIPE, toy_loss, toy_shares
from tests.models.training.test_loop import make as make_network

# ---- adam over a flat vector, schedules by their formulas, skipping and loss scaling


def config(**values):
    return TrainingConfig(**{"learning_rate": 0.01, "warmup_updates": 10, "updates": 110, **values})


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant"])
def test_warm_up_is_linear_to_the_peak(schedule):
    recipe = config(schedule=schedule)
    assert [learning_rate(recipe, update) for update in (1, 5, 10)] == pytest.approx([0.001, 0.005, 0.01])


def test_schedules_follow_their_formulas():
    assert learning_rate(config(schedule="inverse_sqrt"), 40) == pytest.approx(0.005)
    assert learning_rate(config(schedule="cosine"), 60) == pytest.approx(0.005)
    assert learning_rate(config(schedule="cosine"), 35) == pytest.approx(0.01 * (1 + math.cos(math.pi / 4)) / 2)
    assert learning_rate(config(schedule="cosine"), 110) == pytest.approx(0.0)
    assert learning_rate(config(schedule="linear"), 60) == pytest.approx(0.005)
    assert learning_rate(config(schedule="linear"), 110) == 0.0
    assert learning_rate(config(schedule="constant"), 99) == 0.01


def test_schedules_work_without_warm_up():
    recipe = config(warmup_updates=0)
    assert learning_rate(recipe, 1) == 0.01
    assert learning_rate(recipe, 4) == 0.005


def test_the_learning_rate_rises_again_after_the_moments_were_lost():
    optimizer = Optimizer(nn.Linear(2, 2), config(schedule="constant"))
    assert [optimizer.learning_rate(update) for update in (5, 50, 55)] == pytest.approx([0.005, 0.01, 0.01])
    optimizer.moments_since = 50
    assert [optimizer.learning_rate(update) for update in (51, 55, 60, 70)] == pytest.approx([0.001, 0.005, 0.01, 0.01])


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
    other, _ = make()
    optimizer = Optimizer(model, recipe)
    reference = torch.optim.AdamW(other.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
    for update in range(1, 8):
        optimizer.clear()
        model(x).backward()
        norm = optimizer.step(update, torch.tensor(8.0))
        reference.zero_grad()
        (other(x) / 8.0).backward()
        reference.param_groups[0]["lr"] = learning_rate(recipe, update)
        assert float(norm) == pytest.approx(float(nn.utils.clip_grad_norm_(other.parameters(), 0.05)))
        reference.step()
    for got, expected in zip(model.parameters(), other.parameters(), strict=True):
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
    other, _ = make(seed=9)
    continued = Optimizer(other, config())
    other.load_state_dict(weights)
    continued.load(state)
    advance(other, continued, (3, 4))
    assert continued.weights.equal(optimizer.weights)


# ---- choice of the checkpoints to keep and average, and early stopping


FOUND = [
    Validation(100, 3.0, 10.0),
    Validation(200, 2.0, 30.0),
    Validation(300, 1.5, 20.0),
    Validation(400, 1.8, 30.0),
    Validation(500, 2.5, 5.0),
]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"num_averaged": 1}, [400]),  # the later one on a tie
        ({"num_averaged": 3}, [200, 300, 400]),
        ({"num_averaged": 2, "validation_metric": "loss"}, [300, 400]),
        ({"num_averaged": 2, "average": "last"}, [400, 500]),
        ({"num_averaged": 9}, [100, 200, 300, 400, 500]),
    ],
)
def test_kept_are_the_best_or_the_last(values, expected):
    assert kept(TrainingConfig(**values), FOUND) == expected


def test_a_better_candidate_pushes_out_the_worst():
    recipe = TrainingConfig(num_averaged=2)
    assert [kept(recipe, FOUND[:count]) for count in range(1, 5)] == [[100], [100, 200], [200, 300], [200, 400]]


@pytest.mark.parametrize(("patience", "stops_after"), [(0, None), (1, 3), (2, 4), (3, 5)])
def test_patience_counts_validations_without_a_new_best(patience, stops_after):
    recipe = TrainingConfig(patience=patience)
    first = next((count for count in range(len(FOUND) + 1) if stopped(recipe, FOUND[:count])), None)
    assert first == stops_after


def test_patience_counts_epochs_from_the_first_of_the_best_validations() -> None:
    config = TrainingConfig(patience_epochs=3)
    found = [Validation(100 * epoch, 1.0, quality, epoch) for epoch, quality in enumerate([1.0, 9.0, 2.0, 9.0])]
    assert not stopped(config, found)
    assert not stopped(config, [])
    assert stopped(config, [*found, Validation(400, 1.0, 3.0, 4)])
    assert not stopped(config, [*found, Validation(400, 1.0, 9.5, 4)])


def test_patience_follows_the_metric():
    assert stopped(TrainingConfig(patience=2, validation_metric="loss"), FOUND)
    assert not stopped(TrainingConfig(patience=3, validation_metric="loss"), FOUND)


def test_mean_by_hand():
    states = [{"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(3.0)}, {"a": torch.tensor([2.0, -4.0]), "b": torch.tensor(6.0)}]
    averaged = mean(states)
    assert averaged["a"].tolist() == [1.5, -1.0]
    assert averaged["b"].item() == 4.5
    assert averaged["a"].dtype == torch.float32


def test_the_mean_does_not_lose_small_parts():
    states = [{"a": torch.tensor(2.0**25)}, *({"a": torch.tensor(1.0)} for _ in range(3))]
    assert mean(states)["a"].item() == 2.0**23 + 0.75 or mean(states)["a"].item() == float(torch.tensor(2.0**23 + 0.75))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_mean_that_is_not_finite_is_refused(bad):
    states = [{"a": torch.ones(3), "b": torch.ones(2)}, {"a": torch.ones(3), "b": torch.tensor([1.0, bad])}]
    with pytest.raises(NotFiniteError, match="mean of 2 candidates: expected finite weights, got inf or NaN in b"):
        mean(states)


# ---- resume checkpoints are complete or absent


def made_after(update):
    return Checkpoint(
        {"w": torch.full((3,), float(update))}, {"step": torch.tensor(float(update))}, {"update": update, "more": [1, 2]}
    )


def test_the_newest_of_two_kept_comes_back(tmp_path):
    for update in (9, 10, 100):
        save(tmp_path, made_after(update), "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "100"]
    found = newest(tmp_path)
    assert found.state == {"update": 100, "more": [1, 2]}
    assert found.model["w"].equal(torch.full((3,), 100.0))
    assert found.optimizer["step"].item() == 100.0


def test_saving_an_update_again_replaces_it(tmp_path):
    save(tmp_path, made_after(5), "a")
    again = made_after(5)
    again.model["w"].fill_(7.0)
    save(tmp_path, again, "b")
    assert newest(tmp_path).model["w"].tolist() == [7.0] * 3


def test_no_directory_is_no_checkpoint(tmp_path):
    assert newest(tmp_path / "none") is None


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["gone", "short", "empty"])
def test_a_torn_directory_is_ignored(tmp_path, name, damage):
    save(tmp_path, made_after(1), "a")
    save(tmp_path, made_after(2), "a")
    path = tmp_path / "2" / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: -len(path.read_bytes()) // 2] if damage == "short" else b"")
    assert newest(tmp_path).state["update"] == 1


def test_what_a_dead_attempt_left_is_ignored(tmp_path):
    save(tmp_path, made_after(1), "a")
    (tmp_path / "2.dead.tmp").mkdir()
    (tmp_path / "candidates").mkdir()
    assert newest(tmp_path).state["update"] == 1


def test_another_schema_is_ignored(tmp_path):
    save(tmp_path, made_after(1), "a")
    path = tmp_path / "1" / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    assert newest(tmp_path) is None


def test_a_full_disk_leaves_the_earlier_one_whole(tmp_path, monkeypatch):
    save(tmp_path, made_after(1), "a")

    def full(tensors, path, metadata=None):
        raise checkpoint.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(weights, "save_file", full)
    with pytest.raises(OSError, match="No space left") as caught:
        save(tmp_path, made_after(2), "a")
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == ["1"]
    assert newest(tmp_path).state["update"] == 1


LIMITED = """
import resource, signal, sys
import torch
from pathlib import Path
from models.bundle.weights import save_weights
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))
try:
    save_weights(Path(sys.argv[1]), {"w": torch.zeros(100000)})
except OSError as error:
    print(error.errno)
"""


def test_a_file_that_cannot_grow_is_an_os_error(tmp_path):
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "w")], capture_output=True, text=True, check=True)
    assert int(done.stdout) == errno.EFBIG


def test_views_of_one_vector_are_saved_each_by_itself(tmp_path):
    flat = torch.arange(12.0)
    save_weights(tmp_path / "w", {"a": flat[:4], "b": flat[4:10].view(2, 3)})
    assert checkpoint.load_file(tmp_path / "w")["b"].tolist() == [[4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
    assert (tmp_path / "w").stat().st_size < 1000


# ---- passes that do not fit the memory of the device are halved, and the result stays


def tokens(batch: Batch) -> int:
    return len(batch.ids) * max(batch.source.size(1), batch.target.size(1))


def limited(limit: int, error: type[BaseException] = torch.OutOfMemoryError) -> tuple[Callable[..., Loss], list[int]]:
    """Return a loss that needs memory in proportion to its batch, and the sizes of the passes that fit. It fails late: parts of an
    update are in the gradient, and the network has counted the batch."""
    sizes: list[int] = []

    def loss(model: Any, batch: Batch, update: int, label_smoothing: float) -> Loss:
        model.seen += len(batch.ids)
        if tokens(batch) > limit:
            raise error("no memory")
        sizes.append(tokens(batch))
        found: Loss = toy_loss(model, batch, update, label_smoothing)
        return found

    return loss, sizes


def trained(loss: Callable[..., Loss], **options: Any) -> tuple[list[Any], Any, Passes]:
    model, optimizer = make_network(RECIPE, dropout=0.0)
    model.register_buffer("seen", torch.zeros(()))
    passes = Passes()
    return list(updates(model, loss, toy_shares(**options), optimizer, RECIPE, TrainingWorker(), passes=passes)), model, passes


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
@pytest.mark.parametrize("microbatch_tokens", [0, 45])
def test_the_result_is_that_of_enough_memory(error: type[BaseException], microbatch_tokens: int) -> None:
    free, _ = limited(10**9)
    expected, model, _ = trained(free)
    loss, sizes = limited(20, error)
    found, other, passes = trained(loss, microbatch_tokens=microbatch_tokens)
    assert passes.max_tokens is not None
    assert max(sizes) <= 20
    assert [report.position for report in found] == [report.position for report in expected]
    for one, report in zip(expected, found, strict=True):
        assert report.sums["count"] == one.sums["count"]
        torch.testing.assert_close(report.sums["loss"], one.sums["loss"], rtol=1e-4, atol=1e-4)
    for one, same in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(one, same, atol=1e-5, rtol=1e-4)
    assert model.seen == other.seen  # failed passes leave no trace in buffers


def test_memory_is_searched_for_once() -> None:
    calls = []
    loss, _ = limited(20)

    def counted(*arguments: Any) -> Loss:
        try:
            return loss(*arguments)
        except torch.OutOfMemoryError:
            calls.append(arguments[2])
            raise

    trained(counted)
    assert 1 <= len(calls) <= math.ceil(math.log2(60 / 20)) + 1


def test_one_pair_that_does_not_fit_is_an_error() -> None:
    loss, _ = limited(3)
    with pytest.raises(
        TrainingMemoryError, match=r"out of memory with one pair of \d+ source and \d+ target tokens.*lower training.max_tokens"
    ):
        trained(loss)
