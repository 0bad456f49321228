"""Runs on a Ray cluster of several workers and machines, with and without a shared disk."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.config.schema import Cluster, RunConfig, StoreConfig, Tracking
from pipeline.plan.step import Builder
from pipeline.run import execute
from pipeline.run.machines import Machines
from pipeline.run.ray_cluster.connection import connect_ray
from pipeline.store.artifacts import Store
from stages.artifacts import Artifact
from stages.context import StepContext
from stages.errors import ArtifactError, StageError
from stages.stage import Stage
from stages.workers import Resources
from stages.workers.ray_workers import RayWorkers
from tests.end_to_end.nodes import Nodes, cluster, patience
from tests.end_to_end.object_storage import S3
from tests.end_to_end.runs import ALONE, Watched, end

pytestmark = [pytest.mark.slow, pytest.mark.ray]


def test_a_cluster_that_is_not_there_is_named_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        expected = rf"the Ray cluster at {address}: expected a cluster that answers.*check cluster\.address"
        with pytest.raises(StageError, match=expected):
            connect_ray(Cluster(address=address))


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with patience():
        machines = connect_ray(Cluster(cpus=2))
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


def twice_deadly(folder: str) -> Callable[[int], int]:
    def die_twice(shard: int) -> int:
        marks = [Path(folder) / f"death{number}" for number in (1, 2)]
        for mark in marks:
            if shard == 1 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return shard

    return die_twice


def workers(tmp_path: Path) -> RayWorkers:
    return RayWorkers(Resources(workers=2, cpus=1), "decode:x", tmp_path, tmp_path / "log", tmp_path / "deaths", tmp_path / "isa")


def test_an_error_in_making_a_worker_is_passed_on(machines: Machines, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="a system: the weights are damaged"):
        list(workers(tmp_path).map(broken, "a system", [0, 1]))


def test_a_shard_that_kills_its_workers_is_named(machines: Machines, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="decode:x: shard 1: 3 workers died on it"):
        list(workers(tmp_path).map(deadly, "", [0, 1]))


def test_a_shard_that_kills_two_workers_and_then_works_is_done(machines: Machines, tmp_path: Path) -> None:
    assert sorted(workers(tmp_path).map(twice_deadly, str(tmp_path), [0, 1, 2])) == [(0, 0), (1, 1), (2, 2)]
    assert [json.loads(line)["shard"] for line in (tmp_path / "deaths").read_text().splitlines()] == [1, 1]


@dataclass(frozen=True)
class Nothing:
    folder: str


def fails_twice(inputs: None, config: Nothing, context: StepContext) -> None:
    for number in (1, 2):
        mark = Path(config.folder) / f"failure{number}"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    context.write_text(context.directory / "text", "made")


def test_a_step_whose_process_dies_twice_is_made_the_third_time(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "connect_ray", lambda cluster: machines)
    monkeypatch.setattr(machines, "close", lambda: None)
    store = Store(tmp_path / "store")
    builder = Builder(store.root)
    builder.add(Stage("toy", 1, fails_twice, Artifact), "a", None, Nothing(str(tmp_path)))
    config = RunConfig(store=StoreConfig(path=store.root), tracking=Tracking(enabled=False))
    report = execute.run(config, builder.plan(), store, config_file="toy.yaml")
    assert report.failed == {}
    retried = report.run.events()
    assert [e["step"] for e in retried if e["event"] == "step_retried"] == ["toy:a", "toy:a"]
    state = report.run.state()
    assert (state.status, state.retried, len(state.steps["toy:a"].attempts)) == ("done", 2, 3)
    assert next(store.root.glob("toy/*/text")).read_text() == "made"


UNTIL = ("--until", "train:teacher", "--set", "defaults.dropout=0", "--set", "cluster.resources.train.cpus=1")
TWO = (*UNTIL, "--set", "cluster.resources.train.workers=2")


def losses(run: Watched) -> dict[int, float]:
    """Return the validation loss by update."""
    report = json.loads(next((run.store / "train").glob("*/training.json")).read_text())
    return {validation["update"]: validation["loss"] for validation in report["validations"]}


def model(run: Watched) -> bytes:
    return next((run.store / "train").glob("*/model.safetensors")).read_bytes()


@pytest.mark.exhaustive
def test_two_workers_learn_what_one_learns_and_survive_the_death_of_one(tmp_path: Path) -> None:
    alone, together, disturbed = (
        Watched(tmp_path / "1", *ALONE, *UNTIL),
        Watched(tmp_path / "2", *TWO),
        Watched(tmp_path / "3", *TWO),
    )
    alone.finish()
    together.finish()
    assert len(losses(together)) > 1
    assert losses(together) == pytest.approx(losses(alone), rel=0.03)

    with disturbed.background() as process:
        disturbed.wait(lambda: disturbed.progress("train:teacher") >= 60, process)
        _, *workers = disturbed.processes("train:teacher")
        assert len(workers) == 2
        os.kill(workers[1], signal.SIGKILL)
        disturbed.ends(process)
    assert [e["step"] for e in disturbed.events("step_retried")] == ["train:teacher"]
    assert model(disturbed) == model(together)


SLOWLY = ("--set", "defaults.training.updates=600", "--until", "encode:distilled")


@pytest.fixture
def nodes(s3: S3) -> Iterator[Nodes]:
    with cluster() as nodes:  # its processes find the object storage by their environment
        yield nodes


def test_machines_without_a_shared_disk_make_the_same_artifacts(nodes: Nodes, s3: S3, tmp_path: Path) -> None:
    """The first machine is lost with its disk in a training; the second one continues from the checkpoint in the mirror."""
    undisturbed = Watched(tmp_path / "undisturbed", *ALONE, *SLOWLY)
    undisturbed.finish()
    one, two = tmp_path / "one", tmp_path / "two"
    apart = ("cluster.node_store=$NODE_STORE", "store.mirror=s3://fewstep/apart", f"cluster.address={nodes.address}")
    run = Watched(tmp_path / "driver", *SLOWLY, *(part for value in apart for part in ("--set", value)))
    alive = [nodes.add(1, environment={"NODE_STORE": str(one)})]
    process = run.start()
    try:
        run.wait(lambda: any(name.endswith(".partial/index.json") for name in s3.objects("apart/train/")), process)
        nodes.kill(alive.pop())
        shutil.rmtree(one)
        alive.append(nodes.add(1, environment={"NODE_STORE": str(two)}))
        run.ends(process)
    finally:
        end(process)
        for node in alive:
            nodes.kill(node)
    assert run.agrees_with(undisturbed)
    assert [e["step"] for e in run.events("step_retried")] == ["train:teacher"]
    assert "training from update 0 of" not in run.log("train:teacher")
    made = {directory.parent.name for directory, problem in Store(two).verify_all() if not problem}
    assert {"train", "distill", "encode", "corpus"} <= made
    assert not list(run.store.glob("*/*.partial*"))
    assert s3.check() == len(undisturbed.files())
