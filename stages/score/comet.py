"""COMET (Rei et al. 2020) by its program `comet-score`, which has an environment of its own: unbabel-comet needs older versions of
numpy, protobuf and torch than this project. A checkpoint on this machine is used, and nothing is downloaded."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from stages.artifacts import ExternalFile
from stages.context import Context
from stages.errors import StageError
from stages.shared.decoding.sentences import Sentence
from stages.shared.programs import PASSED, Program

BATCH = 16
"""Sentences in a batch of the model."""
CACHES = ("HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "XDG_CACHE_HOME")
"""Variables that say where the encoder of a checkpoint is."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
VERSION = "from importlib.metadata import version; print(version('unbabel-comet'))"
VERSION_SECONDS = 60.0


def comet_score(executable: str) -> Program:
    """Return the program that a config names as comet-score."""
    remedy = (
        "make an environment for it (python3 -m venv comet && comet/bin/pip install unbabel-comet 'setuptools<81') "
        "and name comet/bin/comet-score, or remove evaluation.comet"
    )
    return Program(executable, "comet-score", "COMET", "evaluation.comet_program", remedy)


def comet(
    program: Program, checkpoint: ExternalFile, sentences: Sequence[Sentence], hypotheses: Sequence[str], context: Context
) -> dict[str, Any]:
    """Return `score`, the mean over the sentences times 100, and `signature`. A hypothesis is compared with the first reference.

    Raises StageError if the program is missing, fails, or does not write a score for each sentence; TransientError when the step is
    asked to stop.
    """
    with TemporaryDirectory(prefix="fewstep-comet-") as folder:
        results = Path(folder) / "scores.json"
        columns = {
            "-s": [sentence.source for sentence in sentences],
            "-t": hypotheses,
            "-r": [sentence.references[0] for sentence in sentences],
        }
        arguments = [word for option, texts in columns.items() for word in (option, _written(Path(folder) / option[1:], texts))]
        arguments += ["--model", str(checkpoint.path), "--batch_size", str(BATCH), "--gpus", str(int(bool(context.resources.gpus)))]
        log = context.records("logs", "comet.txt")
        program.run([*arguments, "--quiet", "--to_json", str(results)], log, context, environment=_environment(context))
        scores = _scores(results, len(sentences), program, log)
    version = _version(program.find())
    signature = f"model:{checkpoint.path.stem}|digest:{checkpoint.digest[:16]}|ref:first|version:{version}"
    return {"score": round(100 * fmean(scores), 4), "signature": signature}


def _written(path: Path, texts: Sequence[str]) -> str:
    """Write a text a line, and return the path."""
    path.write_text("".join(re.sub(r"[\r\n]+", " ", text) + "\n" for text in texts), encoding="utf-8")
    return str(path)


def _environment(context: Context) -> dict[str, str]:
    """Return the variables of the program, without those that lead to the packages of this process."""
    known = {name: value for name, value in os.environ.items() if name in (*PASSED, *CACHES)}
    return {**known, **OFFLINE, "LANG": "C.UTF-8", "PYTHONUTF8": "1", "OMP_NUM_THREADS": str(context.resources.threads)}


def _scores(results: Path, count: int, program: Program, log: Path) -> list[float]:
    """Return the scores of the sentences in what comet-score writes: a list of sentences by the name of the translations."""
    wanted = f"{program.executable}: expected {count} scores in the JSON of comet-score"
    try:
        (rows,) = json.loads(results.read_text(encoding="utf-8")).values()
        scores = [float(row["COMET"]) for row in rows]
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise StageError(f"{wanted}, got {type(error).__name__}: {error} ({log}); check {program.key}") from error
    if len(scores) != count or not all(map(math.isfinite, scores)):
        numbers = sum(map(math.isfinite, scores))
        raise StageError(f"{wanted}, got {len(scores)}, of which {numbers} are numbers ({log}); check {program.key}")
    return scores


def _version(executable: str) -> str:
    """Return the version of unbabel-comet in the environment of the program; `unknown` without an interpreter beside it."""
    python = Path(executable).resolve().with_name("python")
    if shutil.which(python) is None:
        return "unknown"
    try:
        found = subprocess.run([python, "-I", "-c", VERSION], capture_output=True, text=True, timeout=VERSION_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip()
