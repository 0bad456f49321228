"""Machines whose cables are pulled, which are out of reach of each other, of the head or of a step: runs go on to the same bits."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.networks import Machine, Network, RunAt, network, obstacle
from tests.end_to_end.runs import ALONE, Watched

LOST_SECONDS = 360.0
"""Time until the work of a lost node goes on elsewhere. Ray gives a node up after 65 s; by itself, it waits for the connections to
that node for seven minutes."""
TWO = ("--set", "cluster.resources.train={workers: 2, min_workers: 1, cpus: 1}", "--set", "cluster.node_wait_seconds=1")
TRAINED = ("--until", "train:teacher", "--set", "defaults.training.updates=400")

FEW_ROWS = ("--set", "corpus.train.embedded=600", "--set", "corpus.shard_rows=32")
SLOW_PARTS = (*FEW_ROWS, "--set", "distillation={strategy: sample, batch_tokens: 60}")

DISTILLED = ("--until", "distill:train", *SLOW_PARTS)


@pytest.fixture(scope="module")
def cables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network whose first machine is the head of a Ray cluster."""
    if reason := obstacle():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("nodes")
    with network(folder) as made:
        made.add()
        yield made


@contextmanager
def machines(cables: Network, count: int) -> Iterator[list[Machine]]:
    """Yield new machines of the cluster, which are removed afterwards."""
    added = [cables.add() for _ in range(count)]
    try:
        yield added
    finally:
        for machine in added:
            machine.stop()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """The training of two shares by one worker, undisturbed."""
    run = Watched(tmp_path_factory.mktemp("trained") / "store", "--in-process", "--set", "cluster.cpus=2", *TWO, *TRAINED)
    run.finish()
    return run


def soon(ready: Callable[[], bool], run: Watched, work_seconds: float = 0.0) -> None:
    """Wait until `ready`. Fail with the output of a run after `LOST_SECONDS` and the seconds that the work itself takes here."""
    deadline = time.monotonic() + LOST_SECONDS + work_seconds
    while not ready():
        assert time.monotonic() < deadline, run.output_file.read_text()[-6000:]
        time.sleep(0.2)


def said(run: Watched, text: str) -> Callable[[], bool]:
    """Return whether the output of a run has a text, whatever the breaks of its lines."""
    return lambda: text in " ".join(run.output_file.read_text().split())


def silence_is_said(run: Watched, machine: Machine) -> None:
    """Wait until a run names a machine that does not answer, which it must do before Ray gives that machine up."""
    node = f"the node at {machine.address}:"
    soon(said(run, node), run)
    first = " ".join(run.output_file.read_text().split()).partition(node)[2].split()[1:]
    assert first[:3] == ["does", "not", "answer"], first[:10]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1500)
def test_a_training_goes_on_without_a_machine_that_is_out_of_reach(cables: Network, trained: Watched, tmp_path: Path) -> None:
    run = RunAt(cables.machines[0], tmp_path / "store", "--set", f"cluster.address={cables.address}", *TWO, *TRAINED)
    run.begin_with(trained, before="train:teacher")
    with machines(cables, 2) as (one, other), run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 40, process)
        one.cut()
        silence_is_said(run, one)
        soon(lambda: run.started("train:teacher") == 2, run)
        run.ends(process)
    (reason,) = [event["error"] for event in run.events("step_retried")]
    assert one.address in reason
    assert said(run, "is lost: its work is repeated")()
    assert f"the node at {other.address}" not in run.output_file.read_text()
    assert "training from update 0 of" not in run.log("train:teacher")
    assert run.agrees_with(trained)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1500)
