"""Text that was distilled elsewhere: filtered as training text is, without test sentences, and trained on without a teacher."""

import json
from pathlib import Path

import pytest

from pipeline.config.load import load_config
from pipeline.errors import ConfigError
from pipeline.plan.step import Step
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from stages.context import StepContext
from stages.shared.shards import read_shards
from stages.workers import LocalWorkers, Resources

CONFIG = """
corpus:
  train: {{source: {folder}/train.en, target: {folder}/train.de}}
  validation: {{source: {folder}/valid.en, target: {folder}/valid.de}}
  test: {{t: {{source: {folder}/test.en, target: {folder}/test.de}}}}
  filters: {{max_length: 8}}
distillation: {{source: [{folder}/distilled.en], target: {folder}/distilled.de}}
systems:
  raw: {{}}
  distilled: {{data: distilled}}
store: {{path: {folder}/store}}
"""
TEXTS = {
    "train": [("This house is old.", "Dieses Haus ist alt."), ("That tree is tall.", "Jener Baum ist hoch.")],
    "valid": [("We validate this.", "Wir prüfen dies.")],
    "test": [("We test this.", "Wir testen dies.")],
    "distilled": [
        ("A source of another text.", "Eine Quelle aus einem anderen Text."),
        ("We test this.", "Wir versuchen es."),
        ("Another source.", "Wir prüfen dies."),
        ("Far too many words stand in this one sentence here.", "Zu viele Wörter."),
        ("That tree is tall.", "Jener Baum ist groß."),
    ],
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for name, pairs in TEXTS.items():
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in pairs))
    (tmp_path / "c.yaml").write_text(CONFIG.format(folder=tmp_path))
    return tmp_path / "c.yaml"


def planned(path: Path, *overrides: str) -> dict[str, Step]:
    config = load_config(path, overrides)
    return {step.name: step for step in build_plan(config, Store(config.store.path)).steps}


def run(step: Step) -> None:
    step.directory.mkdir(parents=True)
    resources = Resources(workers=1, cpus=1)
    context = StepContext(
        directory=step.directory, attempt="a", workers=LocalWorkers(), resources=resources, shard_cache=step.directory / "cache"
    )
    step.stage.run(step.inputs, step.config, context)


def test_distilled_text_is_trained_on_without_a_teacher(config: Path) -> None:
    steps = planned(config)
    assert not any(step.stage.name in ("distill", "system:teacher") for step in steps.values())
    assert steps["encode:distilled"].needs[0] == "corpus:train/distilled"
    assert "encode:distilled" in steps["train:distilled"].needs
    assert "encode:raw" in steps["train:raw"].needs
    assert steps["corpus:train/distilled"].config == steps["corpus:train"].config
    assert steps["corpus:train/distilled"].inputs.exclude == steps["corpus:train"].inputs.exclude


def test_filters_and_the_removal_of_test_sentences_apply(config: Path) -> None:
    steps = planned(config)
    for name in ("validation", "t", "train/distilled"):
        run(steps[f"corpus:{name}"])
    directory = steps["corpus:train/distilled"].directory
    kept = [(row["source"], row["target"]) for table in read_shards(directory) for row in table.to_pylist()]
    assert kept == [TEXTS["distilled"][0], TEXTS["distilled"][4]]
    ledger = json.loads((directory / "ledger.json").read_text())
    assert (ledger["pairs_in"], ledger["pairs_out"]) == (5, 2)


def test_candidate_tables_are_counted_from_it(config: Path) -> None:
    steps = planned(config, "lattice={data: distilled}", "alignment={unit: pieces}")
    assert steps["align:distilled"].needs == ("encode:distilled",)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("distillation={source: a, target: b, batch_tokens: 4}", "distillation.batch_tokens: expected one of"),
        ("distillation={source: a}", "distillation.target: expected files of both sides, got no target"),
        ("distillation={target: a, source: 'ftp://x/y'}", "distillation.source: expected a URL of the form"),
    ],
)
def test_mistakes_are_named(config: Path, override: str, message: str) -> None:
    config.write_text("corpus: {train: {embedded: 10}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(config, [override])
    assert message in str(caught.value)
