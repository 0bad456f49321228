"""A short campaign of kills and stops, and the choice of the workers that a campaign kills."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import rounds
from tests.campaign.rounds import MAX_MAP_KILLS, Faults, options, play
from tests.end_to_end.runs import Watched


@pytest.mark.slow
def test_two_drivers_that_are_killed_and_stopped_lose_nothing(tmp_path: Path) -> None:
    undisturbed = Watched(tmp_path / "undisturbed", *options(on_ray=False))
    undisturbed.finish()
    counts = play(1, tmp_path / "store", undisturbed, on_ray=False, kills=4, stops=20, seconds=12)
    assert counts["drivers killed"] > 0
    assert counts["drivers stopped"] > 0


class Busy:
    """A driver with workers of some kinds, which survive."""

    process = type("Process", (), {"poll": lambda self: None})()

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    def workers(self) -> dict[str, list[int]]:
        return {kind: [len(kind)] for kind in self.kinds}

    def kill(self) -> bool:
        return True


def killed(monkeypatch: pytest.MonkeyPatch, *drivers: Any, injections: int = 100) -> Faults:
    """Inject kills alone on Ray."""
    monkeypatch.setattr(rounds, "send", lambda pid, number: True)
    faults = Faults(kills=40, stops=0, draw=random.Random(5), on_ray=True)
    for _ in range(injections):
        faults.inject([*drivers])
    return faults


def test_half_of_the_kills_hit_workers_and_half_of_these_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = killed(monkeypatch, Busy("step", "map"), Busy("training")).counts
    assert counts["drivers killed"] == counts["workers killed"] == 20
    assert counts["training workers killed"] == 10
    assert counts["map workers killed"] == MAX_MAP_KILLS


def test_kills_wait_for_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = killed(monkeypatch, Busy("step"), Busy())
    assert faults.counts["step workers killed"] == 1
    assert faults.kills == 38
