"""The texts of a run as datasets of MLflow: a name, a digest and a place in the store; the text itself stays there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.store.files import read_json
from pipeline.store.records import step_directory

CONTEXTS = {"train": "training", "validation": "validation"}
"""Contexts of texts by step of the stage `corpus`; other texts are test sets."""


@dataclass(frozen=True)
class Text:
    """A text of a run."""

    name: str
    digest: str
    """Fingerprint of its artifact."""
    source: str
    """Its artifact as JSON, relative to the store, so that it holds where the store is copied to."""
    profile: str
    """Its size as JSON."""
    context: str


def texts_of(store: Path, plan: Mapping[str, Mapping[str, Any]], finished: set[str], experiment: str) -> dict[str, Text]:
    """Return the finished texts of a run by the name of their step: `train`, `validation`, and the test sets."""
    found = {}
    for step, entry in plan.items():
        if entry["stage"] != "corpus" or step not in finished:
            continue
        name = step.partition(":")[2]
        sizes = read_json(step_directory(store, entry) / "text.json")
        found[name] = Text(
            f"{experiment}/{name}",
            entry["fingerprint"],
            json.dumps({"artifact": f"corpus/{entry['fingerprint']}"}),
            json.dumps({"rows": sizes.get("rows")}),
            CONTEXTS.get(name.partition("/")[0], "test"),
        )
    return found
