"""A cluster whose machines share no disk: they exchange artifacts through object storage."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.store.artifacts import Store
from tests.end_to_end.nodes import Nodes, cluster
from tests.end_to_end.object_storage import S3
from tests.end_to_end.runs import ALONE, Watched, end

pytestmark = [pytest.mark.slow, pytest.mark.ray]

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
