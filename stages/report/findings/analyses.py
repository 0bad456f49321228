"""Read the results of analyses, which the report shows in addition to scores and timings. Each analysis is optional."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import Any

from stages.errors import DataError
from stages.report import ReportConfig, ReportInputs

Json = dict[str, Any]


@dataclass(frozen=True)
class Analyses:
    """Results of analyses. All are deterministic and part of `results.json`."""

    likelihood: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`likelihood.json` by test set and system."""
    mutual_information: dict[str, list[Json]] = field(default_factory=dict)
    """By test set, for each pair of systems: `name`, `parallel`, `sequential`, `step_size`, `nats_per_step`, `log10_ratio`."""
    contrastive: dict[str, Json] = field(default_factory=dict)
    """`contrastive.json` by system."""
    head_and_tail: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`head_and_tail.json` by test set and entry."""
    by_length: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`by_length.json` by test set and entry."""
    diversity: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`diversity.json` by test set and entry."""
    dag_analysis: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`dag_analysis.json` by text and system."""
    parallel_analysis: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`parallel_analysis.json` by text and system."""
    repetition: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`repetition.json` by test set and entry."""
    tuned: dict[str, Json] = field(default_factory=dict)
    """`tuned.json` by entry."""

    def to_json(self) -> Json:
        """Return the analyses that have results."""
        return {name: value for name, value in vars(self).items() if value}


def analyse(inputs: ReportInputs, config: ReportConfig) -> Analyses:
    """Read the artifacts of all analyses. Raises DataError for perplexities that cannot be compared."""
    likelihood = {
        test: {system: _read(found.path / "likelihood.json") for system, found in systems.items()}
        for test, systems in inputs.likelihoods.items()
    }
    pairs = config.system_pairs
    return Analyses(
        likelihood=likelihood,
        mutual_information={
            test: [mutual_information(name, pair.parallel, pair.sequential, pair.step_size, found) for name, pair in pairs.items()]
            for test, found in likelihood.items()
            if pairs
        },
        contrastive={system: _read(found.path / "contrastive.json") for system, found in inputs.contrasts.items()},
        head_and_tail=_score_files(inputs, "head_and_tail.json"),
        by_length=_score_files(inputs, "by_length.json"),
        diversity=_score_files(inputs, "diversity.json"),
        dag_analysis={
            text: {system: _read(found.path / "dag_analysis.json") for system, found in systems.items()}
            for text, systems in inputs.dag_analyses.items()
        },
        parallel_analysis={
            text: {system: _read(found.path / "parallel_analysis.json") for system, found in systems.items()}
            for text, systems in inputs.parallel_analyses.items()
        },
        repetition=_score_files(inputs, "repetition.json"),
        tuned={entry: _read(found.path / "tuned.json") for entry, found in inputs.tuned.items()},
    )


def _score_files(inputs: ReportInputs, name: str) -> dict[str, dict[str, Json]]:
    """The content of an optional file of `Scores` artifacts, by test set and entry."""
    found: dict[str, dict[str, Json]] = {}
    for item in inputs.evaluated:
        if (path := item.scores.path / name).is_file():
            found.setdefault(item.test, {})[item.entry] = _read(path)
    return found


def perplexity(found: Mapping[str, Any]) -> Json:
    """Return `likelihood.json` as a metric with `score` and `signature`."""
    left_out = sum(found["left_out"].values())
    rows = f"{found['rows'] - left_out}" + (f" of {found['rows']}" if left_out else "")
    return {
        "score": round(found["perplexity"], 4),
        "signature": f"sentences:{rows}|tokens:subwords+eos|vocabulary:{found['vocabulary']}",
    }


def mutual_information(name: str, parallel: str, sequential: str, step_size: int, likelihood: Mapping[str, Json]) -> Json:
    """Estimate the mutual information of the tokens that `parallel` writes in one step (Zhang, Titov and Sennrich 2020, appendix
    B).

    The estimate is the loss in log-probability against `sequential`, which conditions each of these tokens on the others.
    Raises DataError when the two systems scored different tokens.
    """
    one, other = likelihood[parallel], likelihood[sequential]
    for key in ("tokens", "vocabulary"):
        if one[key] != other[key]:
            raise DataError(
                f"evaluation.mutual_information.{name}: expected systems that score the same tokens, "
                f"got {parallel} with {key} {one[key]} and {sequential} with {other[key]}; "
                "choose systems with the same vocabulary and length limits"
            )
    loss = (other["log_probability"] - one["log_probability"]) / one["tokens"]
    return {
        "name": name,
        "parallel": parallel,
        "sequential": sequential,
        "step_size": step_size,
        "nats_per_step": round(step_size * loss, 6),
        "log10_ratio": round(loss / log(10), 6),
    }


def _read(path: Path) -> Json:
    return dict(json.loads(path.read_text(encoding="utf-8")))
