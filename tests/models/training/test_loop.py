"""The training loop on a toy family: exact sums over any split, over processes, and across a stop."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from models.family import Loss
from models.training.batch import Pool, Position, Ragged, prefetch_batches, shares
from models.training.config import TrainingConfig
from models.training.finite import NotFiniteError
from models.training.loop import accumulate, updates
from models.training.optimizer import Optimizer
from models.training.parallel import all_gather, any_worker, broadcast
from models.training.precision import TYPES, arithmetic
from models.training.seeds import uniform_noise
from models.training.worker import TrainingWorker
from stages.train.token_files import PoolStream

RECIPE = TrainingConfig(updates=12, learning_rate=0.01, warmup_updates=4, batch_tokens=60)


class Toy(nn.Module):
    """A model that predicts each target token from the mean of the source's embeddings and its position."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.source = nn.Embedding(40, 8)
        self.position = nn.Embedding(16, 8)
        self.output = nn.Linear(8, 40)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch):
        real = torch.arange(batch.source.size(1)) < batch.source_lengths[:, None]
        mean = (self.source(batch.source) * real[..., None]).sum(1) / batch.source_lengths[:, None]
        return self.output(self.dropout(mean[:, None] + self.position.weight[: batch.target.size(1)]))


def toy_loss(model, batch, update, label_smoothing):
    real = torch.arange(batch.target.size(1)) < batch.target_lengths[:, None]
    logits = model(batch)[real].float()
    total = nn.functional.cross_entropy(logits, batch.target[real], reduction="sum", label_smoothing=label_smoothing)
    return Loss(total, batch.target_lengths.sum(), {"sentences": torch.tensor(float(len(batch.ids)))})


