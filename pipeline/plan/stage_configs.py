"""The configs of stages as parts of a run's config, wherever a stage's config is not itself a section of the YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from fewstep.config.search import SearchConfig
from fewstep.families.dag.config import DagConfig
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.system.format import SOURCE_PIECES
from models.stepwise.system import StepwiseTeacher
from models.training.config import Infilling, TrainingConfig
from models.training.recipe import TrainedSystem, part
from pipeline.config.schema import Pinned, RunConfig, network_of
from pipeline.config.seeds import replicas
from pipeline.config.systems import (
    TEACHER_FAMILY,
    CommandTeacher,
    Distillation,
    ExternalTeacher,
    OpenAITeacher,
    RayLLMTeacher,
    TransformersTeacher,
)
from pipeline.config.texts import TextConfig, VocabularyDictionaries
from pipeline.plan import stage_configs
from pipeline.plan.flow import Encoded, Flow, TrainingData
from stages import train
from stages.artifacts import System, Tables, Trained
from stages.benchmark import BenchmarkConfig
from stages.contrastive import ContrastiveConfig
from stages.corpus import CorpusConfig, Filters
from stages.distill import DistillConfig
from stages.external import CTranslate2Options, ExternalConfig, TransformersOptions
from stages.report import ReportConfig, SystemPair
from stages.score import ScoreConfig, ScoreOptions
from stages.shared.scoring.options import ComparisonOptions
from stages.shared.target_filters import TargetFilters
from stages.system import SystemConfig
from stages.train import TrainConfig
from stages.tune import TuneConfig
from stages.vocabulary import VocabularyOptions
from stages.vocabulary.words import is_word_model


def corpus_config(config: RunConfig, part: str, text: TextConfig, filters: Filters | None = None) -> CorpusConfig:
    """Return how `text`, the `part` (`train`, `validation` or a test set) of the corpus, is read and cleaned."""
    return CorpusConfig(
        source_language=config.languages.source,
        target_language=config.languages.target,
        embedded=text.embedded,
        task=config.task if text.embedded else "translation",
        part=part if text.embedded else "",
        filters=filters,
        shard_rows=config.corpus.shard_rows,
        split=is_split(config),
    )


def is_split(config: RunConfig) -> bool:
    """Return whether the text of a run is split into tokens already, which its vocabulary says."""
    vocabulary = config.vocabulary
    if isinstance(vocabulary, VocabularyOptions):
        return vocabulary.model == "word"
    if isinstance(vocabulary, Pinned):
        return is_word_model(vocabulary.path / SOURCE_PIECES)
    return isinstance(vocabulary, VocabularyDictionaries)


def _comparison(config: RunConfig) -> dict[str, Any]:
    """Return the options of comparisons; of text that is split already, subwords are joined."""
    options = vars(part(config.evaluation, ComparisonOptions))
    return {**options, "tokenizer": "subwords"} if is_split(config) and options["tokenizer"] == "auto" else options


def distilled_text_config(config: RunConfig) -> CorpusConfig:
    """Return how text that was distilled elsewhere is read and cleaned: as training text is."""
    return corpus_config(config, "train", TextConfig(), config.corpus.filters)


def monolingual_config(config: RunConfig, language: str) -> CorpusConfig:
    """Return how text in one language is cleaned: as training text is, with this language on both sides."""
    filters = replace(config.corpus.filters, drop_identical=False)
    plain = corpus_config(config, "train", TextConfig(), filters)
    return replace(plain, source_language=language, target_language=language)


def train_config(config: RunConfig, settings: StepwiseTeacher | TrainedSystem) -> TrainConfig:
    """Return the training of the teacher or of a system."""
    return TrainConfig(
        family=settings.family,
        network=settings.network,
        training=settings.training,
        target_language=config.languages.target,
        task=config.task,
    )


def pretraining_config(config: RunConfig, settings: TrainedSystem) -> TrainConfig:
    """Return the pre-training of a system, of a config that has the section."""
    assert config.pretraining is not None
    recipe = config.pretraining.recipe(settings.training)
    infilling = part(config.pretraining, Infilling)
    plain = replace(train_config(config, settings), training=recipe, infilling=infilling)
    if isinstance(plain.network, DagConfig) and infilling.target == "segments":
        return replace(plain, network=replace(plain.network, segments=True))
    return plain


def distill_config(config: RunConfig, settings: Distillation, *, references: bool) -> DistillConfig:
    """Return how the teacher translates a text. `references` says whether the text has targets that may choose among the n best
    outputs."""
    choice = target_choice(settings, references)
    uses_language = settings.filters is not None or choice["choose"] == "reference"
    return DistillConfig(
        search=settings.search,
        batch_tokens=settings.batch_tokens,
        max_ratio=settings.max_ratio,
        filters=settings.filters,
        target_language=config.languages.target if uses_language else "",
        **choice,
    )


def target_choice(settings: Distillation, references: bool) -> dict[str, Any]:
    """Return how targets are chosen among the outputs for a text that has references or none."""
    choose = "score" if settings.choose == "reference" and not references else settings.choose
    return {"choose": choose, "min_quality": settings.min_quality, "comet_program": program_path(settings.comet_program)}


def program_path(name: str) -> str:
    """Return the absolute path of a program; its name on PATH as it is."""
    return os.path.abspath(name) if os.sep in name else name


def external_config(config: RunConfig, teacher: ExternalTeacher, settings: Distillation, references: bool) -> ExternalConfig:
    """Return the program, the options of the model, or the language model of a teacher.

    `references` says whether the text has targets that may choose.
    """
    filters = settings.filters
    if isinstance(teacher, CommandTeacher):
        found = ExternalConfig(
            **{field.name: getattr(teacher, field.name) for field in fields(CommandTeacher) if field.name != "files"}
        )
    elif isinstance(teacher, OpenAITeacher | RayLLMTeacher):
        filters = filters or TargetFilters()
        found = ExternalConfig(
            openai=teacher.openai if isinstance(teacher, OpenAITeacher) else None,
            ray_llm=teacher.ray_llm if isinstance(teacher, RayLLMTeacher) else None,
            source_language=config.languages.source,
            n_best=settings.n_best,
            shards_per_process=1,
        )
    elif isinstance(teacher, TransformersTeacher):
        found = ExternalConfig(transformers=part(teacher, TransformersOptions), shards_per_process=teacher.shards_per_process)
    else:
        found = ExternalConfig(ctranslate2=part(teacher, CTranslate2Options), shards_per_process=teacher.shards_per_process)
    found = replace(found, **target_choice(settings, references))
    return found if filters is None else replace(found, filters=filters, target_language=config.languages.target)


def system_config(
    config: RunConfig,
    name: str,
    searches: Mapping[str, SearchConfig],
    family: str = TEACHER_FAMILY,
    averaging: TrainingConfig | None = None,
) -> SystemConfig:
    """Return the description of a system with these searches by label, the default first."""
    return SystemConfig(
        name=name,
        family=family,
        source_language=config.languages.source,
        target_language=config.languages.target,
        searches=dict(searches),
        default=next(iter(searches)),
        task=config.task,
        max_source_tokens=config.corpus.max_source_tokens,
        averaging=averaging,
    )


def tune_config(config: RunConfig, search: SearchConfig, validation_metric: str) -> TuneConfig:
    """Return which length penalties of `search` are tried, if it has one, and how their outputs are compared: as those of the
    system's validations."""
    evaluation = config.evaluation
    return TuneConfig(
        search=search,
        length_penalties=evaluation.length_penalties if search.penalises_length else (),
        target_language=config.languages.target,
        task=config.task,
        tokenized=validation_metric == "tokenized_bleu",
        batch_tokens=evaluation.batch_tokens,
        **_comparison(config),
    )


