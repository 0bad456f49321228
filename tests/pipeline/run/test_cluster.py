"""Ray clusters of runs: their machines, nodes and heads, and which steps they admit."""

from __future__ import annotations

import logging
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from fewstep import local_ray
from fewstep.native import fewstep_native
from fewstep.threads import PASSIVE, wait_passively
from pipeline.commands.run import isa_levels
from pipeline.config.schema import Cluster
from pipeline.plan.step import Builder, Plan
from pipeline.run import execute
from pipeline.run.admission import admit, allocate, minus, total, total_of
from pipeline.run.ray_cluster import head, machines, nodes
from pipeline.run.ray_cluster.machines import STARTS, join, start_local
from pipeline.run.ray_cluster.nodes import NodeWatch
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from stages.artifacts import Artifact
from stages.context import StepContext
from stages.errors import StageError
from stages.shared.environment import environment
from stages.stage import Stage
from stages.workers import LimitedResources, Resources, isa
from tests.pipeline.run.toys import STAGE, ToyConfig, ToyInputs, config, diamond, go
from tests.processes import FAST_SECONDS, until


def nothing(inputs: Any, config: Any, context: StepContext) -> None:
    Path(context.directory / "x").touch()


LEAF = Stage("leaf", 1, nothing, Artifact)
MAP = Stage("map", 1, nothing, Artifact, distributes=True)
TRAIN = Stage("train", 1, nothing, Artifact, distributes=True, trains=True)
TIMED = Stage("timed", 1, nothing, Artifact, exclusive=True)
TWO = [{"CPU": 2.0, "GPU": 0.0}]


def test_default_resources() -> None:
    assert allocate(LEAF, Resources(), TWO, TWO[0]) == Resources(workers=1, cpus=1.0)
    assert allocate(MAP, Resources(), TWO, TWO[0]) == Resources(workers=2, cpus=1.0)
    assert allocate(TRAIN, Resources(), TWO, TWO[0]) == Resources(workers=1, cpus=2.0)
    assert allocate(TRAIN, Resources(workers=2), TWO, TWO[0]) == Resources(workers=2, cpus=1.0)


def test_a_map_takes_free_cpus_and_a_training_waits_for_its_request() -> None:
    one_left = {"CPU": 1.0, "GPU": 0.0}
    assert allocate(MAP, Resources(), TWO, one_left) == Resources(workers=1, cpus=1.0)
    assert allocate(TRAIN, Resources(), TWO, one_left) is None
    assert allocate(TRAIN, Resources(cpus=1), TWO, one_left) == Resources(workers=1, cpus=1)
    assert allocate(LEAF, Resources(), TWO, {"CPU": 0.0}) is None


def test_an_exclusive_step_waits_for_all_resources() -> None:
    assert allocate(TIMED, Resources(), TWO, {"CPU": 1.0, "GPU": 0.0}) is None
    assert allocate(TIMED, Resources(), TWO, {"CPU": 2.0, "GPU": 0.0}) is not None


TOO_MUCH = [
    Resources(cpus=4), Resources(workers=3, cpus=1), Resources(gpus=1), Resources(custom={"spot": 1}), Resources(memory_gib=1),
]  # fmt: skip


@pytest.mark.parametrize("asked", TOO_MUCH)
def test_a_request_that_can_never_fit_is_refused(asked: Resources) -> None:
    with pytest.raises(StageError, match=r"cluster\.resources\.train: asks for .* the machines have 2 CPU"):
        allocate(TRAIN, asked, TWO, TWO[0])


def test_a_refusal_says_what_each_machine_has() -> None:
    """Ray names a node by a resource, and counts memory in bytes."""
    nodes = [
        {"node:10.0.0.7": 1.0, "node:__internal_head__": 1.0, "CPU": 16.0, "memory": 8.5 * 2**30, "object_store_memory": 1e9},
        {"node:10.0.0.8": 1.0, "CPU": 4.0, "GPU": 1.0, "fast_disk": 2.0, "memory": 2.0**34},
    ]
    with pytest.raises(StageError) as found:
        allocate(TRAIN, Resources(cpus=2, gpus=1, memory_gib=32), nodes, nodes[0])
    assert str(found.value) == (
        "cluster.resources.train: asks for 1 x 2 CPU + 1 GPU + 32 GiB memory, the machines have 10.0.0.7: 16 CPU + 8.5 GiB memory; "
        "10.0.0.8: 4 CPU + 1 GPU + 2 fast_disk + 16 GiB memory; ask for less or add a node "
        "(docs/guide/cluster.md#steps-that-never-fit)"
    )


