"""Starts of a local Ray cluster that fail, and the environment of a cluster that is joined."""

import pytest
import ray

from fewstep.threads import PASSIVE, wait_passively
from pipeline.run.ray_cluster import machines
from pipeline.run.ray_cluster.machines import STARTS, join, start_local
from stages.errors import StageError


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list whose first entry is the number of starts that fail; the second counts the calls."""
    state = [0, 0]

    def init(**options: object) -> None:
        state[1] += 1
        if state[1] <= state[0]:
            raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", init)
    return state


def test_a_cluster_that_does_not_start_in_time_is_started_again(failing: list[int]) -> None:
    failing[0] = STARTS - 1
    start_local(2)
    assert failing[1] == STARTS


def test_a_cluster_that_never_starts_is_a_clear_error(failing: list[int]) -> None:
    failing[0] = STARTS
    with pytest.raises(StageError, match=r"Ray did not start .* timed out during startup.*--in-process"):
        start_local(2)
    assert failing[1] == STARTS


@pytest.mark.parametrize("users", [None, "active"])
def test_workers_of_a_cluster_wait_as_the_driver_does(monkeypatch: pytest.MonkeyPatch, users: str | None) -> None:
    """Their nodes were started without the driver's environment."""
    given: dict[str, dict[str, str]] = {}
    monkeypatch.setattr(machines, "check_answers", lambda address: None)
    monkeypatch.setattr(ray, "init", lambda **options: given.update(options["runtime_env"]))
    for name in PASSIVE:
        monkeypatch.delenv(name, raising=False)
    if users:
        monkeypatch.setenv("OMP_WAIT_POLICY", users)
    wait_passively()
    join("head:6379")
    expected = {"OMP_WAIT_POLICY": users} if users else PASSIVE
    assert {name: value for name, value in given["env_vars"].items() if name in PASSIVE} == expected