def score_config(config: RunConfig, search: SearchConfig) -> ScoreConfig:
    """Return how hypotheses of `search` are scored."""
    chosen = {**vars(part(config.evaluation, ScoreOptions)), **_comparison(config)}
    language = config.languages.target
    return ScoreConfig(
        target_language=language,
        diversity=search.n_best > 1,
        placeholders=config.task == "translation",
        comet_program=program_path(config.evaluation.comet_program),
        **chosen,
    )


def contrastive_config(config: RunConfig) -> ContrastiveConfig:
    """Return which minimal pairs systems choose between."""
    target = config.languages.target
    return ContrastiveConfig(pairs=config.evaluation.contrastive, target_language="en" if target == "en" else "de")


def benchmark_config(config: RunConfig) -> BenchmarkConfig:
    """Return which searches are timed, and how."""
    settings = config.benchmark
    return BenchmarkConfig(
        searches={
            f"{name}/{label}": search
            for name, system in config.systems.items()
            if name not in further_seeds(config)
            for label, search in system.search.items()
        },
        baseline=_baseline(config),
        sentences=settings.sentences,
        rounds=settings.rounds,
        batch_sizes=settings.batch_sizes,
        memory=settings.memory,
        task=config.task,
    )


def further_seeds(config: RunConfig) -> set[str]:
    """Return the names of systems that differ from another one in their seed alone."""
    return {name for members in replicas(config.seeds, config.systems).values() for name in members[1:]}


def report_config(config: RunConfig) -> ReportConfig:
    """Return what the report compares and shows."""
    evaluation = config.evaluation
    return ReportConfig(
        title=config.name,
        task=config.task,
        baseline=_baseline(config),
        samples=evaluation.samples,
        min_bleu=evaluation.min_bleu,
        min_rouge=evaluation.min_rouge,
        system_pairs=_pairs_of_systems(config),
        seeds={name: tuple(members) for name, members in replicas(config.seeds, config.systems).items()},
    )


def _baseline(config: RunConfig) -> str:
    """Return the `system/label` that the other results are compared with."""
    name, _, label = config.evaluation.baseline.partition("/")
    return f"{name}/{label or next(iter(config.systems[name].search))}"


def _pairs_of_systems(config: RunConfig) -> dict[str, SystemPair]:
    pairs = config.evaluation.mutual_information
    networks = {name: network_of(config, pair.parallel) for name, pair in pairs.items()}
    return {
        name: SystemPair(parallel=pair.parallel, sequential=pair.sequential, step_size=network.generation().step_size)
        for name, pair in pairs.items()
        if isinstance(network := networks[name], StepwiseConfig)
    }


def train_network(
    flow: Flow,
    name: str,
    settings: StepwiseTeacher | TrainedSystem,
    encoded: Encoded,
    data: TrainingData,
    initial: Trained | System | None = None,
    tables: Tables | None = None,
    verifier: System | None = None,
    texts: Mapping[str, TrainingData] | None = None,
) -> Trained:
    """Train the network of a teacher or system. It starts from `initial`, or from random weights.

    It learns from `data`, or from those of `texts` (None: the texts that a teacher may read) that its curriculum names.
    """
    names = {name for stage in settings.training.curriculum for name in stage.mix}
    mixed = {name: text for name, text in (texts or encoded.named).items() if name in names}
    inputs = train.TrainInputs(
        () if names else data,
        encoded.validation,
        encoded.texts.validation,
        encoded.vocabulary,
        initial,
        tables,
        verifier,
        mixed,
    )
    return flow.steps.add(train.STAGE, name, inputs, stage_configs.train_config(flow.config, settings))
