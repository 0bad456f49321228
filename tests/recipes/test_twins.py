"""Every recipe runs from text to report, as a tiny twin with all its systems, searches and analyses, and fits its clusters."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from models.aggressive.system import AggressiveSystem
from pipeline.config.load import load_config
from pipeline.config.schema import network_of
from pipeline.data.pin import unpinned
from pipeline.plan.step import Plan
from pipeline.plan.wiring import build_plan
from pipeline.run.admission import shortages
from pipeline.store.artifacts import Store
from pipeline.store.downloads import RemoteFile
from stages.workers import Resources
from tests.recipes import page
from tests.recipes.twins import (
    KINDS,
    LOCALISATIONS,
    PAPERS,
    RECIPES,
    RESULTS,
    VARIANTS,
    Twin,
    run_localisation,
    run_twin,
    twin,
    write_text,
)
from tests.shared import rest_exhaustive
from tests.synthetic_text import LETTERS

SCRIPTS = {language: LETTERS[language] for language in ("ja", "zh", "ru")}
ANALYSES = {
    "likelihood": "likelihood", "contrastive": "contrastive", "contrastive_pairs": "contrastive",
    "dag_analysis": "dag_analysis", "parallel_analysis": "parallel_analysis", "lattice_analysis": "lattice_analysis",
}  # fmt: skip
"""Keys of `evaluation`, and the stages that they add."""


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_exhaustive(RECIPES, KINDS))
def test_a_tiny_twin_of_the_recipe_ends_in_a_report(name: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    shared = tmp_path_factory.getbasetemp()  # equal texts, vocabularies and teachers are trained once
    store = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "recipes"
    found = run_twin(name, folder, store)
    assert found.report.failed == {}
    plan = build_plan(found.config, Store(store))
    done = {step.name: step.directory for step in plan.steps}
    assert found.steps == recorded[name]["steps"]
    check_results(found, done["report:run"])
    stages = {step.stage.name for step in plan.steps}
    assert {stage for key, stage in ANALYSES.items() if getattr(found.config.evaluation, key)} <= stages
    if script := SCRIPTS.get(found.config.languages.target):
        html = (done["report:run"] / "records/report.html").read_text(encoding="utf-8")
        assert any(letter in html for letter in script)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_exhaustive(LOCALISATIONS, ["python-docs-en-fr"]))
def test_a_tiny_twin_of_a_localisation_keeps_placeholders_and_terms(name: str, folder: Path) -> None:
    found = run_localisation(name, folder, folder / "store")
    assert found.report.failed == {}
    plan = build_plan(found.config, Store(folder / "store"))
    scores = {step.name.partition(":")[2]: step.directory for step in plan.steps if step.stage.name == "score"}
    kept = {entry: json.loads((directory / "placeholders.json").read_text()) for entry, directory in scores.items()}
    terms = {entry: json.loads((directory / "terms.json").read_text()) for entry, directory in scores.items()}
    assert {entry: one["sentences"] - one["kept"] for entry, one in kept.items()} == dict.fromkeys(kept, 0)
    assert min(one["searched"] for one in kept.values()) < next(iter(kept.values()))["sentences"], (
        "barely trained networks lose masks"
    )
    assert {entry for entry in terms if entry.endswith(":glossary")} >= {"shallow/greedy:documents:glossary"}
    for entry, one in terms.items():
        if entry.endswith(":glossary"):
            assert one["honoured"] > terms[entry.removesuffix(":glossary")]["honoured"], entry


SPLIT = ["wmt14-en-fr-interleaved", "wmt14-en-de-double-token", "wmt14-en-de-lattice", "wmt14-en-de-aggressive", "wmt14-en-de-dag"]
"""A recipe of each paper."""


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_exhaustive(SPLIT, SPLIT[:1]))
def test_a_twin_on_text_that_is_split_already_ends_in_a_report(name: str, folder: Path) -> None:
    found = run_twin(name, folder, folder / "store", is_split=True)
    assert found.report.failed == {}
    steps = {step.name: step.directory for step in build_plan(found.config, Store(folder / "store")).steps}
    check_results(found, steps["report:run"])
    rows = json.loads((steps["report:run"] / "results.json").read_text())["rows"]
    assert all("subwords" in row["metrics"]["bleu"]["signature"] for row in rows)


def check_results(found: Twin, report: Path) -> None:
    """Check that the report has a result of each test set by each system and search."""
    results = json.loads((report / "results.json").read_text())
    expected = {
        (test, system, label)
        for test in found.config.corpus.test
        for system, settings in found.config.systems.items()
        for label in settings.search
    }
    assert {(row["test"], row["system"], row["search"]) for row in results["rows"]} == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_exhaustive(VARIANTS, ["verifiers/xsum-bart"]))
def test_a_recipe_with_an_imported_network_ends_in_a_report(name: str, folder: Path) -> None:
    found = run_twin(name, folder, folder / "store")
    assert found.report.failed == {}
    steps = {step.name: step.directory for step in build_plan(found.config, Store(folder / "store")).steps}
    assert "import_network:teacher" in steps
    check_results(found, steps["report:run"])


@pytest.mark.parametrize("name", rest_exhaustive(RECIPES, KINDS))
def test_a_twin_keeps_the_systems_and_searches_of_its_recipe(name: str, tmp_path: Path) -> None:
    values = twin(name)
    (tmp_path / "twin.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    seeds = [f"seeds={values['seeds']}"] if "seeds" in values else []  # the one thing that a twin has less of
    small, paper = load_config(tmp_path / "twin.yaml"), load_config(PAPERS / f"{name}.yaml", seeds)
    assert list(small.systems) == list(paper.systems)
    for system in paper.systems:
        searches = zip(small.systems[system].search.values(), paper.systems[system].search.values(), strict=True)
        for own, stated in searches:
            half = getattr(stated, "precision", "") == "float16"
            assert own == (replace(stated, precision="float32", engine="auto") if half else stated)
        if hasattr(small.systems[system], "training"):
            assert small.systems[system].width <= 48
            assert small.systems[system].training.updates == 4
    assert (small.languages, list(small.corpus.test)) == (paper.languages, list(paper.corpus.test))
    texts = [(config.corpus.train, config.corpus.validation, *config.corpus.test.values()) for config in (small, paper)]
    for own, other in zip(*texts, strict=True):
        assert own.source  # the twin reads files alone
        assert own == other or other.sacrebleu or other.mtdata or other.opus or isinstance(other.source[0], RemoteFile)
    for analysis in ANALYSES:
        assert bool(getattr(small.evaluation, analysis)) == bool(getattr(paper.evaluation, analysis))


def test_the_page_is_up_to_date() -> None:
    """`make docs` writes it; `python -m tests.recipes.twins` records the runs of new recipes."""
    assert page.PAGE.read_text(encoding="utf-8") == page.page()
    assert list(json.loads(RESULTS.read_text(encoding="utf-8"))) == RECIPES


@pytest.mark.parametrize("name", rest_exhaustive([name for name in RECIPES if "aggressive" in name], ["wmt14-en-de-aggressive"]))
def test_the_drafter_of_the_paper_is_trained_by_the_recipe_and_by_its_twin(name: str, tmp_path: Path) -> None:
    """Xia et al. (2022), section 3.1: an encoder of its own, a decoder as deep as the verifier's, soft copy, glancing."""
    (tmp_path / "twin.yaml").write_text(yaml.safe_dump(twin(name), sort_keys=False))
    for config in (load_config(tmp_path / "twin.yaml"), load_config(PAPERS / f"{name}.yaml")):
        drafter = config.systems["aggressive"]
        assert isinstance(drafter, AggressiveSystem)
        assert (drafter.drafting, drafter.encoder, drafter.prefix_attention) == ("parallel", "separate", "all")
        assert (drafter.soft_copy, drafter.layer_positions, drafter.data) == (True, True, "distilled")
        assert (drafter.initial_weights, drafter.copied_weights) == ("verifier", "encoder")
        assert (drafter.glancing_ratio, drafter.glancing_ratio_end) == (0.5, 0.3)
        verifier = network_of(config, drafter.verifier)
        assert verifier is not None
        layers = [(network.encoder_layers, network.decoder_layers) for network in (drafter.network, verifier)]
        assert layers[0] == layers[1]
    assert layers[0] == (6, 6)
    assert drafter.glancing_updates == drafter.training.updates


