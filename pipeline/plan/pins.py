"""Pinned artifacts: finished ones that a config names by directory (`from:`) instead of describing the step that makes them.

Each function raises DataError when the directory holds no finished artifact of the right stage, or one that does not match this
run, and ArtifactError when a file of it was altered.
"""

from __future__ import annotations

from typing import cast

from pipeline.config.schema import Pinned
from pipeline.store.artifacts import Store
from stages import distill, import_network, ngram, system, train, vocabulary
from stages.artifacts import Ngram, System, Text, Trained, Vocabulary
from stages.errors import DataError


def pinned_vocabulary(pin: Pinned, store: Store) -> Vocabulary:
    """Return the vocabulary at `vocabulary.from`."""
    artifact, _ = store.pinned([vocabulary.STAGE], pin.path, "vocabulary.from")
    return cast(Vocabulary, artifact)


def pinned_ngram(pin: Pinned, store: Store, vocabulary: Vocabulary) -> Ngram:
    """Return the language model at `ngram.from`, whose pieces must be those of `vocabulary`."""
    artifact, manifest = store.pinned([ngram.STAGE], pin.path, "ngram.from")
    found = manifest.inputs.get("vocabulary")
    if found and found != vocabulary.fingerprint:
        raise DataError(
            f"ngram.from: expected a model over this run's vocabulary {vocabulary.fingerprint[:8]}, got one over {found[:8]}: "
            f"{pin.path}; pin that vocabulary too (vocabulary.from), or remove ngram.from to estimate a new model"
        )
    return cast(Ngram, artifact)


def pinned_teacher(pin: Pinned, store: Store, vocabulary: Vocabulary) -> Trained | System:
    """Return the training or the system at `teacher.from`. A training must use `vocabulary`; a system brings its own."""
    artifact, manifest = store.pinned([system.STAGE, train.STAGE, import_network.STAGE], pin.path, "teacher.from")
    if manifest.stage == train.STAGE.name and manifest.inputs["vocabulary"] != vocabulary.fingerprint:
        raise DataError(
            f"teacher.from: expected a network trained on this run's vocabulary {vocabulary.fingerprint[:8]}, got one trained on "
            f"{manifest.inputs['vocabulary'][:8]}: {pin.path}; pin that vocabulary too (vocabulary.from), or name the directory "
            "of a system, which brings its own"
        )
    return cast(Trained | System, artifact)


def pinned_distillation(pin: Pinned, store: Store, training: Text) -> Text:
    """Return the text at `distillation.from`, which must be the teacher's output for `training`."""
    artifact, manifest = store.pinned([distill.STAGE], pin.path, "distillation.from")
    if manifest.inputs["text"] != training.fingerprint:
        raise DataError(
            f"distillation.from: expected outputs for this run's training text {training.fingerprint[:8]}, which holds no test "
            f"sentence, got outputs for {manifest.inputs['text'][:8]}: {pin.path}; restore the corpus settings of that text, or "
            "remove distillation.from to distil again"
        )
    return cast(Text, artifact)
