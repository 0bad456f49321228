"""Run the ngram stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stages.artifacts import CHECKPOINTS
from stages.context import StepContext
from stages.errors import unwritable
from stages.ngram import NgramConfig, NgramInputs
from stages.ngram.counting import Job, count_groups, open_job
from stages.ngram.engines import estimate
from stages.ngram.perplexity import measure
from stages.ngram.text import Lines
from stages.shared.shards import shard_paths
from stages.workers import LocalWorkers


def run(inputs: NgramInputs, config: NgramConfig, context: StepContext) -> None:
    """Write `model.ngram`, `model.arpa` and `ngram.json`, and the perplexity as metrics and as a table.

    A large text is counted by all workers, and its model is made by one of them. Equal inputs and config give equal bytes for any
    number of workers and threads. Raises DataError for text from which no model can be estimated, StageError when the text is too
    large for the native engine and when lmplz is missing or fails, ArtifactError for counts that were damaged. Raises
    TransientError when the step was asked to stop; counted groups are kept.
    """
    job = open_job(inputs, config, context)
    if job.in_parts:
        count_groups(job, context)
    small = config.engine == "native" and not job.in_parts
    for _ in (LocalWorkers() if small else context.workers).map(make_estimator, job, [None]):
        context.progress(3, 3, "parts")


def make_estimator(job: Job) -> Callable[[None], None]:
    """Return a function that writes the model and what is known about it."""
    return partial(_estimate, job)


def _estimate(job: Job, _: None) -> None:
    context = job.context
    config = job.config
    folder = context.temporary(context.directory / CHECKPOINTS / "text")  # a program of an earlier attempt may still be running
    folder.mkdir(parents=True, exist_ok=True)
    context.progress(1, 3, "parts")
    model, fitted = estimate(job, folder)
    for name, write in {"model.ngram": model.save, "model.arpa": model.write_arpa}.items():
        try:
            write(context.directory / name)
        except OSError as error:
            raise unwritable(context.directory / name, error) from error
    context.progress(2, 3, "parts")
    validation = folder / "validation.txt"
    Lines(job.inputs, config).write(shard_paths(job.inputs.validation.path), validation)
    measure(model, fitted, context.directory / "model.arpa", validation, context)
    described = {
        "order": model.order, "counts": model.counts, "unit": config.unit, "side": config.side, "engine": config.engine,
        "sentences": job.sentences, "vocabulary_digest": model.vocabulary_digest, **fitted,
    }  # fmt: skip
    context.write_json(context.directory / "ngram.json", described)
