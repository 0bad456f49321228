"""The loop of one training worker."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from fewstep.system.format import WEIGHTS
from models.bundle.directory import links_of
from models.bundle.weights import load_matching_weights
from models.family import family_named
from models.training import averaging
from models.training.batch import pinned, prefetch_batches, shares
from models.training.config import TrainingConfig, TrainingPrecision
from models.training.finite import REMEDY, NotFiniteError
from models.training.loop import Report, updates
from models.training.memory import Passes, TrainingMemoryError
from models.training.optimizer import Optimizer
from models.training.parallel import any_worker
from models.training.precision import arithmetic
from models.training.seeds import seed_of
from models.training.worker import TrainingWorker
from stages.context import WorkerContext
from stages.errors import DataError, StageError, TransientError
from stages.train import TrainConfig, TrainInputs
from stages.train.state import TrainingFiles
from stages.train.stream import pool_stream
from stages.train.token_files import vocabulary_sizes
from stages.train.validation import Validator
from stages.workers import Resources
from stages.workers.interrupts import delayed_signals

log = logging.getLogger("fewstep")

KERNELS = "256"
"""Size of oneDNN's cache of compiled matrix products. Each takes about 0.6 MB, one update needs about 50, and the default is
1024."""

PROGRESS_SECONDS = 10.0
"""Seconds after which progress is reported where no log is due: on a slow machine 50 updates take minutes."""

GPU_SAVE_CHECK_EVERY = 10
"""Updates between two checks whether to save, on a GPU, where each check waits for the device."""


@dataclass(frozen=True)
class Job:
    """Inputs and config of all training workers."""

    inputs: TrainInputs
    config: TrainConfig
    context: WorkerContext


def train(job: Job, training_worker: TrainingWorker) -> None:
    """Run the training of one worker, from the newest checkpoint to the results. Raises the errors of `stages.train.run`."""
    torch.set_num_threads(training_worker.threads)
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", KERNELS)
    try:
        with delayed_signals() as interrupted:
            worker = Worker(job, training_worker)
            worker.train(interrupted)
            worker.finish()
    except (NotFiniteError, TrainingMemoryError) as error:
        raise StageError(f"training: {error}") from error


class Worker:
    """State of one training worker."""

    def __init__(self, job: Job, training_worker: TrainingWorker) -> None:
        self.job = job
        self.training_worker = training_worker
        self.recipe = with_precision(job.config.training, training_worker.device)
        self.passes = Passes()
        self.family = family_named(job.config.family).functions
        self.sizes = vocabulary_sizes(job.inputs.vocabulary)
        self.stream, self.dropped = pool_stream(job.inputs.tokens, job.config, self.sizes, job.inputs.texts)
        # All workers start from the same weights, which depend on the seed of the recipe alone.
        torch.manual_seed(seed_of(self.recipe.seed, 0, 0, "init"))
        try:
            model = self.family.build(job.config.network, self.sizes)
            self.taken = 0 if job.inputs.initial is None else load_matching_weights(job.inputs.initial.path / WEIGHTS, model)
            self.model = model.to(self.training_worker.device)
            self.optimizer = Optimizer(self.model, self.recipe)
        except ValueError as error:
            raise DataError(str(error)) from error
        self.files = TrainingFiles(job.context, job.config)
        self.progress = self.files.resume(self.model, self.optimizer, self.training_worker)
        self.validator = Validator(job.inputs, job.config, self.training_worker, self.progress.num_shares)
        self.meter = Meter()
        self.saved = self.reported = time.monotonic()

    def train(self, interrupted: Callable[[], bool]) -> None:
        """Run the remaining updates. Raises TransientError, with its state saved, when the step was asked to stop."""
        start = self.progress
        log.info("training from update %d of %d", start.update, self.recipe.updates)
        if self.job.config.training.precision == "auto":
            log.info("computing in %s", self.recipe.precision)
        if start.num_shares != self.training_worker.world_size:
            log.info("number of shares of a batch: %d, of workers: %d", start.num_shares, self.training_worker.world_size)
        if (used := arithmetic(self.recipe.precision, self.training_worker.device)) != self.recipe.precision:
            log.info("computing in %s: this CPU has no instructions for %s", used, self.recipe.precision)
        if self.training_worker.rank == 0:
            self.job.context.progress(start.update, self.recipe.updates, "updates")
        if averaging.stopped(self.recipe, start.validations):
            return
        if self.training_worker.rank == 0 and start.update < self.recipe.updates:
            self.job.context.metrics(start.update, devices(self.job.context.resources, self.training_worker))
        mine = shares(
            self.stream.pools(start.position),
            self.recipe.batch_tokens,
            self.recipe.seed,
            start.position.batch,
            rank=self.training_worker.rank,
            size=self.training_worker.world_size,
            num_shares=start.num_shares,
            microbatch_tokens=self.job.context.microbatch_tokens,
        )
        batches = prefetch_batches(mine if self.training_worker.device == "cpu" else pinned(mine))
        reports = updates(
            self.model, self.family.loss, batches, self.optimizer, self.recipe, self.training_worker, start.update, self.passes
        )
        tokens = self.passes.max_tokens
        for report in reports:
            if self.passes.max_tokens != tokens:
                tokens = self.passes.max_tokens
                self._log_passes(report.update)
            if self.recipe.curriculum and (report.update == 1 or report.position.epoch != self.progress.position.epoch):
                self._log_stage(report)
            self.progress = replace(self.progress, update=report.update, position=report.position)
            self.meter.add(report)
            last = report.update == self.recipe.updates
            if report.update % self.recipe.log_every == 0 or last:
                self._log(report.update)
            elif time.monotonic() - self.reported >= PROGRESS_SECONDS:
                self._report_progress(report.update)
            if report.update % self.recipe.validate_every == 0 or last:
                self._validate()
            done = last or averaging.stopped(self.recipe, self.progress.validations)
            self._save_if_due(done, interrupted)
            if done:
                return

    def _log_passes(self, update: int) -> None:
        """Log that memory ran out, and the size of the passes from this update on."""
        tokens = self.passes.max_tokens
        log.warning("update %d: memory ran out; from here on a microbatch has at most %d padded tokens", update, tokens)
        if self.training_worker.rank == 0:
            self.job.context.metrics(update, {"microbatch_tokens": float(tokens or 0)})

    def _log_stage(self, report: Report) -> None:
        """Log that a stage of the curriculum begins."""
        stage = report.position.epoch
        log.info("update %d: stage %d of the curriculum: %s", report.update, stage + 1, dict(self.recipe.curriculum[stage].mix))
        if self.training_worker.rank == 0:
            self.job.context.metrics(report.update, {"curriculum_stage": stage + 1.0})

    def _log(self, update: int) -> None:
        line = self.meter.line()
        if self.training_worker.rank == 0:
            self.job.context.metrics(update, line)
        self._report_progress(update)

    def _report_progress(self, update: int) -> None:
        self.reported = time.monotonic()
        if self.training_worker.rank == 0:
            self.job.context.progress(update, self.recipe.updates, "updates")

    def _validate(self) -> None:
        found, statistics = self.validator.validate(self.model, self.progress.update)
        if not math.isfinite(found.loss):
            raise NotFiniteError(f"update {found.update}: validation loss: expected a finite value, got {found.loss}; {REMEDY}")
        found = found._replace(epoch=self.progress.position.epoch)
        self.progress = replace(self.progress, validations=(*self.progress.validations, found))
        if self.training_worker.rank == 0:
            self.files.save_candidate(found.update, self.model)
            line = {f"valid_{name}": value for name, value in statistics.items()}
            line |= {"valid_loss": found.loss, "valid_perplexity": perplexity(found.loss)}
            metric = self.job.config.metric
            self.job.context.metrics(
                found.update, finite(line if found.quality is None else {**line, f"valid_{metric}": found.quality})
            )
            log.info("update %d: validation loss %.4f, %s %s", found.update, found.loss, metric, found.quality)
        give_back_memory()
        self.meter.resume()

    def _save_if_due(self, done: bool, interrupted: Callable[[], bool]) -> None:
        """Save at the end, when the first worker's clock says so, or when any worker was asked to stop."""
        update = self.progress.update
        if not done and self.training_worker.device != "cpu" and update % GPU_SAVE_CHECK_EVERY:
            return
        first = self.training_worker.rank == 0
        asked = interrupted() or (first and self.job.context.stop_requested())
        due = first and time.monotonic() - self.saved >= self.job.context.checkpoint_seconds
        stop, save = any_worker(self.training_worker, [asked, asked or due])
        if (done or save) and first:
            self.files.save(self.progress, self.model, self.optimizer)
        if done or save:
            self.saved = time.monotonic()
            self.meter.resume()
        if stop and not done:
            any_worker(self.training_worker, [stop])  # waits for the first worker's files: Ray ends all workers when one has failed
            raise TransientError(
                f"asked to stop: the state of the training after update {update} is saved; a rerun continues there"
            )

    def finish(self) -> None:
        """Write the results, on the first worker."""
        if self.training_worker.rank == 0:
            facts: dict[str, Any] = {"dropped": self.dropped, "skipped_updates": int(self.optimizer.skipped)}
            if self.job.inputs.initial is not None:
                facts["weights_taken"] = self.taken
            if self.job.inputs.tables is not None:
                facts["links"] = links_of(self.job.inputs.tables.file)
            self.files.finish(self.progress, self.job.config, self.sizes, facts)