CLUSTERS = {"one-gpu": [1], "one-node": [8], "two-nodes": [8, 8]}
"""GPUs of the machines of each cluster."""
ON_GPUS = {"train", "distill", "decode", "tune", "benchmark"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def machines(gpus: list[int]) -> dict[str, dict[str, float]]:
    return {f"machine {number}": {"CPU": 64.0, "GPU": float(count)} for number, count in enumerate(gpus)}


def plan_of(name: str, folder: Path) -> Plan:
    values = twin(name)
    write_text(values)
    path = folder / "twin.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return build_plan(load_config(path), Store(folder / "store"))


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_exhaustive([*RECIPES, *VARIANTS], KINDS))
def test_a_recipe_fits_every_cluster_and_no_smaller_one(name: str, folder: Path) -> None:
    steps = plan_of(name, folder).steps
    for cluster, gpus in CLUSTERS.items():
        mine = folder / f"{cluster}.yaml"
        mine.write_text(f"base: [{PAPERS / name}.yaml, {PAPERS.parent / 'cluster' / cluster}.yaml]\n")
        requests: dict[str, Resources] = {str(key): value for key, value in load_config(mine).cluster.resources.items()}
        assert shortages(steps, requests, machines(gpus)) == {}
        short = shortages(steps, requests, machines([*gpus[:-1], gpus[-1] - 1]))
        trainings = [step.name for step in steps if step.stage.name == "train"]
        assert trainings
        assert next(names for reason, names in short.items() if reason.startswith("cluster.resources.train:")) == trainings
        without = shortages(steps, requests, machines([0]))
        assert sorted(name for names in without.values() for name in names) == sorted(
            step.name for step in steps if step.stage.name in ON_GPUS
        )


COMMIT = "b4b2c429240018a0f6c44cf1040e0223c4936e48"
"""Commit of LingEval97, which its address names; no digest of its file has been published."""


@pytest.mark.parametrize("name", [*RECIPES, *VARIANTS])
def test_downloads_are_pinned(name: str) -> None:
    found = unpinned(load_config(PAPERS / f"{name}.yaml"))
    assert not {one for names in found.values() for one in names if COMMIT not in one}
