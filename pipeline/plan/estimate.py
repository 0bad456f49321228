"""What a plan would take: time and storage of each step, from what finished steps of the same stages in the store took.

A step is likened to the nearest finished one of its stage and scaled by the amount of work: updates times tokens of a training,
pairs of what goes through the pipeline pair by pair, nothing for the others; and by workers and CPUs of a stage that spreads its
work, where the config states them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.plan.explain import nearest
from pipeline.plan.fingerprint import artifacts
from pipeline.plan.step import Plan, Step
from pipeline.run.records import progress_of, read_json
from pipeline.store.artifacts import Store
from stages.artifacts import MANIFEST
from stages.corpus import CorpusConfig, CorpusInputs
from stages.shards import row_counts
from stages.workers import Resources

NEW_SHARE = 0.1
"""An attempt that began with more than this share of its work done does not tell the time of the whole by its seconds."""


@dataclass(frozen=True)
class Estimate:
    """What one step is expected to take. None stands for what cannot be told."""

    step: Step
    hit: bool
    rows: int | None
    """Pairs or sentences that it leaves."""
    seconds: float | None
    bytes: int | None
    basis: str
    """What the figures rest on."""


@dataclass(frozen=True)
class Totals:
    """Of all steps that are to be made and can be estimated."""

    seconds: float
    """One after the other."""
    longest: float
    """Along the longest chain of steps that need each other."""
    bytes: int
    unknown: tuple[str, ...]
    """Steps that nothing is known about."""


def estimate(plan: Plan, store: Store, asked: Mapping[str, Resources]) -> list[Estimate]:
    """An estimate for every step. Texts that are not in the store yet are read, to count their pairs.

    Raises ArtifactError for an altered artifact, DataError for text that cannot be read.
    """
    known = {path.parent.name: path.parent for path in store.root.glob(f"*/*/{MANIFEST}")}
    found: dict[str, Estimate] = {}
    for step in plan.steps:
        manifest = store.manifest(step.directory)
        if manifest is not None:
            found[step.name] = Estimate(step, True, _rows(step.directory), 0.0, 0, "in the store")
            continue
        inputs = [found[need].rows for need in step.needs]
        inputs += [
            _rows(artifact.path) for _, artifact in artifacts(step.inputs) if artifact.fingerprint in known
        ]  # pinned ones too
        rows = _text_rows(step) if step.stage.name == "corpus" else max((rows for rows in inputs if rows), default=None)
        amount = _amount(step.config, rows)
        found[step.name] = _likened(step, amount, nearest(step, store), known, asked.get(step.stage.name, Resources()))
    return list(found.values())


def totals(estimates: list[Estimate]) -> Totals:
    """The sums, and the longest chain."""
    ends: dict[str, float] = {}
    for one in estimates:
        ends[one.step.name] = (one.seconds or 0.0) + max((ends[need] for need in one.step.needs), default=0.0)
    return Totals(
        seconds=sum(one.seconds or 0.0 for one in estimates),
        longest=max(ends.values(), default=0.0),
        bytes=sum(one.bytes or 0 for one in estimates),
        unknown=tuple(one.step.name for one in estimates if one.seconds is None),
    )


def _likened(
    step: Step, amount: float | None, basis: dict[str, Any] | None, known: Mapping[str, Path], asked: Resources
) -> Estimate:
    if basis is None:
        return Estimate(step, False, None, None, None, f"no earlier {step.stage.name} in the store")
    directory = known[basis["fingerprint"]]
    before, left = _amount_before(basis, known), _rows(directory)
    scale = amount / before if amount and before else 1.0
    rows = None if left is None else round(left * scale)
    speed = _workers(asked, basis["environment"]) if step.stage.distributes else 1.0
    size = sum(entry["bytes"] for entry in basis["files"].values())
    told = f"{basis['step']} of {basis['run_id']}" + (f" x {scale:.3g}" if scale != 1.0 else "")
    return Estimate(step, False, rows, _seconds(basis, directory) * scale / speed, round(size * (scale if left else 1.0)), told)


def _amount(config: Any, rows: int | None) -> float | None:
    """Updates times tokens of a training, else the rows that come in; of a config or, as a map, of a manifest's."""
    training = config.get("training") if isinstance(config, Mapping) else getattr(config, "training", None)
    if training is None:
        return rows
    fields = training if isinstance(training, Mapping) else vars(training)
    return float(fields["updates"] * fields["batch_tokens"])


def _amount_before(manifest: dict[str, Any], known: Mapping[str, Path]) -> float | None:
    if manifest["stage"] == "corpus":
        directory = known[manifest["fingerprint"]]
        return read_json(directory / "ledger.json").get("pairs_in") or _rows(directory)
    rows = [_rows(known[made]) for made in manifest["inputs"].values() if made in known]
    return _amount(manifest["config"], max((one for one in rows if one), default=None))


def _text_rows(step: Step) -> int:
    """Pairs of a text before it is filtered."""
    config, inputs = step.config, step.inputs
    assert isinstance(config, CorpusConfig)
    assert isinstance(inputs, CorpusInputs)
    if config.embedded:
        return config.embedded
    from stages.corpus.reader import Reader

    return sum(table.num_rows for table in Reader(config.source_language, config.target_language).read(inputs.files))


def _rows(directory: Path) -> int | None:
    """Rows of an artifact that is made of shards."""
    return sum(row_counts(directory)) if (directory / "shards").is_dir() else None


def _seconds(manifest: dict[str, Any], directory: Path) -> float:
    """What the step took; what it would have taken, where an earlier attempt or the cache had done a part of it."""
    progress = progress_of(directory)
    if progress is None or progress.rate is None or progress.first_done <= NEW_SHARE * progress.total:
        return float(manifest["seconds"])
    return progress.total / progress.rate


def _workers(asked: Resources, before: Mapping[str, Any]) -> float:
    """How many times the CPUs of then the config gives the stage; 1 where it leaves that open."""
    if asked.workers is None and asked.cpus is None:
        return 1.0
    then = (before.get("workers") or 1) * (before.get("cpus") or 1.0)
    return (asked.workers or before.get("workers") or 1) * (asked.cpus or before.get("cpus") or 1.0) / then
