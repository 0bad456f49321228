"""`fewstep plan --address`: steps that a cluster can never hold."""

from pathlib import Path

import pytest
import yaml

from pipeline.__main__ import main
from pipeline.run.ray_cluster import connection
from tests.pipeline.plan.toy_plans import CONFIG


class Machines:
    """A cluster of some nodes, without Ray."""

    def __init__(self, *nodes: dict[str, float]) -> None:
        self.nodes = {str(number): node for number, node in enumerate(nodes)}
        self.closed = False

    def close(self) -> None:
        self.closed = True


def write(folder: Path, **resources: dict[str, float]) -> Path:
    path = folder / "toy.yaml"
    values = {**CONFIG, "store": {"path": str(folder / "store")}, "cluster": {"resources": resources}}
    path.write_text(yaml.safe_dump(values))
    return path


def test_steps_are_named_by_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, train={"workers": 8, "gpus": 1, "cpus": 4}, decode={"gpus": 1})
    machines = Machines({"CPU": 16.0, "GPU": 4.0}, {"CPU": 64.0})
    monkeypatch.setattr(connection, "connect_ray", lambda cluster: machines)
    assert main(["plan", str(path), "--address", "head:6379"]) == 2
    shown = capsys.readouterr()
    assert "train:teacher" in shown.out  # the table comes first
    assert (
        "train:teacher, train:both, train:graph, train:student: cluster.resources.train: asks for 8 x 4 CPU + 1 GPU, the machines "
        "have"
    ) in shown.err
    assert "decode" not in shown.err
    assert machines.closed


def test_fewer_workers_are_enough_where_the_config_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, train={"workers": 8, "min_workers": 2, "gpus": 1, "cpus": 4})
    monkeypatch.setattr(connection, "connect_ray", lambda cluster: Machines({"CPU": 16.0, "GPU": 4.0}))
    assert main(["plan", str(path), "--address", "head:6379", "--estimate"]) == 0
    assert "the cluster at head:6379 can hold all of the" in capsys.readouterr().err


@pytest.mark.slow
def test_a_ray_cluster_without_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(write(tmp_path, train={"gpus": 1})), "--address", ""]) == 2
    assert "train:teacher, train:both, train:graph, train:student: cluster.resources.train: asks for 1 x" in capsys.readouterr().err
