"""Ray ends a worker that exceeds the memory of its machine, and another worker takes over the shard."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.config.schema import Cluster
from pipeline.run.machines import Machines
from pipeline.run.ray_cluster.connection import connect_ray
from stages.workers import Resources
from stages.workers.ray_workers import RayWorkers
from tests.end_to_end.nodes import patience
from tests.waiting import SLOW_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.ray]

ROOM = 2 << 30
"""Bytes that can be allocated before Ray ends a worker."""
BLOCK = 1 << 26


def memory() -> tuple[int, int]:
    """Return the bytes of memory of this machine, and those that are available."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return tuple(1024 * int(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable"))  # type: ignore[return-value]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    total, available = memory()
    if available < 4 * ROOM:
        pytest.skip("needs 8 GiB of free memory")
    monkeypatch.setenv("RAY_memory_usage_threshold", str(1 - (available - ROOM) / total))
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    with patience():
        machines = connect_ray(Cluster(cpus=1))
    yield machines
    machines.close()


def greedy(folder: str) -> Callable[[int], int]:
    def take(shard: int) -> int:
        mark = Path(folder) / "taken"
        if shard == 1 and not mark.exists():
            mark.touch()
            taken = []
            while memory()[1] > ROOM:  # other programs may give memory back meanwhile
                taken.append(bytearray(b"x") * BLOCK)
            time.sleep(SLOW_SECONDS)  # until Ray, which watches over the machine, ends this process
            return len(taken)
        return shard

    return take


def test_a_worker_out_of_memory_is_replaced(machines: Machines, tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    workers = RayWorkers(Resources(workers=2, cpus=0.5), "decode:x", tmp_path, tmp_path / "log", deaths, tmp_path / "isa")
    assert sorted(workers.map(greedy, str(tmp_path), [0, 1, 2])) == [(0, 0), (1, 1), (2, 2)]
    reported = {death["shard"]: death["error"] for death in map(json.loads, deaths.read_text().splitlines())}
    assert "memory" in reported[1].lower() or "died" in reported[1]  # Ray may end other workers too while the memory is full
