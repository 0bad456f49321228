"""The two estimators of n-gram models: this project's, and KenLM's program lmplz."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import NgramModel
from stages.context import Context
from stages.errors import DataError, StageError, TransientError

if TYPE_CHECKING:
    from stages.ngram import NgramConfig

DISCOUNTS = re.compile(r"^(\d+) \S+ D1=(\S+) D2=(\S+) D3\+=(\S+)$", re.MULTILINE)
"""Lines of lmplz's stderr."""


MEMORY_GIB = 8.0
"""Memory that estimation may take where none is reserved: the native engine refuses a larger text, lmplz goes to disk."""


def estimate(training: Path, config: NgramConfig, context: Context) -> tuple[NgramModel, dict[str, Any]]:
    """A model of the lines of `training`, and what `ngram.json` says of how it was fitted. Special words count as white space."""
    if list(config.prune) != sorted(config.prune) or not config.prune:
        raise DataError(f"ngram.prune: expected counts, none smaller than the one before, got {list(config.prune)}")
    return _natively(training, config, context) if config.engine == "native" else _by_lmplz(training, config, context)


def _natively(training: Path, config: NgramConfig, context: Context) -> tuple[NgramModel, dict[str, Any]]:
    try:
        model = NgramModel.estimate(
            training,
            config.order,
            prune=config.prune,
            discount_fallback=config.discount_fallback,
            skip_special=True,
            threads=context.resources.threads,
            memory_gib=_memory_gib(context),
        )
    except MemoryError as error:
        raise StageError(f"ngram: {error} (cluster.resources.ngram.memory_gib, or ngram.engine: lmplz)") from error
    except ValueError as error:
        raise DataError(f"ngram: {error} (ngram.discount_fallback)") from error
    found = model.estimation
    assert found is not None
    return model, {
        "discounts": found.discounts,
        "fallback": found.fallback,
        "distinct": found.distinct,
        "tokens": found.tokens,
        "skipped": found.skipped,
    }


def find_executable(name: str) -> str:
    """Its path. Raises StageError where there is none."""
    if found := shutil.which(name):
        return found
    raise StageError(
        f"ngram.executable: expected KenLM's program lmplz as {name}, found none; install it and name its path, "
        "or set ngram.engine to native"
    )


def _memory_gib(context: Context) -> float:
    """What estimation may take: what is reserved for the step, else `MEMORY_GIB`."""
    return context.resources.memory_gib or MEMORY_GIB


def command(executable: str, config: NgramConfig, folder: Path, memory_gib: float) -> list[str]:
    """lmplz's arguments; it reads the text from stdin and writes ARPA to stdout."""
    memory = f"{max(1, int(memory_gib * 1024))}M"
    arguments = [executable, "-o", str(config.order), "-S", memory, "-T", f"{folder}/lmplz.", "--skip_symbols"]
    arguments += ["--prune", *map(str, config.prune[: config.order])]
    if config.discount_fallback:
        arguments += ["--discount_fallback", *map(str, config.discount_fallback)]
    return arguments


def _by_lmplz(training: Path, config: NgramConfig, context: Context) -> tuple[NgramModel, dict[str, Any]]:
    executable = find_executable(config.executable)
    arpa, log = training.with_name("lmplz.arpa"), context.records("logs", "lmplz.txt")
    _run(command(executable, config, training.parent, _memory_gib(context)), training, arpa, log, context)
    try:
        model = NgramModel.load(arpa)
    except ValueError as error:
        raise StageError(f"{executable}: expected a model in the ARPA format, got: {error}; is it lmplz? ({log})") from error
    if model.order != config.order:
        raise StageError(f"{executable}: expected a model of order {config.order}, got order {model.order} ({log})")
    said = DISCOUNTS.findall(log.read_text(encoding="utf-8", errors="replace"))
    return model, {"discounts": [[float(value) for value in values] for _, *values in said]}


def _run(arguments: list[str], stdin: Path, stdout: Path, log: Path, context: Context) -> None:
    """Raises StageError when the program fails, TransientError when this step is asked to stop."""
    try:
        with stdin.open("rb") as source, stdout.open("wb") as out, log.open("wb") as said:
            process = subprocess.Popen(arguments, stdin=source, stdout=out, stderr=said)
    except OSError as error:
        raise StageError(f"{arguments[0]}: expected KenLM's program lmplz, but it cannot be run: {error}") from error
    try:
        while process.poll() is None:
            if context.stop_requested():
                raise TransientError("asked to stop while lmplz was running; it starts anew")
            time.sleep(0.02)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    if process.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        code = process.returncode
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        raise StageError(f"{arguments[0]}: {ended}; it said last: {' '.join(lines[-2:]) or 'nothing'} ({log})")
