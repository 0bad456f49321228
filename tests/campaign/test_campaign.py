"""A short campaign of kills and stops."""

from pathlib import Path

import pytest

from tests.campaign.rounds import options, play
from tests.end_to_end.runs import Watched

pytestmark = [pytest.mark.slow]


def test_two_drivers_that_are_killed_and_stopped_lose_nothing(tmp_path: Path) -> None:
    undisturbed = Watched(tmp_path / "undisturbed", *options(on_ray=False))
    undisturbed.finish()
    counts = play(1, tmp_path / "store", undisturbed, on_ray=False, kills=4, stops=20, seconds=12)
    assert counts["drivers killed"] > 0
    assert counts["drivers stopped"] > 0