def test_a_worker_must_fit_on_one_node() -> None:
    nodes = [{"CPU": 2.0}, {"CPU": 2.0}]
    with pytest.raises(StageError):
        allocate(TRAIN, Resources(cpus=3), nodes, total(nodes))
    assert allocate(TRAIN, Resources(workers=2, cpus=2), nodes, total(nodes)) is not None


def test_fractions_share_a_gpu() -> None:
    nodes = [{"CPU": 8.0, "GPU": 1.0}]
    assert allocate(MAP, Resources(gpus=0.25), nodes, nodes[0]) == Resources(workers=4, cpus=1.0, gpus=0.25)


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 8))
def test_granted_resources_are_free(cpus: int, size: int, taken: int) -> None:
    nodes = [{"CPU": float(size)}]
    free = {"CPU": float(max(0, size - taken))}
    try:
        granted = allocate(MAP, Resources(cpus=cpus), nodes, free)
    except StageError:
        assert cpus > size
        return
    if granted is None:
        assert free["CPU"] < cpus
    else:
        assert minus(free, total_of(granted))["CPU"] >= 0


MIXED = {"head": {"CPU": 2.0}, "gpus": {"CPU": 4.0, "GPU": 1.0}}
ON_GPU = (TRAIN, Resources(gpus=1))


def test_steps_without_gpus_stay_off_nodes_with_gpus() -> None:
    granted = admit((MAP, Resources()), MIXED, [], [ON_GPU])
    assert granted == (Resources(workers=2, cpus=1.0), ("gpus",))
    beside = admit(ON_GPU, MIXED, [(MAP, granted[0])], [])
    assert beside == (Resources(workers=1, cpus=4.0, gpus=1), ())  # all CPUs of the machine with the GPU
    assert admit((LEAF, Resources()), MIXED, [(MAP, granted[0]), (TRAIN, beside[0])], []) is None


def test_all_nodes_are_used_if_no_step_requests_gpus() -> None:
    assert admit((MAP, Resources()), MIXED, [], [(TRAIN, Resources())]) == (Resources(workers=6, cpus=1.0), ())


def test_a_step_that_only_fits_on_a_gpu_node_runs_there() -> None:
    assert admit((LEAF, Resources(cpus=3)), MIXED, [], [ON_GPU]) == (Resources(workers=1, cpus=3), ())


def test_on_a_single_node_the_cpus_of_a_pending_gpu_step_are_left_free() -> None:
    one = {"here": {"CPU": 4.0, "GPU": 1.0}}
    stated = (TRAIN, Resources(gpus=1, cpus=3))
    assert admit((MAP, Resources()), one, [], [stated]) == (Resources(workers=1, cpus=1.0), ())
    assert admit((MAP, Resources()), one, [], [ON_GPU]) == (Resources(workers=4, cpus=1.0), ())
    assert admit((LEAF, Resources(cpus=2)), one, [], [stated]) == (Resources(workers=1, cpus=2), ())
    assert admit((LEAF, Resources(cpus=2)), one, [(LEAF, Resources(workers=1, cpus=1))], [stated]) is None


def test_an_exclusive_step_runs_alone_on_any_node() -> None:
    assert admit((TIMED, Resources()), MIXED, [], [ON_GPU]) == (Resources(workers=1, cpus=1.0), ())
    assert admit((TIMED, Resources()), MIXED, [(LEAF, Resources(workers=1, cpus=1))], []) is None


