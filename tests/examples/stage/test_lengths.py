"""A stage from its declaration to its artifact (docs/contributing/add-a-stage.md)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from pipeline.config.schema import Cluster, RunConfig, StoreConfig, Tracking
from pipeline.plan.step import Builder, Plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from stages import corpus
from stages.shared.shards import read_shards
from tests.examples.stage import lengths
from tests.examples.stage.lengths.run import run


def plan(store: Store, max_words: int = 50) -> Plan:
    """Wire a text and its lengths."""
    builder = Builder(store.root)
    embedded = corpus.CorpusConfig(source_language="en", target_language="de", embedded=100, shard_rows=40)
    text = builder.add(corpus.STAGE, "train", corpus.CorpusInputs(corpus.TextFiles()), embedded)
    builder.add(lengths.STAGE, "train", lengths.LengthsInputs(text), lengths.LengthsConfig(max_words=max_words))
    return builder.plan()


def execute_plan(plan: Plan, store: Store) -> execute.RunReport:
    """Run a plan in this process, without Ray and MLflow."""
    config = RunConfig(store=StoreConfig(path=store.root), cluster=Cluster(), tracking=Tracking(enabled=False))
    return execute.run(config, plan, store, config_file="lengths.yaml", in_process=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_second_run_finds_the_artifact(store: Store) -> None:
    assert execute_plan(plan(store), store).executed == ("corpus:train", "lengths:train")
    assert execute_plan(plan(store), store).executed == ()


def test_a_changed_option_runs_this_step_again_and_no_other(store: Store) -> None:
    execute_plan(plan(store), store)
    assert execute_plan(plan(store, max_words=5), store).executed == ("lengths:train",)


def test_every_sentence_is_counted_by_its_words(store: Store) -> None:
    made = plan(store, max_words=5)
    execute_plan(made, store)
    text, counted = (step.directory for step in made.steps)
    sentences = [sentence for shard in read_shards(text) for sentence in shard["source"].to_pylist()]
    counts = json.loads((counted / "lengths.json").read_text())["source"]
    assert len(sentences) == sum(counts) == 100
    assert counts[4] == sum(len(sentence.split()) == 4 for sentence in sentences)
    assert counts[6] == sum(len(sentence.split()) > 5 for sentence in sentences) > 0


def test_declaration_and_implementation_agree() -> None:
    declared = get_type_hints(lengths)["STAGE"].__args__
    hints = get_type_hints(run)
    assert (hints["inputs"], hints["config"], lengths.STAGE.output) == declared


def test_the_declaration_imports_nothing_heavy() -> None:
    code = "import sys, tests.examples.stage.lengths; print(sorted({'torch', 'ray', 'pyarrow', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
