"""COMET (Rei et al. 2020) by its program `comet-score`, which has an environment of its own: unbabel-comet needs older versions of
numpy, protobuf and torch than this project. A checkpoint on this machine is used, and nothing is downloaded."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from fewstep.bounded_files import json_value, read_bounded
from stages.artifacts import ExternalFile
from stages.context import Context
from stages.errors import StageError
from stages.shared.programs import PASSED, Program

BATCH = 16
"""Sentences in a batch of the model."""
ESCAPED, ROW_BYTES, LEAST_BYTES = 8, 1024, 1 << 20
"""Bytes of JSON for each byte of a text, for each text beyond them, and in any case."""
CACHES = ("HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "XDG_CACHE_HOME")
"""Variables that say where the encoder of a checkpoint is."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def comet_score(executable: str, section: str) -> Program:
    """Return the program that a section of a config names as comet-score."""
    remedy = (
        "make an environment for it (python3 -m venv comet && comet/bin/pip install unbabel-comet 'setuptools<81') "
        f"and name comet/bin/comet-score, or remove {section}.comet"
    )
    return Program(executable, "comet-score", "COMET", f"{section}.comet_program", remedy)


def sentence_scores(
    program: Program,
    checkpoint: ExternalFile,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str] | None,
    context: Context,
) -> list[float]:
    """Return the score [N] of each hypothesis, as the model states it; `references`: None for a model that needs none (quality
    estimation). What the program says is in the step's records, in a file for these sentences.

    Raises StageError if the program is missing, fails, or does not write a score for each sentence; TransientError when the step is
    asked to stop.
    """
    columns = {"-s": sources, "-t": hypotheses} | ({} if references is None else {"-r": references})
    name = hashlib.sha256(repr(columns).encode(errors="surrogatepass")).hexdigest()[:16]
    log = context.records("logs", f"comet-{name}.txt")
    with TemporaryDirectory(prefix="fewstep-comet-") as folder:
        results = Path(folder) / "scores.json"
        arguments = [word for option, texts in columns.items() for word in (option, _written(Path(folder) / option[1:], texts))]
        arguments += ["--model", str(checkpoint.path), "--batch_size", str(BATCH), "--gpus", str(int(bool(context.resources.gpus)))]
        program.run([*arguments, "--quiet", "--to_json", str(results)], log, context, environment=_environment(context))
        return _scores(results, len(hypotheses), _most_bytes(columns.values()), program, log)


def _written(path: Path, texts: Sequence[str]) -> str:
    """Write a text a line, and return the path."""
    path.write_text("".join(re.sub(r"[\r\n]+", " ", text) + "\n" for text in texts), encoding="utf-8")
    return str(path)


def _environment(context: Context) -> dict[str, str]:
    """Return the variables of the program, without those that lead to the packages of this process."""
    known = {name: value for name, value in os.environ.items() if name in (*PASSED, *CACHES)}
    return {**known, **OFFLINE, "LANG": "C.UTF-8", "PYTHONUTF8": "1", "OMP_NUM_THREADS": str(context.resources.threads)}


def _most_bytes(columns: Iterable[Sequence[str]]) -> int:
    """Return the most bytes that comet-score writes for columns of text: it repeats them, with escapes, beside names and scores."""
    return LEAST_BYTES + sum(ROW_BYTES + ESCAPED * len(text.encode(errors="surrogatepass")) for texts in columns for text in texts)


def _scores(results: Path, count: int, most: int, program: Program, log: Path) -> list[float]:
    """Return the scores of the sentences in what comet-score writes: a list of sentences by the name of the translations."""
    wanted = f"{program.executable}: expected {count} scores in the JSON of comet-score"
    try:
        (rows,) = json_value(read_bounded(results, most)).values()
        scores = [float(row["COMET"]) for row in rows]
    except (OSError, ValueError, AttributeError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StageError(f"{wanted}, got {type(error).__name__}: {error} ({log}); check {program.key}") from error
    if len(scores) != count or not all(map(math.isfinite, scores)):
        numbers = sum(map(math.isfinite, scores))
        raise StageError(f"{wanted}, got {len(scores)}, of which {numbers} are numbers ({log}); check {program.key}")
    return scores