def test_nodes_with_custom_resources_are_reserved_like_gpu_nodes() -> None:
    nodes = {"a": {"CPU": 1.0}, "b": {"CPU": 1.0, "spot": 1.0}}
    assert admit((MAP, Resources()), nodes, [], [(TRAIN, Resources(custom={"spot": 1}))]) == (
        Resources(workers=1, cpus=1.0),
        ("b",),
    )


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "LOOK_SECONDS", 0.02)


class Node:
    """A server that answers the beginning of each connection with a byte, until it falls silent or ends."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.answers = True
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        kept = []  # connections that get no answer stay open
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self.answers:
                connection.sendall(b"\0")
                connection.close()
            kept.append(connection)

    def end(self) -> None:
        """Leave the address: connections are refused from now on."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextmanager
def watch(listed: dict[str, str]) -> Iterator[NodeWatch]:
    watch = NodeWatch(lambda: dict(listed))
    try:
        yield watch
    finally:
        watch.close()


def test_a_silent_node_is_named_once_and_again_when_it_answers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_ray, "ANSWER_SECONDS", 1.0)
    node, other = Node(), Node()
    with caplog.at_level(logging.WARNING), watch({"a": node.address, "b": other.address}) as watching:
        node.answers = False
        until(lambda: f"the node at {node.address} does not answer (timed out)" in caplog.text)
        assert watching.ended() == set()
        node.answers = True
        until(lambda: f"the node at {node.address} answers again" in caplog.text)
    assert len(caplog.messages) == 2


def test_a_node_whose_process_ended_has_no_room_for_work(caplog: pytest.LogCaptureFixture) -> None:
    node, listed = Node(), {"b": Node().address}
    listed["a"] = node.address
    with caplog.at_level(logging.WARNING), watch(listed) as watching:
        node.end()
        until(lambda: watching.ended() == {"a"})
        assert "refused" in caplog.text
        del listed["a"]
        until(lambda: f"the node at {node.address} is lost" in caplog.text)
        assert watching.ended() == set()


def test_a_node_that_joins_is_named(caplog: pytest.LogCaptureFixture) -> None:
    known, late = {"a": Node().address}, Node().address
    listed = threading.Event()

    def list_nodes() -> dict[str, str]:
        found = dict(known)
        listed.set()
        return found

    with caplog.at_level(logging.WARNING):
        watching = NodeWatch(list_nodes)
        assert listed.wait(FAST_SECONDS)
        known["b"] = late
        until(lambda: f"a node has joined at {late}" in caplog.text)
        watching.close()
    assert caplog.messages == [f"a node has joined at {late}"]


def test_nodes_are_no_longer_listed_while_the_head_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """A silent head says nothing about the nodes: none is lost."""
    node = Node()
    answers: list[dict[str, str] | None] = [{"a": node.address}]
    looks = 0

    def list_nodes() -> dict[str, str] | None:
        nonlocal looks
        looks += 1
        return answers.pop() if answers else None

    with caplog.at_level(logging.WARNING):
        watching = NodeWatch(list_nodes)
        until(lambda: looks > 4)
        watching.close()
    assert caplog.messages == []


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


PROGRAM = """
import atexit, sys, threading
import pipeline.__main__ as program
from pipeline.run.ray_cluster import head

head.LEAVE_SECONDS = 0.1
atexit.register(print, "the usual end")
head.leave({disconnect})
print("words")
program._end(130)
"""


@pytest.mark.parametrize(
    ("disconnect", "said"),
    [("threading.Event().wait", "words\n"), ("lambda: None", "words\nthe usual end\n")],
    ids=["ray still waits", "ray has left"],
)
def test_a_process_ends_at_once_only_while_ray_waits_for_the_head(disconnect: str, said: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(disconnect=disconnect)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FAST_SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, said, "")


def test_leaving_waits_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "LEAVE_SECONDS", 0.1)
    lost = threading.Event()
    head.leave(lost.wait)
    assert head.is_leaving()
    lost.set()
    for thread in threading.enumerate():
        if thread.name == head.LEAVING:
            thread.join(FAST_SECONDS)
    assert not head.is_leaving()


