"""Estimates of the time and storage of a plan's steps, from finished steps of the same stages in the store, and of its requests to
language models.

The estimate of a step is that of the most similar finished step of its stage, scaled by the amount of work (updates times tokens of
a training, otherwise pairs of text) and, for a stage that distributes its work, by the workers and CPUs that the config states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.plan.explain import nearest
from pipeline.plan.fingerprint import artifacts
from pipeline.plan.freshness import survey
from pipeline.plan.step import Plan, Step
from pipeline.store.artifacts import Store
from pipeline.store.files import read_json
from pipeline.store.records import is_amount, progress_of
from stages.artifacts import MANIFEST
from stages.corpus import CorpusConfig, CorpusInputs
from stages.external import STAGE, OpenAIOptions
from stages.external.prompts import estimate as estimate_tokens
from stages.external.prompts import options_of
from stages.shared.shards import read_shard, row_counts, shard_paths
from stages.workers import Resources

MAX_RESUMED_SHARE = 0.1
"""Share of the work that an attempt may have found done for its seconds to count as the time of the whole step."""
SAMPLE = 1000
"""Sentences from which the length of all is estimated."""


@dataclass(frozen=True)
class Estimate:
    """The expected time and storage of one step. Unknown values are None."""

    step: Step
    hit: bool
    rows: int | None
    """Pairs or sentences of its artifact."""
    seconds: float | None
    bytes: int | None
    basis: str
    """The origin of the estimate."""


@dataclass(frozen=True)
class Totals:
    """The totals of all steps that are to be executed and can be estimated."""

    seconds: float
    """Time of all steps one after the other."""
    longest: float
    """Time of the longest chain of steps that need each other."""
    bytes: int
    unknown: tuple[str, ...]
    """Names of the steps without an estimate."""


def estimate(plan: Plan, store: Store, requests: Mapping[str, Resources]) -> list[Estimate]:
    """Return an estimate for every step. Texts that are not in the store yet are read to count their pairs.

    `requests` are the resources that the config states by stage. Raises ArtifactError for an altered artifact, DataError for text
    that cannot be read.
    """
    known = {path.parent.name: path.parent for path in store.root.glob(f"*/*/{MANIFEST}")}
    states = survey(plan, store)
    found: dict[str, Estimate] = {}
    for step in plan.steps:
        if states[step.name] in ("hit", "undecided"):
            found[step.name] = Estimate(step, True, _rows(step.directory), 0.0, 0, "in the store")
            continue
        inputs = [found[need].rows for need in step.needs]
        finished = [artifact for _, artifact in artifacts(step.inputs) if artifact.fingerprint in known]  # pinned ones included
        inputs += [_rows(artifact.path) for artifact in finished]
        rows = _text_rows(step) if step.stage.name == "corpus" else max((rows for rows in inputs if rows), default=None)
        amount = _amount(step.config, rows)
        found[step.name] = _scaled(step, amount, nearest(step, store), known, requests.get(step.stage.name, Resources()))
    return list(found.values())


def totals(estimates: list[Estimate]) -> Totals:
    """Return the sums over all steps, and the longest chain."""
    ends: dict[str, float] = {}
    for one in estimates:
        ends[one.step.name] = (one.seconds or 0.0) + max((ends[need] for need in one.step.needs), default=0.0)
    return Totals(
        seconds=sum(one.seconds or 0.0 for one in estimates),
        longest=max(ends.values(), default=0.0),
        bytes=sum(one.bytes or 0 for one in estimates),
        unknown=tuple(one.step.name for one in estimates if one.seconds is None),
    )


def _scaled(
    step: Step, amount: float | None, basis: dict[str, Any] | None, known: Mapping[str, Path], request: Resources
) -> Estimate:
    if basis is None or basis["fingerprint"] not in known:  # its attempt ended before it was renamed
        return Estimate(step, False, None, None, None, f"no earlier {step.stage.name} in the store")
    directory = known[basis["fingerprint"]]
    before = _amount_before(basis, known)
    rows_before = _rows(directory)
    scale = amount / before if amount and before else 1.0
    rows = None if rows_before is None else round(rows_before * scale)
    speed = _speed_up(request, basis["environment"]) if step.stage.distributes else 1.0
    size = sum(entry["bytes"] for entry in basis["files"].values())
    origin = f"{basis['step']} of {basis['run_id']}" + (f" x {scale:.3g}" if scale != 1.0 else "")
    return Estimate(
        step, False, rows, _seconds(basis, directory) * scale / speed, round(size * (scale if rows_before else 1.0)), origin
    )


def _amount(config: Any, rows: int | None) -> float | None:
    """Return the updates times tokens of a training, else `rows`. `config` is a stage's config or that of a manifest."""
    training = config.get("training") if isinstance(config, Mapping) else getattr(config, "training", None)
    if training is None:
        return rows
    fields = training if isinstance(training, Mapping) else vars(training)
    updates: object = fields.get("updates")
    batch: object = fields.get("batch_tokens")
    return float(updates * batch) if is_amount(updates) and is_amount(batch) else None


