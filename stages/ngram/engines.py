"""The two estimators of n-gram models: native code, and KenLM's program lmplz."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import NgramModel
from stages.context import Context
from stages.errors import DataError, StageError
from stages.ngram.counting import Job, explained, open_groups
from stages.ngram.text import Lines, training_shards
from stages.shared.programs import Program

if TYPE_CHECKING:
    from stages.ngram import NgramConfig

DISCOUNTS = re.compile(r"^(\d+) \S+ D1=(\S+) D2=(\S+) D3\+=(\S+)$", re.MULTILINE)
"""Pattern of lines on the stderr of lmplz."""

MEMORY_GIB = 8.0
"""Memory for estimation if its worker reserves no memory. Beyond it the native engine raises an error, and lmplz sorts on disk."""


def estimate(job: Job, folder: Path) -> tuple[NgramModel, dict[str, Any]]:
    """Return the model of the training text, and the entries of `ngram.json` on its estimation. `folder` is for temporary files.

    Special words (`<s>`, `</s>`, `<unk>`) in the text are treated as white space.
    """
    options: dict[str, Any] = {
        "prune": job.config.prune,
        "discount_fallback": job.config.discount_fallback,
        "threads": job.context.resources.threads,
        "memory_gib": _memory_gib(job.context),
    }
    if job.in_parts:
        with explained(job, job.state()):
            return _natively(partial(NgramModel.from_counts, open_groups(job), job.config.order, **options))
    training = folder / "training.txt"
    Lines(job.inputs, job.config).write(training_shards(job.inputs), training)
    if job.config.engine == "native":
        return _natively(partial(NgramModel.estimate, training, job.config.order, skip_special=True, **options))
    return _by_lmplz(training, job.config, job.context)


def _natively(estimated: Callable[[], NgramModel]) -> tuple[NgramModel, dict[str, Any]]:
    try:
        model = estimated()
    except MemoryError as error:
        raise StageError(f"ngram: {error} (options cluster.resources.ngram.memory_gib, ngram.engine)") from error
    except ValueError as error:
        raise DataError(f"ngram: {error} (option ngram.discount_fallback)") from error
    found = model.estimation
    assert found is not None
    return model, {
        "discounts": found.discounts,
        "fallback": found.fallback,
        "distinct": found.distinct,
        "tokens": found.tokens,
        "skipped": found.skipped,
    }


def lmplz(executable: str) -> Program:
    """Return the program that a config names as lmplz."""
    return Program(executable, "lmplz", "KenLM", "ngram.executable", "install it and give its path, or set ngram.engine to native")


def _memory_gib(context: Context) -> float:
    """The memory for estimation: that of a worker's resources, or `MEMORY_GIB`."""
    return context.resources.memory_gib or MEMORY_GIB


def arguments_of(config: NgramConfig, folder: Path, memory_gib: float) -> list[str]:
    """Return the arguments of lmplz, which reads the text from stdin and writes a model in the ARPA format to stdout."""
    memory = f"{max(1, int(memory_gib * 1024))}M"
    arguments = ["-o", str(config.order), "-S", memory, "-T", f"{folder}/lmplz.", "--skip_symbols"]
    arguments += ["--prune", *map(str, config.prune[: config.order])]
    if config.discount_fallback:
        arguments += ["--discount_fallback", *map(str, config.discount_fallback)]
    return arguments


def _by_lmplz(training: Path, config: NgramConfig, context: Context) -> tuple[NgramModel, dict[str, Any]]:
    program = lmplz(config.executable)
    arpa = training.with_name("lmplz.arpa")
    log = context.records("logs", "lmplz.txt")
    program.run(arguments_of(config, training.parent, _memory_gib(context)), log, context, stdin=training, stdout=arpa)
    try:
        model = NgramModel.load(arpa)
    except ValueError as error:
        raise StageError(
            f"{config.executable}: expected a model in the ARPA format, got: {error} ({log}); check that ngram.executable is lmplz"
        ) from error
    if model.order != config.order:
        raise StageError(
            f"{config.executable}: expected a model of order {config.order}, got order {model.order} ({log}); "
            "check that ngram.executable is lmplz"
        )
    found = DISCOUNTS.findall(log.read_text(encoding="utf-8", errors="replace"))
    return model, {"discounts": [[float(value) for value in values] for _, *values in found]}