def toy_shares(start=Position(), rows=60, budget=60, **worker):
    generator = np.random.default_rng(5)
    source = [generator.integers(7, 40, generator.integers(1, 12)) for _ in range(rows)]
    target = [generator.integers(7, 40, generator.integers(1, 12)) for _ in range(rows)]

    def side(rows):
        return Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))

    def read(shards):
        chosen = [row for shard in shards for row in range(shard * 20, shard * 20 + 20)]
        return Pool(np.array(chosen), side([source[row] for row in chosen]), side([target[row] for row in chosen]))

    stream = PoolStream([20] * (rows // 20), read, lambda s, t: np.ones(len(s), dtype=bool), 1, pool_rows=20)
    return shares(stream.pools(start), budget, 1, start.batch, **worker)


def make(recipe=RECIPE, dropout=0.1):
    torch.manual_seed(0)
    model = Toy(dropout)
    return model, Optimizer(model, recipe)


def run(recipe, worker=TrainingWorker(), dropout=0.1, microbatch_tokens=0, num_shares=0, loss=toy_loss):
    model, optimizer = make(recipe, dropout)
    stream = toy_shares(rank=worker.rank, size=worker.world_size, microbatch_tokens=microbatch_tokens, num_shares=num_shares)
    return list(updates(model, loss, stream, optimizer, recipe, worker)), model, optimizer


@pytest.mark.parametrize("slices", [2, 3, 4])
def test_the_gradient_of_a_batch_is_the_sum_over_any_split(slices):
    gradients, sums = [], []
    for size in (1, slices):
        model, optimizer = make(dropout=0.0)
        parts = [next(toy_shares(budget=100, rank=rank, size=size))[0] for rank in range(size)]
        whole = parts[0]._replace(slices=[batch for part in parts for batch in part.slices])
        sums.append(accumulate(model, toy_loss, whole, optimizer.scale, RECIPE, TrainingWorker(), 1))
        gradients.append(optimizer.gradient.clone())
        assert len(whole.slices) == size
    torch.testing.assert_close(*gradients)
    assert sums[0]["count"] == sums[1]["count"]
    assert sums[0]["sentences"] == sums[1]["sentences"]
    torch.testing.assert_close(sums[0]["loss"], sums[1]["loss"])


def test_passes_do_not_change_the_recipe():
    _, model, _ = run(RECIPE, dropout=0.0)
    _, sliced, _ = run(RECIPE, dropout=0.0, microbatch_tokens=20)
    for one, other in zip(model.parameters(), sliced.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_shares_do_not_depend_on_the_number_of_workers(size):
    workers = [list(islice(toy_shares(budget=200, rank=rank, size=size, num_shares=4), 6)) for rank in range(size)]
    for update in range(6):
        own = {share.number: share for worker in workers for share in worker[update] if share.weight}
        for number, share in own.items():
            (wanted,) = next(islice(toy_shares(budget=200, rank=number, size=4), update, None))
            assert [batch.ids.tolist() for batch in share.slices] == [batch.ids.tolist() for batch in wanted.slices]
        assert sorted(own) == [0, 1, 2, 3]


def test_reports_state_losses_tokens_and_learning_rates():
    reports, _, _ = run(RECIPE)
    assert [report.update for report in reports] == list(range(1, 13))
    assert reports[3].learning_rate == 0.01
    assert all(0 < report.real_tokens <= report.padded_tokens for report in reports)
    first = [float(report.sums["loss"] / report.sums["count"]) for report in reports]
    assert first[0] == pytest.approx(np.log(40), abs=0.5)
    assert sum(float(report.sums["sentences"]) for report in reports if report.position.epoch == 0) == 60.0


def test_stopping_and_continuing_equals_a_straight_run_bit_for_bit():
    straight, _, optimizer = run(RECIPE)
    first, first_optimizer = make()
    half = list(islice(updates(first, toy_loss, toy_shares(), first_optimizer, RECIPE, TrainingWorker()), 5))
    weights = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    state = {name: tensor.clone() for name, tensor in first_optimizer.state().items()}
    torch.manual_seed(77)
    second, second_optimizer = Toy(), None
    second_optimizer = Optimizer(second, RECIPE)
    second.load_state_dict(weights)
    second_optimizer.load(state)
    rest = prefetch_batches(toy_shares(half[-1].position))
    continued = list(updates(second, toy_loss, rest, second_optimizer, RECIPE, TrainingWorker(), 5))
    assert second_optimizer.weights.equal(optimizer.weights)
    assert [r.sums["loss"].item() for r in half + continued] == [r.sums["loss"].item() for r in straight]


def test_dropout_depends_on_update_and_seed_alone():
    one, _, _ = run(RECIPE)
    torch.manual_seed(123)
    again, _, _ = run(RECIPE)
    other, _, _ = run(replace(RECIPE, seed=2))
    losses = [[report.sums["loss"].item() for report in reports] for reports in (one, again, other)]
    assert losses[0] == losses[1] != losses[2]


def test_bfloat16_keeps_weights_and_sums_in_float32(monkeypatch):
    monkeypatch.setattr("models.training.precision.has_bf16", lambda: True)
    reports, model, optimizer = run(replace(RECIPE, precision="bfloat16"))
    exact, _, _ = run(RECIPE)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert optimizer.gradient.dtype == torch.float32
    assert float(reports[0].sums["loss"]) != float(exact[0].sums["loss"])
    torch.testing.assert_close(reports[0].sums["loss"], exact[0].sums["loss"], rtol=0.02, atol=0.0)


def test_a_bad_loss_skips_its_update_alone():
    def spoiled(model, batch, update, label_smoothing):
        result = toy_loss(model, batch, update, label_smoothing)
        return replace(result, total=result.total * float("nan")) if update == 3 else result

    reports, _, optimizer = run(RECIPE, loss=spoiled)
    assert int(optimizer.skipped) == 1
    assert bool(torch.isfinite(optimizer.weights).all())
    assert not bool(torch.isfinite(reports[2].gradient_norm))


def test_divergence_is_an_error():
    def spoiled(model, batch, update, label_smoothing):
        result = toy_loss(model, batch, update, label_smoothing)
        return replace(result, total=result.total * float("inf"))

    with pytest.raises(NotFiniteError, match=r"update 5: loss: .*learning_rate"):
        run(replace(RECIPE, updates=30), loss=spoiled)


def test_a_learning_rate_of_any_size_never_ends_as_a_training():
    for rate in (1e300, 1e30):
        with pytest.raises(NotFiniteError, match=r"update [1-7]: (weights|loss)"):
            run(replace(RECIPE, learning_rate=rate))


@pytest.mark.parametrize(("update", "noticed"), [(3, 3), (20, 20), (21, 40), (45, 47)])
def test_later_updates_are_checked_at_intervals_and_at_the_end(update, noticed):
    def spoiling(model, batch, number, label_smoothing):
        if number == update:
            with torch.no_grad():
                model.output.weight[0, 0] = float("nan")
        result = toy_loss(model, batch, number, label_smoothing)
        return replace(result, total=result.total.nan_to_num(1.0)) if number >= update else result

    with pytest.raises(NotFiniteError, match=f"update {noticed}: weights"):
        run(replace(RECIPE, updates=47), loss=spoiling)


def context(results, rank):
    """Run one of two processes; this file is also their program."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{results}/store", rank=rank, world_size=2)
    worker = TrainingWorker(rank, 2)
    reports, _, optimizer = run(RECIPE, worker, dropout=0.0)
    _, _, dropped = run(RECIPE, worker)
    values = broadcast(worker, [rank + 5, rank + 7])
    assert any_worker(worker, [rank == 1, False]) == [True, False]
    parts = all_gather(worker, {rank: str(rank)})
    torch.save(
        {"weights": optimizer.weights, "dropped": dropped.weights, "losses": [r.sums["loss"] for r in reports], "values": values},
        f"{results}/{rank}.pt",
    )
    assert parts == [{0: "0"}, {1: "1"}]
    dist.destroy_process_group()


def test_the_noise_of_a_pair_does_not_depend_on_the_number_of_shares():
    """One share has the noise of torch's seed, so that a training with one worker has the same bits with or without the others."""

    def noises(num_shares):
        found, seeds = {}, {}

        def recorded(model, batch, update, label_smoothing):
            noise = uniform_noise(batch.ids, 3, training=True)
            found.update({(update, int(pair)): row.tolist() for pair, row in zip(batch.ids, noise, strict=True)})
            seeds.setdefault(update, set()).add(torch.initial_seed())
            return toy_loss(model, batch, update, label_smoothing)

        run(RECIPE, num_shares=num_shares, loss=recorded)
        return found, seeds

    one, one_seed = noises(1)
    two, two_seeds = noises(2)
    common = set(one) & set(two)
    assert len(common) > 20
    assert all(one[pair] == two[pair] for pair in common)
    assert {len(seeds) for seeds in one_seed.values()} == {1}
    assert {len(seeds) for seeds in two_seeds.values()} == {2}  # dropout differs
    for (update, pair), noise in one.items():
        torch.manual_seed(*one_seed[update])
        assert uniform_noise(torch.tensor([pair]), 3, training=True)[0].tolist() == noise


@pytest.mark.slow
def test_two_processes_equal_one_up_to_rounding(tmp_path):
    command = [sys.executable, __file__, str(tmp_path)]
    workers = [subprocess.Popen([*command, str(rank)], env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    reports, _, optimizer = run(RECIPE, dropout=0.0)
    assert found[0]["weights"].equal(found[1]["weights"])
    assert found[0]["values"] == found[1]["values"] == [5, 7]
    torch.testing.assert_close(found[0]["weights"], optimizer.weights, atol=1e-5, rtol=1e-4)
    _, _, alone = run(RECIPE, num_shares=2)
    assert found[0]["dropped"].equal(alone.weights)  # a sum of two gradients has one order
    torch.testing.assert_close(torch.stack(found[0]["losses"]), torch.stack([r.sums["loss"] for r in reports]), atol=0.0, rtol=1e-5)


if __name__ == "__main__":
    context(sys.argv[1], int(sys.argv[2]))


@pytest.mark.parametrize(
    ("can", "precision", "expected"),
    [(True, "bfloat16", "bfloat16"), (False, "bfloat16", "float32"), (False, "float32", "float32")],
)
def test_bfloat16_is_for_cpus_that_have_instructions_for_it(monkeypatch, can, precision, expected):
    monkeypatch.setattr("models.training.precision.has_bf16", lambda: can)
    seen = set()

    def loss(*arguments):
        seen.add(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32)
        return toy_loss(*arguments)

    run(replace(RECIPE, precision=precision), loss=loss)
    assert seen == {TYPES[expected]}
    assert arithmetic("bfloat16", "cuda:0") == "bfloat16"
