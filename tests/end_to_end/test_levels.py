"""A run over nodes of different levels of instructions: all that it leaves names the levels."""

import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

sys.path.insert(0, str(Path(__file__).parent))
from nodes import cluster
from runs import Watched

from fewstep.native import fewstep_native
from pipeline.tracking.database import database_uri, own_database

pytestmark = [pytest.mark.slow, pytest.mark.ray]

LOWER, HIGHER = "x86-64-v3", "x86-64-v4"
BRIEF = "defaults.training={updates: 60, batch_tokens: 1024, warmup_updates: 20, validate_every: 30, num_averaged: 1}"
TRAINING = "cluster.resources.train={workers: 1, cpus: 1, custom: {accelerator: 1}}"


def isa_tag(store: Path, which: str) -> str:
    """Return the levels that MLflow shows for the run that `which` selects."""
    client = MlflowClient(database_uri(own_database(store)))
    (found,) = client.search_runs([one.experiment_id for one in client.search_experiments()], which)
    return str(found.data.tags["fewstep.isa"])


@pytest.mark.skipif(HIGHER not in fewstep_native.LEVELS, reason="needs a processor with AVX-512, and all levels")
def test_a_run_over_nodes_of_two_levels_names_both(tmp_path: Path) -> None:
    settings = [BRIEF, TRAINING, "systems={autoregressive: {use: teacher}}", "tracking.enabled=true", "evaluation.min_bleu=0"]
    with cluster() as nodes:
        nodes.add(1, environment={"FEWSTEP_ISA": LOWER})
        nodes.add(1, environment={"FEWSTEP_ISA": HIGHER}, accelerator=1)
        options = [f"cluster.address={nodes.address}", *settings]
        run = Watched(tmp_path / "run", *(part for value in options for part in ("--set", value)))
        run.finish()
    levels = {step: set(manifest["environment"]["isa"]) for step, manifest in run.manifests().items()}
    assert LOWER in levels["encode:raw"]
    assert HIGHER in levels["train:teacher"]
    every = sorted(set().union(*levels.values()))

    assert "processors of different levels made the results" in (output := run.output_file.read_text())
    assert all(f"{level}: " in output for level in every)
    (page,) = run.store.glob("report/*/records/report.html")
    reported = sorted(set().union(*(found for step, found in levels.items() if step != "report")))
    assert f"The steps were computed on processors of different levels: {', '.join(reported)}." in page.read_text()
    assert isa_tag(run.store, "tags.`fewstep.kind` = 'run'") == ", ".join(every)
    assert isa_tag(run.store, "attributes.run_name = 'encode:raw'") == ", ".join(sorted(levels["encode:raw"]))
