"""COMET (Rei et al. 2020) with the package unbabel-comet and a checkpoint on this machine. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from statistics import fmean
from typing import Any

from stages.artifacts import ExternalFile
from stages.errors import DataError
from stages.shared.decoding.sentences import Sentence

BATCH = 16
"""Sentences in a batch of the model."""


def comet(checkpoint: ExternalFile, sentences: Sequence[Sentence], hypotheses: Sequence[str], *, gpus: bool) -> dict[str, Any]:
    """Return `score`, the mean over the sentences times 100, and `signature`. A hypothesis is compared with the first reference.

    Raises DataError if the package is not installed, or cannot load the checkpoint without a download.
    """
    if find_spec("comet") is None:
        raise DataError(
            f"evaluation.comet: expected the package unbabel-comet for {checkpoint.path}, found no such package; "
            "install it (pip install unbabel-comet), or remove the key"
        )
    try:
        model = import_module("comet").load_from_checkpoint(str(checkpoint.path), local_files_only=True)
    except Exception as error:
        raise DataError(
            f"evaluation.comet: expected a checkpoint of COMET whose encoder is on this machine, got for {checkpoint.path}: {error}"
        ) from error
    rows = [
        {"src": sentence.source, "mt": text, "ref": sentence.references[0]}
        for sentence, text in zip(sentences, hypotheses, strict=True)
    ]
    scores = model.predict(rows, batch_size=BATCH, gpus=int(gpus), progress_bar=False).scores
    version = metadata.version("unbabel-comet")
    signature = f"model:{checkpoint.path.stem}|digest:{checkpoint.digest[:16]}|ref:first|version:{version}"
    return {"score": round(100 * fmean(map(float, scores)), 4), "signature": signature}
