"""The entries of a run as MLflow shows them: each system with one search, its scores and its speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from pipeline.config.seeds import replicas
from pipeline.run.run_directory import Run, RunState
from pipeline.store.files import read_json
from pipeline.store.manifest import manifest_values
from pipeline.store.records import scores_of, step_directory
from stages.artifacts import RECORDS

TIMINGS = {
    "latency_ms": ("latency_ms", "median"),
    "latency_p95_ms": ("latency_ms", "p95"),
    "latency_ratio": ("latency_ratio", "median"),
    "throughput": ("sentences_per_second", "median"),
    "throughput_ratio": ("throughput_ratio", "median"),
    "target_tokens_per_second": ("target_tokens_per_second", "median"),
    "memory_mib": ("memory_mib", "peak"),
}
"""Metrics of speed by their place in a benchmark's entry: milliseconds of a single sentence, sentences a second in batches, ..."""


class Value(NamedTuple):
    """A metric of an entry on a test set."""

    test: str
    metric: str
    value: float
    time: float
    """Unix time at which it was computed."""


@dataclass(frozen=True)
class Entry:
    """A system with one search."""

    system: str
    search: str
    parameters: Mapping[str, Any]
    """The options of the `search`, and those of the `system` with its training."""
    tags: dict[str, str]
    values: list[Value] = field(default_factory=list)
    """Metrics of finished steps; those of the main test set come first."""
    complete: bool = False
    """Whether all of its steps are finished."""

    @property
    def name(self) -> str:
        """The name of the entry: `system/search`."""
        return f"{self.system}/{self.search}"


class Entries:
    """Reads the entries of a run from its finished steps."""

    def __init__(self, run: Run, state: RunState) -> None:
        self.run = run
        self.config = run.spec["config"]
        self.plan = {entry["step"]: entry for entry in run.spec["plan"]}
        self.finished = {step for step, found in state.steps.items() if found.status in ("done", "hit")}
        timed = [step.rpartition(":")[2] for step in self.plan if step.startswith("benchmark:")]
        tests = list(self.config.get("corpus", {}).get("test", {}))
        self.tests = list(dict.fromkeys([*timed, *tests]))
        """Test sets; the first is the main one, whose metrics have plain names."""
        self.timings = {test: self._timings(test) for test in timed}

    def __iter__(self) -> Iterator[Entry]:
        for system, settings in self.config.get("systems", {}).items():
            for label, options in settings.get("search", {}).items():
                found = self._entry(system, label, options)
                if found.values:
                    yield replace(found, tags=found.tags | self._over_seeds(system, label))

    def _over_seeds(self, system: str, label: str) -> dict[str, str]:
        """Return the tags with the number of seeds, and with mean and standard deviation of each metric, once all are scored."""
        members = replicas(tuple(self.config.get("seeds", ())), self.config["systems"]).get(system)
        if members is None:
            return {}
        found: dict[str, list[float]] = {}
        for member in members:
            for step in (f"score:{member}/{label}:{test}" for test in self.tests):
                directory = self.directory(step) if step in self.plan else None
                for metric, (score, _) in ({} if directory is None else scores_of(directory)).items():
                    found.setdefault(self.metric_name(step.rpartition(":")[2], metric), []).append(score)
        tags = {"fewstep.seeds": str(len(members))}
        for metric, values in found.items():
            if len(values) == len(members):
                tags[f"fewstep.seeds.{metric}"] = f"{fmean(values):.4f} ± {stdev(values):.4f}"
        return tags

    def directory(self, step: str) -> Path | None:
        """Return the artifact of a step; None if the step is not planned or not finished."""
        return step_directory(self.run.store, self.plan[step]) if step in self.finished else None

    def metric_name(self, test: str, metric: str) -> str:
        """Return the name of a metric in MLflow: `bleu` on the main test set, `TEST/bleu` on others."""
        return metric if test == self.tests[0] else f"{test}/{metric}"

    def _entry(self, system: str, label: str, options: Mapping[str, Any]) -> Entry:
        steps = [f"score:{system}/{label}:{test}" for test in self.tests]
        planned = [step for step in steps if step in self.plan]
        wanted = [*planned, *(f"benchmark:all:{test}" for test in self.timings)]
        values = [value for step in planned if step in self.finished for value in self._values(step, f"{system}/{label}")]
        trained = {key: value for key, value in self._trained(system).items() if key != "search"}
        parameters = {"search": options, "system": trained}
        return Entry(system, label, parameters, self._tags(system, label, options), values, set(wanted) <= self.finished)

    def _trained(self, system: str) -> Mapping[str, Any]:
        """Return the options of a system, or those of the teacher that it uses."""
        settings: Mapping[str, Any] = self.config["systems"][system]
        return (self.config.get("teacher") or {}) | {"use": settings["use"]} if "use" in settings else settings

    def _values(self, step: str, name: str) -> Iterator[Value]:
        directory = step_directory(self.run.store, self.plan[step])
        test = step.rpartition(":")[2]
        scored = float(manifest_values(directory).get("finished") or 0.0)
        for metric, (score, _) in scores_of(directory).items():
            yield Value(test, metric, score, scored)
        found, timed = self.timings.get(test, ({}, 0.0))
        for metric, (part, key) in TIMINGS.items():
            if (number := found.get(name, {}).get(part, {}).get(key)) is not None:
                yield Value(test, metric, float(number), timed)

    def _timings(self, test: str) -> tuple[dict[str, Any], float]:
        """Return the entries of a benchmark, and the Unix time at which it finished."""
        directory = self.directory(f"benchmark:all:{test}")
        if directory is None:
            return {}, 0.0
        found: dict[str, Any] = read_json(directory / RECORDS / "benchmark.json").get("entries", {})
        return found, float(manifest_values(directory).get("finished") or 0.0)

    def _tags(self, system: str, label: str, options: Mapping[str, Any]) -> dict[str, str]:
        settings = self.config["systems"][system]
        languages = self.config.get("languages", {})
        used = self._trained(system)
        baseline = str(self.config.get("evaluation", {}).get("baseline", ""))
        first = next(iter(settings["search"]))
        names = {f"{system}/{label}", system} if label == first else {f"{system}/{label}"}
        tags = {
            "system": system,
            "family": used.get("family", "stepwise"),
            "search": label,
            "strategy": options.get("strategy"),
            "engine": self._engine(system, label, options),
            "precision": options.get("precision") or options.get("verifier_precision"),
            "data": used.get("data"),
            "source_language": languages.get("source"),
            "target_language": languages.get("target"),
            "language_pair": "-".join(filter(None, [languages.get("source"), languages.get("target")])),
            "test": self.tests[0] if self.tests else None,
            "baseline": "true" if baseline in names else "false",
        }
        artifact = self.plan.get(f"system:{system}")
        tags["system_fingerprint"] = artifact["fingerprint"] if artifact else None
        return {f"fewstep.{name}": str(value) for name, value in tags.items() if value}

    def _engine(self, system: str, label: str, options: Mapping[str, Any]) -> str:
        """Return the engine of a search; `auto` is native code on a CPU and torch elsewhere."""
        engine = str(options.get("engine", "auto"))
        directory = self.directory(f"decode:{system}/{label}:{self.tests[0]}") if self.tests else None
        if engine != "auto" or directory is None:
            return engine
        gpus = manifest_values(directory).get("environment", {}).get("gpus")
        return "torch" if gpus else "native"