def devices(resources: Resources, worker: TrainingWorker) -> dict[str, float]:
    """Return the number of GPUs of all workers together, or of CPUs for a training without GPUs."""
    if worker.device != "cpu":
        return {"gpus": worker.world_size * (resources.gpus or 1.0)}
    return {"cpus": worker.world_size * float(resources.cpus or worker.threads)}


def with_precision(recipe: TrainingConfig, device: str) -> TrainingConfig:
    """Return a recipe with the precision of the device in place of `auto`."""
    if recipe.precision != "auto":
        return recipe
    return replace(recipe, precision=cast(TrainingPrecision, arithmetic(recipe.precision, device)))


def give_back_memory() -> None:
    """Return free pages to the system, if the C library can.

    Batches of new shapes leave holes between long-lived blocks, which glibc keeps: about 0.5 MB per update.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Meter:
    """Sums over the updates since the last line of metrics. Time outside of updates is not counted."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self._seconds = 0.0
        self.resume()

    def resume(self) -> None:
        """Exclude the time since the last update."""
        self._mark = time.monotonic()

    def add(self, report: Report) -> None:
        """Add the report of an update."""
        self._reports.append(report)
        self._seconds += time.monotonic() - self._mark
        self.resume()

    def line(self) -> dict[str, float]:
        """Return the finite metrics of these updates, and reset the sums."""
        reports = self._reports
        names = list(self._reports[0].sums)
        tensor = torch.stack([torch.stack([report.sums[name] for name in names]) for report in reports]).sum(0)
        sums = dict(zip(names, tensor.tolist(), strict=True))
        count = sums.pop("count")
        self._seconds += time.monotonic() - self._mark
        line = {name: value / count for name, value in sums.items()}
        line |= {
            "perplexity": perplexity(line.get("nll", line["loss"])),
            "learning_rate": reports[-1].learning_rate,
            "gradient_norm": float(reports[-1].gradient_norm),
            "target_tokens_per_second": count / max(self._seconds, 1e-9),
            "padding_efficiency": sum(r.real_tokens for r in reports) / sum(r.padded_tokens for r in reports),
        }
        self._reports = []
        self._seconds = 0.0
        self.resume()
        return finite(line)


def perplexity(nats: float) -> float:
    """Return the perplexity of a loss in nats per token, with an upper limit of exp(100)."""
    return math.exp(min(nats, 100.0))


def finite(line: dict[str, float]) -> dict[str, float]:
    """Return the finite values, since JSON has no others."""
    return {name: value for name, value in line.items() if math.isfinite(value)}
