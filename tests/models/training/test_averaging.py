"""Choice of the checkpoints to keep and average, and early stopping."""

import pytest
import torch

from models.training.averaging import Validation, kept, mean, stopped
from models.training.config import TrainingConfig
from models.training.finite import NotFiniteError

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
