"""Run the ngram stage."""

from __future__ import annotations

from stages.artifacts import CHECKPOINTS
from stages.context import StepContext
from stages.errors import DataError, unwritable
from stages.likelihood.perplexity import measure
from stages.ngram import NgramConfig, NgramInputs
from stages.ngram.engines import estimate
from stages.ngram.text import write_lines


def run(inputs: NgramInputs, config: NgramConfig, context: StepContext) -> None:
    """Write `model.ngram`, `model.arpa` and `ngram.json`, and the perplexity as metrics and as a table.

    Equal inputs and config give equal bytes for any number of threads. Raises DataError for text from which no model can be
    estimated, StageError when the text is too large for the native engine and when lmplz is missing or fails.
    """
    folder = context.temporary(context.directory / CHECKPOINTS / "text")  # a program of an earlier attempt may still be running
    folder.mkdir(parents=True, exist_ok=True)
    training, validation = folder / "training.txt", folder / "validation.txt"
    sentences = write_lines(inputs.training, inputs.vocabulary, config, training)
    measured = write_lines((inputs.validation,), inputs.vocabulary, config, validation)
    if not sentences or not measured:
        raise DataError(
            f"ngram: expected training and validation text, got {sentences} and {measured} sentences; check the text files"
        )
    context.progress(1, 3, "parts")
    model, fitted = estimate(training, config, context)
    for name, write in {"model.ngram": model.save, "model.arpa": model.write_arpa}.items():
        try:
            write(context.directory / name)
        except OSError as error:
            raise unwritable(context.directory / name, error) from error
    context.progress(2, 3, "parts")
    measure(model, fitted, context.directory / "model.arpa", validation, context)
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
    context.write_json(context.directory / "ngram.json", described)
    context.progress(3, 3, "parts")
