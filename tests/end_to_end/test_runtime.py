"""The runtime translates the test set of the demo, trained briefly, as the demo's decode stage did: all systems and searches."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fewstep
from fewstep.families.table import family_named
from stages.shared.shards import read_shards
from tests.architecture import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

TRAINED = ("shallow", "dag", "distilled", "interleaved", "interleaved-sa", "lattice", "aggressive")
BRIEFLY = ["defaults.training.updates=60", "defaults.training.warmup_updates=10", "defaults.training.validate_every=20"]
BRIEFLY += [
    f"systems.{name}.training.{key}={value}" for name in TRAINED for key, value in (("updates", 40), ("warmup_updates", 10))
]
SMALL = ["corpus.train.embedded=1500", "corpus.validation.embedded=60", "corpus.test.demo.embedded=60", "vocabulary.size=300"]
RAW = ["lattice.data=raw", *(f"systems.{name}.data=raw" for name in TRAINED if name != "shallow")]
"""A teacher that was trained briefly produces no text that a student could learn from."""
REDUCED = ["benchmark.enabled=false", "tracking.enabled=false", "evaluation.min_bleu=0", "evaluation.lattice_analysis=0"]


def rows(directory: Path) -> list[dict[str, Any]]:
    return [row for table in read_shards(directory) for row in table.to_pylist()]


def decoded(store: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield the name, the system and the artifact of each decode step."""
    (record,) = (path for path in store.glob("runs/*/run.json") if path.parent.name != "latest")
    plan = {entry["step"]: store / entry["stage"] / entry["fingerprint"] for entry in json.loads(record.read_text())["plan"]}
    for step, directory in plan.items():
        if step.startswith("decode:"):
            name = step.removeprefix("decode:").partition("/")[0]
            yield step, plan.get(f"system:{name}/default", plan[f"system:{name}"]), directory


def run(store: Path, config: str, *changes: str) -> None:
    """Run the pipeline in one process, and check that it succeeds."""
    words = [word for change in (*changes, f"store.path={store}") for word in ("--set", change)]
    command = [sys.executable, "-m", "pipeline", "run", config, "--in-process", "--set", "cluster.cpus=1", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]


def compare(store: Path, test: str) -> dict[str, bool]:
    """Translate the test set again with each system that decoded it; return the steps, and whether the runtime has the search."""
    manifests = (store / "corpus").glob("*/manifest.json")
    (text,) = (path.parent for path in manifests if json.loads(path.read_text())["step"] == f"corpus:{test}")
    lines, compared = [row["source"] for row in rows(text)], {}
    assert len(lines) == 60
    for step, directory, written in decoded(store):
        system = fewstep.load(directory)
        search = family_named(system.family).search.from_values(json.loads((written / "decode.json").read_text())["search"])
        compared[step] = not list(system.decoder.problems(search))
        if not compared[step]:
            continue
        ranked = system.hypotheses(lines, search.n_best, search, threads=1, one_sentence_per_line=True)
        found = [one for of_line in ranked for one in of_line]
        assert [(one.text, one.score, one.steps, one.statistics.get("margin")) for one in found] == [
            (row["text"], row["score"], row["steps"], row["margin"]) for row in rows(written)
        ], step
    return compared


@pytest.mark.exhaustive
def test_every_system_of_the_demo(tmp_path: Path) -> None:
    run(tmp_path, "configs/demo.yaml", *BRIEFLY, *SMALL, *RAW, *REDUCED)
    compared = compare(tmp_path, "demo")
    assert len(compared) == 15
    assert all(compared.values())


@pytest.mark.exhaustive
def test_every_objective_of_networks_that_write_all_slots(tmp_path: Path) -> None:
    """From text to report. The runtime has all searches but that with another system's scores."""
    run(tmp_path, "tests/end_to_end/parallel.yaml")
    compared = compare(tmp_path, "small")
    assert len(compared) == 12
    assert [step for step, native in compared.items() if not native] == ["decode:one-shot/greedy-length_candidates3-system:small"]
    (page,) = tmp_path.glob("report/*/records/report.html")
    text = page.read_text(encoding="utf-8")
    assert all(name in text for name in ("one-shot", "glat", "ctc-glat", "masked", "mask-predict-iterations4"))
    for path in tmp_path.glob("train/*/records/metrics.*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        assert losses[-1] < losses[0]
