"""Plans of a small config with changes."""

from pathlib import Path
from typing import Any

import yaml

from pipeline.config.load import load_config
from pipeline.plan.step import Plan
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store

CONFIG: dict[str, Any] = {
    "name": "toy",
    "corpus": {"train": {"embedded": 20}, "validation": {"embedded": 5}, "test": {"toy": {"embedded": 5}}},
    "vocabulary": {"size": 100},
    "teacher": {},
    "systems": {
        "autoregressive": {"use": "teacher"},
        "student": {"data": "distilled"},
        "both": {"data": "mixed"},
        "graph": {"family": "dag"},
    },
    "lattice": {},
    "ngram": {"order": 3},
    "evaluation": {"likelihood": True, "contrastive": 7, "dag_analysis": 2, "length_bins": [5], "length_penalties": [0.6, 1.0]},
}


def planned(tmp_path: Path, **changes: object) -> Plan:
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump({**CONFIG, "store": {"path": str(tmp_path / "store")}, **changes}))
    config = load_config(path, [])
    return build_plan(config, Store(config.store.path))


def needs(plan: Plan, name: str) -> set[str]:
    return set(next(step.needs for step in plan.steps if step.name == name))


def fingerprint(plan: Plan, name: str) -> str:
    return next(step.fingerprint for step in plan.steps if step.name == name)