def _amount_before(manifest: dict[str, Any], known: Mapping[str, Path]) -> float | None:
    if manifest["stage"] == "corpus":
        directory = known[manifest["fingerprint"]]
        pairs: object = read_json(directory / "ledger.json").get("pairs_in")
        return pairs if is_amount(pairs) and pairs else _rows(directory)
    rows = [_rows(known[made]) for made in manifest["inputs"].values() if made in known]
    return _amount(manifest["config"], max((one for one in rows if one), default=None))


def _text_rows(step: Step) -> int:
    """Return the number of pairs of a text before filtering."""
    config = step.config
    inputs = step.inputs
    assert isinstance(config, CorpusConfig)
    assert isinstance(inputs, CorpusInputs)
    if config.embedded:
        return config.embedded
    from stages.corpus.indexed_text import count_rows

    return count_rows(inputs.files, config.languages)


def _rows(directory: Path) -> int | None:
    """Return the rows of an artifact of shards, or None for other artifacts."""
    return sum(row_counts(directory)) if (directory / "shards").is_dir() else None


def _seconds(manifest: dict[str, Any], directory: Path) -> float:
    """Return the seconds of a step, extrapolated if an earlier attempt or the cache had done a part of its work."""
    progress = progress_of(directory)
    if progress is None or progress.rate is None or progress.first_done <= MAX_RESUMED_SHARE * progress.total:
        return float(manifest["seconds"])
    return progress.total / progress.rate


def _speed_up(request: Resources, before: Mapping[str, Any]) -> float:
    """Return the ratio of requested to earlier CPUs, or 1 without a request."""
    if request.workers is None and request.cpus is None:
        return 1.0
    workers, cpus = (_positive(before.get(name)) for name in ("workers", "cpus"))
    return (request.workers or workers) * (request.cpus or cpus) / (workers * cpus)


def _positive(value: object) -> float:
    return value if is_amount(value) and value > 0 else 1.0


def spending(steps: Iterable[Step]) -> Iterator[str]:
    """Yield for each missing step that asks a language model a line with its sentences and the estimate of its tokens and their
    price.

    Answers that are kept from earlier attempts are counted as well. A text that is not in the store yet is named.
    """
    for step in steps:
        if step.stage is not STAGE or (step.config.openai is None and step.config.ray_llm is None):
            continue
        options = options_of(step.config)
        rows, sources = _sources(step)
        if not rows:
            yield f"{step.name} asks {options.model}: the amount is known when its text is in the store; plan again then"
            continue
        prompts, answers = (rows / len(sources) * tokens for tokens in estimate_tokens(step.config, sources))
        cost = _cost(step.config.openai, prompts, answers)
        tokens = f"about {prompts:,.0f} tokens of prompts and {answers:,.0f} of answers"
        yield f"{step.name} asks {options.model} for {rows:,} sentences: {tokens}{cost}"


def _cost(options: OpenAIOptions | None, prompts: float, answers: float) -> str:
    """Return the price of tokens in words; empty for a server without prices, and for GPUs of one's own."""
    if options is None or not (options.input_price or options.output_price):
        return ""
    return f", about {options.cost(prompts, answers):,.2f} by its prices"


def _sources(step: Step) -> tuple[int, list[str]]:
    """Return the number of sentences of a step, and some of them; 0 if the text is not in the store."""
    text = step.inputs.text.path
    if not (text / "text.json").is_file():
        return 0, []
    rows = int(read_json(text / "text.json")["rows"])
    shards = shard_paths(text)
    return rows, read_shard(shards[0]).slice(0, SAMPLE)["source"].to_pylist() if shards else []
