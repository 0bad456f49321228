"""Workers that die at their start, as on a node that Ray has not yet given up, are started again after growing pauses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from stages.errors import StageError
from stages.workers import Resources, ray_workers
from stages.workers.ray_workers import RayWorkers


class Cluster:
    """A cluster whose node is lost until `recovers`, in seconds of a clock of its own. Workers that start before die at once."""

    def __init__(self, recovers: float) -> None:
        self.recovers, self.now, self.starts = recovers, 0.0, 0

    def start(self, *_: Any) -> Any:
        self.starts += 1
        begun = self.now

        def ready() -> None:
            if begun < self.recovers:
                raise ActorDiedError()

        call = SimpleNamespace(remote=lambda: Call(ready))
        return Actor(ready=call, apply=SimpleNamespace(remote=lambda shard: Call(lambda: shard * 10)))

    def wait(self, calls: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        self.now += 0.01
        return calls[:1], calls[1:]

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Call:
    """The reference of a call that has ended."""

    def __init__(self, result: Any) -> None:
        self.result = result


class Actor:
    def __init__(self, **methods: Any) -> None:
        self.__dict__.update(methods)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster(recovers=65.0)
    calls = SimpleNamespace(wait=found.wait, get=lambda call: call.result(), kill=lambda actor: None)
    clock = SimpleNamespace(monotonic=lambda: found.now, time=lambda: found.now, sleep=found.sleep)
    mapper = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=found.start))
    for name, value in (("ray", calls), ("time", clock), ("_Mapper", mapper)):
        monkeypatch.setattr(ray_workers, name, value)
    return found


def workers(folder: Path) -> RayWorkers:
    parts = [folder / name for name in ("scratch", "log", "deaths", "isa")]
    return RayWorkers(Resources(workers=2, cpus=1), "align:raw", *parts)


def test_a_node_that_is_given_up_after_a_minute_ends_no_step(cluster: Cluster, tmp_path: Path) -> None:
    assert dict(workers(tmp_path).map(lambda _: lambda _: None, 0, [1, 2, 3])) == {0: 10, 1: 20, 2: 30}
    assert 65 < cluster.now < 65 + 20
    assert cluster.starts <= 12


def test_nodes_on_which_no_worker_starts_end_the_step(cluster: Cluster, tmp_path: Path) -> None:
    cluster.recovers = 1e9
    expected = r"\d+ workers died before they had started, the last with: .*check the nodes of the cluster"
    with pytest.raises(StageError, match=expected):
        list(workers(tmp_path).map(lambda _: lambda _: None, 0, [1, 2, 3]))
    assert 90 < cluster.now < 120
    assert cluster.starts <= 14
