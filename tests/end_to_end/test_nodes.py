"""Nodes that are lost: runs go on to the same bits."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from fewstep.native import fewstep_native
from pipeline.tracking.database import database_uri, own_database
from stages import align, corpus
from stages.align import native as align_native
from stages.artifacts import Text
from stages.context import StepContext
from stages.workers import LocalWorkers, Resources, Workers
from stages.workers.ray_workers import RayWorkers
from tests.end_to_end.nodes import Nodes, cluster
from tests.end_to_end.runs import ALONE, Watched, end

SLOWLY = ["corpus.train.embedded=900", "corpus.test.small.embedded=600", "corpus.shard_rows=64", "evaluation.batch_tokens=300"]
"""Options for slow decoding: a few sentences at a time, through torch. Native decoding would end before a node can be killed."""

LOWER, HIGHER = "x86-64-v3", "x86-64-v4"
BRIEF = "defaults.training={updates: 60, batch_tokens: 1024, warmup_updates: 20, validate_every: 30, num_averaged: 1}"
TRAINING = "cluster.resources.train={workers: 1, cpus: 1, custom: {accelerator: 1}}"


def settings(*values: str) -> tuple[str, ...]:
    return tuple(part for value in values for part in ("--set", value))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster() as nodes:
        yield nodes


def on_nodes(log: str) -> set[str]:
    """Return the nodes that the workers of an attempt reported."""
    return set(re.findall(r"worker (?:ready|\d+ of \d+) on node (\w+)", log))


def has_reached(run: Watched, step: str, units: int) -> bool:
    """Return whether a running step has finished this number of units."""
    return run.progress(step) >= units


def is_lost(run: Watched, step: str) -> bool:
    """Return whether a run has noticed that a process of a step is gone: that of the step itself, or a worker on a shard."""
    retried = any(e["step"] == step for e in run.events("step_retried"))
    return retried or "which is given to another worker" in run.log(step)


@pytest.mark.slow
@pytest.mark.ray
def test_a_run_survives_the_loss_of_every_node_it_works_on(nodes: Nodes, tmp_path: Path) -> None:
    """One node at a time has the CPU. It is killed during a training, a distillation and a decoding, and another node is added."""
    sampled = settings(*SLOWLY, "distillation={strategy: sample, batch_tokens: 300}", "systems.distilled.search=[sample]")
    options = (*sampled, "--until", "decode:distilled/sample:small")
    undisturbed = Watched(tmp_path / "undisturbed", *ALONE, *options)
    undisturbed.finish()
    run = Watched(tmp_path / "run", *settings(f"cluster.address={nodes.address}"), *options)
    killed = {"train:teacher": 60, "distill:train": 256, "decode:distilled/sample:small": 128}
    alive, process = [nodes.add(1)], run.start()
    try:
        for step, ready in killed.items():
            run.wait(partial(has_reached, run, step, ready), process)
            nodes.kill(alive.pop())
            run.wait(partial(is_lost, run, step), process)
            alive.append(nodes.add(1))
        run.ends(process)
    finally:
        end(process)
        for node in alive:
            nodes.kill(node)
    assert run.agrees_with(undisturbed)
    for step in killed:
        events = [e for e in run.events("step_started", "step_retried", "step_done") if e["step"] == step]
        assert 0 < sum(e.get("lost_seconds", 0) for e in events) < events[-1]["time"] - events[0]["time"]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.exhaustive
def test_work_goes_where_what_it_asks_for_is(nodes: Nodes, tmp_path: Path) -> None:
    """Two of three nodes have accelerators: trainings spread over them, CPU steps stay off while trainings are to come."""
    plain, *fast = nodes.add(1), nodes.add(1, accelerator=1), nodes.add(1, accelerator=1)
    train = "cluster.resources.train={workers: 2, cpus: 1, custom: {accelerator: 1}}"
    slower = "evaluation.batch_tokens=60"  # the first workers are not done before the last has started
    sampled = settings(*SLOWLY, slower, "systems.distilled.search=[sample]")
    options = (*sampled, "--until", "decode:distilled/sample:small")
    run = Watched(tmp_path / "run", *settings(f"cluster.address={nodes.address}", train), *options)
    try:
        run.finish()
        assert on_nodes(run.log("train:teacher")) == {node.node_id for node in fast}
        assert on_nodes(run.log("encode:raw")) == on_nodes(run.log("distill:train")) == {plain.node_id}
        assert on_nodes(run.log("decode:distilled/sample:small")) == {node.node_id for node in (plain, *fast)}
    finally:
        for node in (plain, *fast):
            nodes.kill(node)


@pytest.mark.slow
@pytest.mark.ray
def test_a_training_goes_on_with_fewer_workers_to_the_same_bits(nodes: Nodes, tmp_path: Path) -> None:
    """One of two nodes is killed in a training of two workers, and does not come back."""
    elastic = settings("cluster.resources.train={workers: 2, min_workers: 1, cpus: 1}", "cluster.node_wait_seconds=5")
    options = (*elastic, "--until", "train:teacher")
    alone = Watched(tmp_path / "alone", "--in-process", "--set", "cluster.cpus=2", *options)
    alone.finish()
    run = Watched(tmp_path / "run", *settings(f"cluster.address={nodes.address}"), *options)
    run.begin_with(alone, before="train:teacher")
    alive, process = [nodes.add(1), nodes.add(1)], run.start()
    try:
        run.wait(lambda: run.progress("train:teacher") >= 40, process)
        nodes.kill(alive.pop())
        run.ends(process)
    finally:
        end(process)
        for node in alive:
            nodes.kill(node)
    assert "it goes on with 1 of 2 workers" in run.events("step_waiting")[-1]["error"]
    assert "number of shares of a batch: 2, of workers: 1" in run.log("train:teacher")
    assert "training from update 0 of" not in run.log("train:teacher")
    assert run.agrees_with(alone)


def isa_tag(store: Path, which: str) -> str:
    """Return the levels that MLflow shows for the run that `which` selects."""
    client = MlflowClient(database_uri(own_database(store)))
    (found,) = client.search_runs([one.experiment_id for one in client.search_experiments()], which)
    return str(found.data.tags["fewstep.isa"])


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.exhaustive
@pytest.mark.skipif(HIGHER not in fewstep_native.LEVELS, reason="needs a processor with AVX-512, and all levels")
def test_a_run_over_nodes_of_two_levels_names_both(nodes: Nodes, tmp_path: Path) -> None:
    """The training is pinned to one node, the first steps run on the other; all that the run leaves names the levels."""
    options = [BRIEF, TRAINING, "systems.distilled.data=raw", "tracking.enabled=true", "evaluation.min_bleu=0"]
    lower = nodes.add(1, environment={"FEWSTEP_ISA": LOWER})
    higher = nodes.add(1, environment={"FEWSTEP_ISA": HIGHER}, accelerator=1)
    run = Watched(tmp_path / "run", *settings(f"cluster.address={nodes.address}", *options))
    try:
        run.finish()
    finally:
        for node in (lower, higher):
            nodes.kill(node)
    levels = {step: set(manifest["environment"]["isa"]) for step, manifest in run.manifests().items()}
    assert LOWER in levels["encode:raw"]
    assert HIGHER in levels["train:teacher"]
    every = sorted(set().union(*levels.values()))

    assert "processors of different levels made the results" in (output := run.output_file.read_text())
    assert all(f"{level}: " in output for level in every)
    (page,) = run.store.glob("report/*/records/report.html")
    reported = sorted(set().union(*(found for step, found in levels.items() if step != "report:run")))
    assert f"The steps were computed on processors of different levels: {', '.join(reported)}." in page.read_text()
    assert isa_tag(run.store, "tags.`fewstep.kind` = 'run'") == ", ".join(every)
    assert isa_tag(run.store, "attributes.run_name = 'encode:raw'") == ", ".join(sorted(levels["encode:raw"]))


def context(directory: Path, workers: Workers) -> StepContext:
    directory.mkdir(parents=True)
    return StepContext(
        directory=directory, attempt="x", workers=workers, resources=Resources(cpus=1, workers=2), shard_cache=directory
    )


def results(directory: Path) -> dict[str, bytes]:
    paths = [p for p in directory.rglob("*") if p.is_file() and p.relative_to(directory).parts[0] not in ("records", "checkpoints")]
    return {str(p.relative_to(directory)): p.read_bytes() for p in paths}


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.exhaustive
def test_a_node_lost_in_sharded_em_changes_nothing(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(align_native, "IN_MEMORY_BYTES", 0)
    text = Text(tmp_path / "text", "text")
    config = corpus.CorpusConfig(source_language="en", target_language="de", embedded=48000, shard_rows=12000)
    corpus.STAGE.run(corpus.CorpusInputs(corpus.TextFiles()), config, context(text.path, LocalWorkers()))
    # Iterations enough to be under way when the node goes.
    inputs, settings = align.AlignInputs(text), align.AlignConfig(unit="words", iterations=12)
    align.STAGE.run(inputs, settings, context(tmp_path / "undisturbed", LocalWorkers()))

    alive: list[Any] = [nodes.add(2)]  # both workers, so that the busy one is killed with it
    ray.init(address=nodes.address, log_to_driver=False)
    directory = tmp_path / "disturbed"
    deaths = directory / "records/deaths.jsonl"
    workers = RayWorkers(Resources(workers=2, cpus=1), "align:raw", tmp_path / "ray", tmp_path / "log", deaths, tmp_path / "isa")

    try:
        with ThreadPoolExecutor(1) as pool:  # Ray starts nodes in the main thread alone
            aligned = pool.submit(align.STAGE.run, inputs, settings, context(directory, workers))
            while not (aligned.done() or list(directory.rglob("iteration0/counts/*.json"))):
                time.sleep(0.01)
            nodes.kill(alive.pop())
            alive.append(nodes.add(2))
            aligned.result()
    finally:
        ray.shutdown()
        for node in alive:
            nodes.kill(node)
    assert results(directory) == results(tmp_path / "undisturbed")
    deaths_recorded = [json.loads(line) for line in deaths.read_text().splitlines()]
    assert deaths_recorded
    assert all(death["seconds"] >= 0 and death["error"] for death in deaths_recorded)
