"""Workers on Ray: what they raise, what it means when they die, and clusters that are not there."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.config import Cluster
from pipeline.machines import RayMachines
from stages.cluster import RayWorkers
from stages.errors import ArtifactError, StageError
from stages.stage import Resources

pytestmark = [pytest.mark.slow, pytest.mark.ray]


def test_a_cluster_that_is_not_there_is_named_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StageError, match=rf"the Ray cluster at {address}: expected to be connected.*check cluster\.address"):
            RayMachines(Cluster(address=address))


@pytest.fixture(scope="module")
def machines() -> Iterator[RayMachines]:
    machines = RayMachines(Cluster(cpus=2))
    yield machines
    machines.close()


def broken(argument: str) -> Callable[[int], int]:
    raise ArtifactError(f"{argument}: the weights are damaged")


def deadly(argument: str) -> Callable[[int], int]:
    def die(shard: int) -> int:
        if shard == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return shard

    return die


def workers(tmp_path: Path) -> RayWorkers:
    return RayWorkers(Resources(workers=1, cpus=1), "decode:x", tmp_path, tmp_path / "log", tmp_path / "deaths")


def test_an_error_in_making_a_worker_is_passed_on(machines: RayMachines, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="a system: the weights are damaged"):
        list(workers(tmp_path).map(broken, "a system", [0, 1]))


def test_a_shard_that_kills_its_workers_is_named(machines: RayMachines, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="decode:x: shard 1: 3 workers died over it"):
        list(workers(tmp_path).map(deadly, "", [0, 1]))
