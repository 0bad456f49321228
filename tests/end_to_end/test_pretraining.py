"""Pre-training on the embedded documents, of graphs and of token-by-token networks: it is a training of the run, and it helps."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from stages.shared.embedded import documents

pytestmark = [pytest.mark.slow]

GRAPH = {"family": "dag", "graph_size": "predicted", "graph_factor": 3, "glancing_updates": 100}
START = {"initial_weights": "pretraining"}
CONFIG: dict[str, Any] = {
    "name": "pretraining",
    "task": "summarization",
    "languages": {"source": "en"},
    "corpus": {"train": {"embedded": 600}, "validation": {"embedded": 60}, "test": {"demo": {"embedded": 8}}},
    "vocabulary": {"size": 400, "model": "bpe"},
    "defaults": {
        "width": 64,
        "feed_forward": 128,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0,
        "training": {
            "updates": 20,
            "batch_tokens": 512,
            "learning_rate": 0.004,
            "warmup_updates": 10,
            "validate_every": 10,
            "validation_metric": "loss",
            "validation_sentences": 0,
        },
    },
    "pretraining": {"updates": 120, "validate_every": 60},
    "systems": {
        "graph": GRAPH,
        "graph-pretrained": {**GRAPH, **START},
        "stepwise": {"search": ["greedy"]},
        "stepwise-pretrained": {"search": ["greedy"], **START},
    },
    "benchmark": {"enabled": False},
    "cluster": {"cpus": 1},
    "tracking": {"enabled": False},
}


SPANS = pytest.param("spans", ("graph", "stepwise"), marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(("target", "names"), [SPANS, ("segments", ("graph",))])
def test_a_pretrained_network_begins_with_a_lower_loss(tmp_path: Path, target: str, names: tuple[str, ...]) -> None:
    text = tmp_path / "documents.txt"
    text.write_text("".join(f"{document}\n" for document, _ in documents("further", 0, 1500)), encoding="utf-8")
    values = {**CONFIG, "store": {"path": str(tmp_path / "store")}}
    values["pretraining"] = {**CONFIG["pretraining"], "monolingual": [str(text)], "target": target}
    values["systems"] = {name: system for name, system in CONFIG["systems"].items() if name.startswith(names)}
    path = tmp_path / "pretraining.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    config = load_config(path)
    plan = build_plan(config, Store(config.store.path))
    assert execute.run(config, plan, Store(config.store.path), config_file=str(path), in_process=True).failed == {}

    found = {step.name: step.directory for step in plan.steps if step.stage.name == "train"}
    losses = {name: validations(directory) for name, directory in found.items()}
    for name in names:
        assert len(losses[f"train:{name}-pretrained/pretraining"]) == 2
        assert losses[f"train:{name}-pretrained"][0] < losses[f"train:{name}"][0]
        assert losses[f"train:{name}-pretrained/pretraining"][1] < losses[f"train:{name}-pretrained/pretraining"][0]
    markdown = next((tmp_path / "store").glob("report/*/records/report.html")).read_text()
    assert "graph-pretrained/pretraining" in markdown


def validations(directory: Path) -> list[float]:
    report = json.loads((directory / "training.json").read_text())
    return [validation["loss"] for validation in report["validations"]]