def test_a_training_goes_on_without_a_machine_whose_raylet_is_killed(cables: Network, trained: Watched, tmp_path: Path) -> None:
    run = RunAt(cables.machines[0], tmp_path / "store", "--set", f"cluster.address={cables.address}", *TWO, *TRAINED)
    run.begin_with(trained, before="train:teacher")
    with machines(cables, 2) as (one, _), run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 40, process)
        os.kill(one.raylet(), signal.SIGKILL)
        silence_is_said(run, one)
        soon(lambda: run.started("train:teacher") == 2, run)
        run.ends(process)
    assert len(run.events("step_retried")) == 1
    assert "it goes on with 1 of 2 workers" in run.events("step_waiting")[-1]["error"]
    assert run.agrees_with(trained)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1500)
def test_workers_that_do_not_reach_each_other_end_their_attempt(cables: Network, trained: Watched, tmp_path: Path) -> None:
    """Both machines answer the head, so that Ray notices nothing. The network is repaired before the next attempt."""
    silence = ("--set", "cluster.silence_seconds=60")
    run = RunAt(cables.machines[0], tmp_path / "store", "--set", f"cluster.address={cables.address}", *silence, *TWO, *TRAINED)
    run.begin_with(trained, before="train:teacher")
    with machines(cables, 2) as (one, other), run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 40, process)
        one.lose_packets_to(other)
        other.lose_packets_to(one)
        soon(lambda: bool(run.events("step_retried")), run)
        one.find(other)
        other.find(one)
        run.ends(process)
    assert "a training worker lost the connection to another one" in run.events("step_retried")[0]["error"]
    assert run.agrees_with(trained)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1500)
@pytest.mark.exhaustive
def test_shards_of_a_machine_that_is_out_of_reach_are_decoded_elsewhere(cables: Network, tmp_path: Path) -> None:
    undisturbed = Watched(tmp_path / "undisturbed", *ALONE, *DISTILLED)
    undisturbed.finish()
    run = RunAt(cables.machines[0], tmp_path / "store", "--set", f"cluster.address={cables.address}", *DISTILLED)
    run.begin_with(undisturbed, before="distill:train")
    with machines(cables, 2) as (one, _), run.background() as process:
        run.wait(lambda: run.progress("distill:train") >= 64, process)
        one.cut()
        silence_is_said(run, one)
        soon(lambda: "which is given to another worker" in run.log("distill:train"), run)
        run.ends(process)
    (done,) = run.events("step_done")
    assert done["deaths"] == 1
    assert run.agrees_with(undisturbed)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1500)
def test_shards_of_a_machine_that_the_step_alone_does_not_reach_are_decoded_elsewhere(cables: Network, tmp_path: Path) -> None:
    """Both machines answer the head, so that Ray takes neither for lost."""
    undisturbed = Watched(tmp_path / "undisturbed", *ALONE, *DISTILLED)
    undisturbed.finish()
    with machines(cables, 2) as (one, other):
        run = RunAt(one, tmp_path / "store", "--set", f"cluster.address={cables.address}", *DISTILLED)
        run.begin_with(undisturbed, before="distill:train")
        with run.background() as process:
            run.wait(lambda: run.progress("distill:train") >= 64, process)
            one.lose_packets_to(other)
            other.lose_packets_to(one)
            soon(lambda: bool(run.events("step_done")), run, undisturbed.manifests()["distill:train"]["seconds"])
            run.ends(process)
    assert run.agrees_with(undisturbed)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1500)
def test_a_driver_that_is_cut_off_from_the_head_ends_with_words(cables: Network, trained: Watched, tmp_path: Path) -> None:
    with machines(cables, 2) as (one, _):
        run = RunAt(one, tmp_path / "store", "--set", f"cluster.address={cables.address}", *TWO, *TRAINED)
        run.begin_with(trained, before="train:teacher")
        with run.background() as process:
            run.wait(lambda: run.progress("train:teacher") >= 40, process)
            one.cut()
            run.ends(process, 1)
    assert said(run, f"the Ray cluster at {cables.address}: expected an answer")(), run.output_file.read_text()[-4000:]
    assert "Traceback" not in run.output_file.read_text()
