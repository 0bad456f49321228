"""The corpus metrics of a score step."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from stages.artifacts import ExternalFile
from stages.context import Context, StepContext
from stages.errors import StageError
from stages.score import ScoreConfig, ScoreInputs
from stages.shared.decoding.sentences import Sentence, read_sentences
from stages.shared.programs import Program, run_to_end
from stages.shared.scoring.comet import comet_score, sentence_scores
from stages.shared.scoring.metrics import Comparison, score
from stages.shared.scoring.tokenizers import tokenizer_for


def comparison_for(config: ScoreConfig) -> Comparison:
    """Return the conditions under which hypotheses are compared with references. Raises DataError for an unknown tokeniser."""
    tokenizer = tokenizer_for(config.tokenizer, config.target_language)
    return Comparison(language=config.target_language, tokenizer=tokenizer, lowercase=config.lowercase)


def compute_metrics(
    inputs: ScoreInputs,
    config: ScoreConfig,
    how: Comparison,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    context: StepContext,
) -> dict[str, Any]:
    """Return `{score, signature, ...}` of each metric of the config, and of COMET if the inputs have its model.

    Raises DataError for a tokeniser that is not installed, and what `comet` raises.
    """
    scores: dict[str, Any] = {}
    for done, name in enumerate(config.metrics):
        context.progress(done, len(config.metrics), "metrics")
        scores[name] = score(name, hypotheses, references, how)
    if inputs.comet is not None:
        sentences = read_sentences(inputs.text.path)
        scores["comet"] = comet(comet_score(config.comet_program, "evaluation"), inputs.comet, sentences, hypotheses, context)
    context.progress(len(config.metrics), len(config.metrics), "metrics")
    return scores


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
        found = run_to_end([str(python), "-I", "-c", VERSION], b"", str(python), timeout_seconds=VERSION_SECONDS)
    except (OSError, StageError):
        return "unknown"
    stated = found.output.decode(errors="replace").strip()
    return stated if found.code == 0 and re.fullmatch(r"[\w.+!-]{1,50}", stated, re.ASCII) else "unknown"
