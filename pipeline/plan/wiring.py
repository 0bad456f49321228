"""The flow of the pipeline: from a config to its plan, in plain Python over typed artifacts."""

from __future__ import annotations

from typing import Any

from models.training.recipe import TrainedSystem
from pipeline.config.schema import RunConfig
from pipeline.plan.step import Builder, Plan
from pipeline.plan.wiring_counts import Counts, counted
from pipeline.plan.wiring_evaluation import Evaluation
from pipeline.plan.wiring_systems import Systems
from pipeline.plan.wiring_texts import Texts
from pipeline.store.artifacts import Store
from stages import (
    align,
    benchmark,
    contrastive,
    corpus,
    dag_analysis,
    decode,
    distill,
    encode,
    lattice,
    lattice_analysis,
    likelihood,
    ngram,
    report,
    score,
    system,
    train,
    tune,
    vocabulary,
)
from stages.artifacts import Tokens
from stages.stage import Stage

STAGES: tuple[Stage[Any, Any, Any], ...] = (
    corpus.STAGE,
    vocabulary.STAGE,
    encode.STAGE,
    align.STAGE,
    lattice.STAGE,
    ngram.STAGE,
    train.STAGE,
    distill.STAGE,
    system.STAGE,
    tune.STAGE,
    decode.STAGE,
    score.STAGE,
    likelihood.STAGE,
    contrastive.STAGE,
    dag_analysis.STAGE,
    lattice_analysis.STAGE,
    benchmark.STAGE,
    report.STAGE,
)


def build_plan(config: RunConfig, store: Store) -> Plan:
    """All steps that `config` asks for. Raises DataError when a file or a pinned artifact that it names is not there.

    Files that it names by URL are downloaded if the store does not hold them.
    """
    builder = Builder(store.root)
    texts = Texts(config, store, builder)
    validation = texts.part("validation", config.corpus.validation)
    tests = {name: texts.part(name, text) for name, text in config.corpus.test.items()}
    held_out = (validation, *tests.values())
    training = texts.training(held_out)
    words = texts.vocabulary(training)
    raw = texts.encoded("raw", training, words)
    cut: dict[str, Tokens] = {}
    if config.corpus.max_source_tokens is not None:
        cut = {"train": raw, **{name: texts.encoded(f"raw:{name}", test, words) for name, test in tests.items()}}

    validation_tokens = texts.encoded("validation", validation, words)
    systems = Systems(config, store, builder, texts, training, held_out, words, validation, validation_tokens)
    teachers = systems.teachers(raw)
    data: dict[str, tuple[Tokens, ...]] = {"raw": (raw,)}
    if _distils(config):
        written = systems.distilled(training, teachers)
        data["distilled"] = tuple(texts.encoded(name, text, words) for name, text in written.items())
    counts = Counts(config, store, builder, words, systems.validation)
    counts.count(data, training)
    counts.estimate(raw, training, validation)
    trained = systems.all(data, teachers, counts)

    evaluation = Evaluation(config, builder, trained, tests, training, systems.trainings, systems.tuned)
    distillations = {f"distill:{name}": text for name, text in systems.distillations.items()}
    evaluation.page(cut, {**distillations, **counts.artifacts})
    return builder.plan()


def _distils(config: RunConfig) -> bool:
    """Does anything learn from the teacher's translations?"""
    learned = {system.data for system in config.systems.values() if isinstance(system, TrainedSystem)}
    return not learned.isdisjoint({"distilled", "mixed"}) or "distilled" in counted(config)
