"""The mean score of COMET, with what a reader needs to compare it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from stages.artifacts import ExternalFile
from stages.context import Context
from stages.shared.decoding.sentences import Sentence
from stages.shared.programs import Program
from stages.shared.scoring.comet import sentence_scores

VERSION = "from importlib.metadata import version; print(version('unbabel-comet'))"
VERSION_SECONDS = 60.0


def comet(
    program: Program, checkpoint: ExternalFile, sentences: Sequence[Sentence], hypotheses: Sequence[str], context: Context
) -> dict[str, Any]:
    """Return `score`, the mean over the sentences times 100, and `signature`. A hypothesis is compared with the first reference.

    Raises what `sentence_scores` raises.
    """
    sources = [sentence.source for sentence in sentences]
    references = [sentence.references[0] for sentence in sentences]
    scores = sentence_scores(program, checkpoint, sources, hypotheses, references, context)
    version = _version(program.find())
    signature = f"model:{checkpoint.path.stem}|digest:{checkpoint.digest[:16]}|ref:first|version:{version}"
    return {"score": round(100 * fmean(scores), 4), "signature": signature}


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
