"""The steps of the teacher, and of its translations."""

from __future__ import annotations

from dataclasses import replace

from models.stepwise.system import StepwiseTeacher
from models.training.recipe import TrainedSystem
from pipeline.config.schema import Pinned, RunConfig
from pipeline.config.systems import CommandTeacher, CTranslate2Teacher, Distillation, ExternalTeacher, TransformersTeacher
from pipeline.config.texts import DistilledText
from pipeline.plan import stage_configs
from pipeline.plan.counts import texts_of_tables
from pipeline.plan.flow import Distilled, Encoded, Flow, Teachers, Texts, TrainingData
from pipeline.plan.pins import pinned_back_translator, pinned_distillation, pinned_teacher
from pipeline.plan.stage_configs import train_network
from pipeline.plan.text_files import ctranslate2_files, local_file, transformers_files
from pipeline.plan.texts import encode_text, read_distilled_text, read_monolingual_text
from stages import distill, external, system
from stages.artifacts import ExternalFile, System, Text, Trained, Vocabulary


def train_teacher(flow: Flow, encoded: Encoded) -> dict[str, Trained]:
    """Train the networks of the teacher's ensemble; by name, which no system can have. Empty for a pinned or absent teacher."""
    config = flow.config.teacher
    if not isinstance(config, StepwiseTeacher):
        return {}
    names = ["teacher", *(f"teacher/{number}" for number in range(2, config.ensemble + 1))]
    return {
        name: train_network(flow, name, replace(config, training=recipe), encoded, (encoded.training,))
        for name, recipe in zip(names, config.recipes(), strict=True)
    }


def teacher_networks(flow: Flow, trainings: dict[str, Trained], vocab: Vocabulary) -> Teachers:
    """Return the teacher's networks, trained or pinned."""
    config = flow.config.teacher
    return (pinned_teacher(config, flow.store, vocab),) if isinstance(config, Pinned) else tuple(trainings.values())


VALIDATION = "validation"
"""The name of the step that translates the validation text, which nothing learns from."""


def distill_texts(flow: Flow, encoded: Encoded, teachers: Teachers) -> dict[str, Distilled]:
    """Translate the training text with the teacher, and monolingual text and the validation text if the config asks for it; by the
    name of the step.

    Empty if no system is trained on, and no table counted from, the teacher's translations.
    """
    if not _uses_distilled_text(flow.config):
        return {}
    names = {"train": "distilled", "monolingual": "distilled:monolingual", VALIDATION: "distilled:validation"}
    texts = _distilled_texts(flow, encoded, teachers)
    return {step: Distilled(text, encode_text(flow, names[step], text, encoded.vocabulary)) for step, text in texts.items()}


def _uses_distilled_text(config: RunConfig) -> bool:
    trained = [settings for settings in config.systems.values() if isinstance(settings, TrainedSystem)]
    data = {settings.data for settings in trained}
    data |= {name for settings in trained for stage in settings.training.curriculum for name in stage.mix}
    return not data.isdisjoint({"distilled", "mixed"}) or "distilled" in texts_of_tables(config)


def _distilled_texts(flow: Flow, encoded: Encoded, teachers: Teachers) -> dict[str, Text]:
    config = flow.config.distillation
    if isinstance(config, Pinned):
        return {"train": pinned_distillation(config, flow.store, encoded.texts.training)}
    if isinstance(config, DistilledText):
        return {"train": read_distilled_text(flow, config, encoded.texts)}
    if isinstance(flow.config.teacher, ExternalTeacher):
        return _externally_distilled_texts(flow, config, flow.config.teacher, encoded.texts)
    teacher = teachers[0]
    if isinstance(teacher, Trained):
        bundled = system.SystemInputs(teacher, encoded.vocabulary, members=other_members(teachers))
        described = stage_configs.system_config(flow.config, "teacher", {config.search.label: config.search})
        teacher = flow.steps.add(system.STAGE, "teacher", bundled, described)
    texts = _texts_to_distill(flow, config, encoded.texts)
    comet = _comet(flow, config)

    def distilled(name: str, text: Text) -> Text:
        settings = stage_configs.distill_config(flow.config, config, references=name == "train")
        return distill_text(flow, name, text, teacher, settings, comet)

    return {name: distilled(name, text) for name, text in texts.items()}


def _texts_to_distill(flow: Flow, config: Distillation, texts: Texts) -> dict[str, Text]:
    found = {"train": texts.training}
    if config.monolingual:
        found["monolingual"] = read_monolingual_text(flow, "train/monolingual", config.monolingual, texts)
    if config.validation:
        found[VALIDATION] = texts.validation
    return found


def _comet(flow: Flow, config: Distillation) -> ExternalFile | None:
    return None if config.comet is None else local_file(config.comet, flow.store)


def back_translate(flow: Flow, encoded: Encoded) -> TrainingData:
    """Translate text in the target language with a finished system of the other direction; empty if the config asks for none."""
    settings = flow.config.corpus.back_translation
    languages = flow.config.languages
    if settings is None:
        return ()
    name = "back-translation"
    writer, search = pinned_back_translator(settings.by, flow.store, (languages.target, languages.source))
    text = read_monolingual_text(flow, f"train/{name}", settings.monolingual, encoded.texts, languages.target)
    written = distill_text(flow, name, text, writer, distill.DistillConfig(search=search))
    return (encode_text(flow, name, written, encoded.vocabulary, swap=True),)


def _externally_distilled_texts(flow: Flow, config: Distillation, teacher: ExternalTeacher, texts: Texts) -> dict[str, Text]:
    files = tuple(local_file(path, flow.store) for path in teacher.files) if isinstance(teacher, CommandTeacher) else ()
    model: dict[str, ExternalFile] = {}
    if isinstance(teacher, CTranslate2Teacher):
        model = ctranslate2_files(teacher, flow.store)
    elif isinstance(teacher, TransformersTeacher):
        model = transformers_files(teacher, flow.store)

    comet = _comet(flow, config)

    def distilled(name: str, text: Text) -> Text:
        settings = stage_configs.external_config(flow.config, teacher, config, references=name == "train")
        return flow.steps.add(external.STAGE, name, external.ExternalInputs(text, files, model, comet), settings)

    return {name: distilled(name, text) for name, text in _texts_to_distill(flow, config, texts).items()}


def distill_text(
    flow: Flow, name: str, text: Text, teacher: System, config: distill.DistillConfig, comet: ExternalFile | None = None
) -> Text:
    """Translate the sources of a text by the teacher. `comet`: the model that chooses among its outputs."""
    return flow.steps.add(distill.STAGE, name, distill.DistillInputs(text, teacher, comet), config)


def other_members(networks: Teachers) -> tuple[Trained, ...]:
    """Return the networks of an ensemble of teachers other than the first."""
    return tuple(network for network in networks[1:] if isinstance(network, Trained))