def test_memory_and_custom_resources_are_unlimited_in_process(store: Store) -> None:
    asking = {"corpus": Resources(workers=2, memory_gib=1e6, custom={"fast_disk": 1})}
    builder = Builder(store.root)
    seen: list[Resources] = []

    def look(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        seen.append(context.resources)

    builder.add(replace(STAGE, name="corpus", run=look), "a", ToyInputs(), ToyConfig("a"))
    generous = replace(config(store), cluster=Cluster(resources=asking))
    assert execute.run(generous, builder.plan(), store, config_file="toy.yaml", in_process=True).failed == {}
    assert [(resources.workers, dict(resources.custom)) for resources in seen] == [(1, {"fast_disk": 1})]


@pytest.mark.parametrize(("users", "threads"), [("2", 2), ("9", 4), ("", 4)])
def test_the_users_limit_of_threads_holds_in_process(
    store: Store, monkeypatch: pytest.MonkeyPatch, users: str, threads: int
) -> None:
    """A step has a thread for each of its CPUs, whose number `OMP_NUM_THREADS` does not change."""
    monkeypatch.setenv("OMP_NUM_THREADS", users)
    builder = Builder(store.root)
    seen: list[Resources] = []

    def look(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        seen.append(pickle.loads(pickle.dumps(context.for_workers().resources)))

    builder.add(replace(STAGE, name="train", run=look), "a", ToyInputs(), ToyConfig("a"))
    asking = replace(config(store), cluster=Cluster(cpus=4, resources={"train": Resources(cpus=4)}))
    report = execute.run(asking, plan := builder.plan(), store, config_file="toy.yaml", in_process=True)
    assert report.failed == {}
    assert [(resources.cpus, resources.threads) for resources in seen] == [(4, threads)]
    manifest = store.manifest(plan.steps[0].directory)
    assert manifest is not None
    assert (manifest.environment["cpus"], manifest.environment["threads"]) == (4, threads)


def test_resources_without_a_lower_limit_stay_as_they_are() -> None:
    granted = Resources(cpus=2, workers=1)
    assert [LimitedResources.of(granted, limit) is granted for limit in (None, 2, 3, 1)] == [True, True, True, False]


def levels(plan: Plan, store: Store) -> dict[str, list[str]]:
    manifests = {step.name: store.manifest(step.directory) for step in plan.steps}
    return {name: manifest.environment["isa"] for name, manifest in manifests.items() if manifest}


def test_a_manifest_names_the_level(store: Store) -> None:
    plan = diamond(store)
    go(plan, store)
    assert levels(plan, store) == {f"toy:{name}": [fewstep_native.LEVEL] for name in "abcd"}
    assert isa_levels(plan, store) == {fewstep_native.LEVEL: 4}
    assert environment("cpu", 1)["isa"] == fewstep_native.LEVEL


def test_processors_of_several_levels_are_all_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process on another node has worked for the first step; another node continues the run."""
    plan = diamond(store)
    first = partial_directory(plan.steps[0].directory, "earlier") / isa.ISA
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v2")
    isa.record_isa_level(first)
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v3")
    report = go(plan.until("toy:b"), store)
    log = report.run.log("toy:a", report.run.state().steps["toy:a"].attempts[0]).read_text()
    assert "computed on processors of different levels, x86-64-v2, x86-64-v3" in log
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v4")
    go(plan, store)
    expected = {"toy:a": ["x86-64-v2", "x86-64-v3"], "toy:b": ["x86-64-v3"], "toy:c": ["x86-64-v4"], "toy:d": ["x86-64-v4"]}
    assert levels(plan, store) == expected
    assert isa_levels(plan, store) == {"x86-64-v2": 1, "x86-64-v3": 2, "x86-64-v4": 2}


def test_the_level_is_no_part_of_a_fingerprint(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v2")
    go(diamond(store), store)
    monkeypatch.setattr(isa, "isa_level", lambda: "x86-64-v3")
    assert go(diamond(store), store).executed == ()


def test_a_process_without_the_extension_leaves_no_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fewstep.native", None)
    assert isa.isa_level() == "none"
    isa.record_isa_level(tmp_path / "isa")
    assert isa.recorded_isa_levels(tmp_path / "isa") == []
