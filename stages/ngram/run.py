"""Run the ngram stage."""

from __future__ import annotations

from stages.errors import DataError, unwritable
from stages.likelihood.perplexity import measure
from stages.ngram import NgramConfig, NgramInputs
from stages.ngram.engines import estimate
from stages.ngram.text import write_lines
from stages.stage import CHECKPOINTS, Work


def run(inputs: NgramInputs, config: NgramConfig, work: Work) -> None:
    """Write `model.ngram`, `model.arpa` and `ngram.json`; perplexity as metrics and in a table. Equal input and config give equal
    bytes for any number of threads.

    Raises DataError for text that gives no model, StageError where it is too large for the native engine and where lmplz is missing
    or fails.
    """
    folder = work.directory / CHECKPOINTS
    folder.mkdir(parents=True, exist_ok=True)
    training, validation = folder / "training.txt", folder / "validation.txt"
    sentences = write_lines(inputs.training, inputs.vocabulary, config, training)
    measured = write_lines((inputs.validation,), inputs.vocabulary, config, validation)
    if not sentences or not measured:
        raise DataError(f"ngram: expected training and validation text, got {sentences} and {measured} sentences")
    work.progress(1, 3, "parts")
    model, fitted = estimate(training, config, work)
    for name, write in {"model.ngram": model.save, "model.arpa": model.write_arpa}.items():
        try:
            write(work.directory / name)
        except OSError as error:
            raise unwritable(work.directory / name, error) from error
    work.progress(2, 3, "parts")
    measure(model, fitted, work.directory / "model.arpa", validation, work)
    described = {
        "order": model.order,
        "counts": model.counts,
        "unit": config.unit,
        "side": config.side,
        "engine": config.engine,
        "sentences": sentences,
        "vocabulary_digest": model.vocabulary_digest,
        **fitted,
    }
    work.write_json(work.directory / "ngram.json", described)
    work.progress(3, 3, "parts")
