"""Workers that die at their start, as on a node that is being lost, are replaced; nodes on which no worker starts end the step."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError

from stages.errors import StageError
from stages.workers import Resources, ray_workers
from stages.workers.ray_errors import reason_of_death
from stages.workers.ray_workers import RayWorkers

DEATH = """The actor died unexpectedly before finishing this task.
	class_name: _Mapper
	actor_id: 35233dfd22fd814ac976d2f501000000
	namespace: 9b1a8d04-39e9-4bbc-b974-202e670d4ab3
	ip: 192.0.2.2
The actor died because its node has died. Node Id: 26fbed54a01ba6dc5c86ad5d81d1c5a98e7c2c7df8cbb2fbdfa20d04
	the actor's node was terminated unexpectedly: health check failed due to missing too many heartbeats
The actor never ran - it was cancelled before it started running.
"""
OUT_OF_MEMORY = "Task was killed due to the node running low on memory."
WITHOUT_ADDRESS = "\n".join(line for line in DEATH.splitlines() if "ip:" not in line)


def died() -> ActorDiedError:
    reason = "The actor died because its node has died. Node Id: 26fb"
    return ActorDiedError(ActorDiedErrorContext(node_ip_address="192.0.2.2", actor_id=bytes(16), error_message=reason))


class Cluster:
    """A cluster on which a worker dies at its start if `dies` says so of its number. Calls end at once."""

    def __init__(self, dies: Any) -> None:
        self.dies, self.starts = dies, 0

    def start(self, *_: Any) -> Any:
        self.starts += 1
        number = self.starts

        def ready() -> None:
            if self.dies(number):
                raise died()

        done: list[int] = []

        def apply(shard: int) -> int:
            """Return the result of a shard. Every worker dies on its second one."""
            done.append(shard)
            if len(done) == 2:
                raise died()
            return shard * 10

        call = SimpleNamespace(remote=lambda: Call(ready))
        return Actor(ready=call, apply=SimpleNamespace(remote=lambda shard: Call(lambda: apply(shard))))


class Call:
    """The reference of a call that has ended."""

    def __init__(self, result: Any) -> None:
        self.result = result


class Actor:
    def __init__(self, **methods: Any) -> None:
        self.__dict__.update(methods)


def results(cluster: Cluster, shards: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Return the results of a map of two workers over a cluster."""
    calls = SimpleNamespace(wait=lambda calls, **_: (calls[:1], calls[1:]), get=lambda call: call.result(), kill=lambda actor: None)
    monkeypatch.setattr(ray_workers, "ray", calls)
    monkeypatch.setattr(ray_workers, "_Mapper", SimpleNamespace(options=lambda **_: SimpleNamespace(remote=cluster.start)))
    parts = [folder / name for name in ("scratch", "log", "deaths", "isa")]
    workers = RayWorkers(Resources(workers=2, cpus=1), "align:raw", *parts)
    return dict(workers.map(lambda _: lambda _: None, 0, list(range(shards))))


def test_only_deaths_in_a_row_end_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of every eight workers die at their start: far more in a long step than the six deaths in a row that would end it."""
    cluster = Cluster(dies=lambda number: number % 8 in (1, 2))
    assert results(cluster, 40, tmp_path, monkeypatch) == {shard: shard * 10 for shard in range(40)}


def test_nodes_on_which_no_worker_starts_end_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(dies=lambda number: True)
    cause = r"the last with: The actor died because its node has died \(ip: 192\.0\.2\.2\); check the nodes of the cluster"
    with pytest.raises(StageError, match=rf"7 workers died before they had started, {cause}"):
        results(cluster, 3, tmp_path, monkeypatch)
    assert cluster.starts == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEATH, "The actor died because its node has died (ip: 192.0.2.2)"),
        (WITHOUT_ADDRESS, "The actor died because its node has died"),
        ("The actor died unexpectedly before finishing this task.", "The actor died unexpectedly before finishing this task."),
        (f"{OUT_OF_MEMORY}\nMemory: 1 GB", OUT_OF_MEMORY),
    ],
)
def test_the_reason_of_a_death_is_below_its_properties(text: str, expected: str) -> None:
    assert reason_of_death(RuntimeError(text)) == expected
