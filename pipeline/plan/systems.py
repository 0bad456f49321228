"""The steps of systems: training, with its pre-training and companions, the directory, and tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from fewstep.config.search import LimitedSearch, SearchConfig
from fewstep.system.format import VERIFIER
from models.family import family_named
from models.training.initial import FinishedNetwork
from models.training.recipe import TrainedSystem
from pipeline.config.schema import RunConfig
from pipeline.config.systems import PRETRAINING, FinishedSystem, UsedSystem
from pipeline.plan import stage_configs
from pipeline.plan.counts import count_shortlist
from pipeline.plan.flow import Built, Distilled, Encoded, Flow, Sources, TrainingData
from pipeline.plan.pins import pinned_system, pinned_weights
from pipeline.plan.stage_configs import train_network
from pipeline.plan.teachers import distill_text, other_members
from pipeline.plan.texts import encode_text, read_monolingual_text
from stages import distill, system, train, tune
from stages.artifacts import System, Text, Trained, Tuned


def build_systems(flow: Flow, sources: Sources) -> dict[str, Built]:
    """Train, bundle and tune the systems of the config; by name. Systems that work with companions are planned after these."""
    built: dict[str, Built] = {}
    for name, settings in sorted(flow.config.systems.items(), key=lambda item: bool(item[1].companions)):
        if isinstance(settings, UsedSystem):
            built[name] = use_teacher(flow, name, settings, sources)
        elif isinstance(settings, FinishedSystem):
            built[name] = take_finished(flow, name, settings, sources)
        else:
            built[name] = train_system(flow, name, settings, sources, built)
    return {name: built[name] for name in flow.config.systems}


def use_teacher(flow: Flow, name: str, settings: UsedSystem, sources: Sources) -> Built:
    """Bundle the teacher, alone or with its ensemble, as the system `name`. A pinned system is a bundle already."""
    networks = sources.teachers if settings.use == "ensemble" else sources.teachers[:1]
    first = networks[0]
    if isinstance(first, System):
        return Built(first, tuned=tune_searches(flow, name, settings, first, sources.encoded.texts.validation))
    inputs = system.SystemInputs(first, sources.encoded.vocabulary, members=other_members(networks))
    return bundle_and_tune(flow, name, settings, inputs, sources.data["raw"], sources)


def take_finished(flow: Flow, name: str, settings: FinishedSystem, sources: Sources) -> Built:
    """Take a finished system, and bundle it with the searches of the config, under the name `name`."""
    finished, network = pinned_system(f"systems.{name}", settings, flow.config, flow.store)
    tuned = tune_searches(flow, name, settings, finished, sources.encoded.texts.validation)
    config = stage_configs.system_config(flow.config, name, settings.search, settings.family)
    flow.steps.add(system.STAGE, name, system.SystemInputs(tuned=tuned, alone=finished), config)
    return Built(finished, tuned=tuned, is_analysed=network.is_analysed)


def train_system(flow: Flow, name: str, settings: TrainedSystem, sources: Sources, earlier: Mapping[str, Built]) -> Built:
    """Train and bundle a system. Its companions, and the system whose weights it begins with, are among `earlier`."""
    companions = {role: earlier[other].system for role, other in settings.companions.items()}
    distilled: dict[str, Distilled] = {}
    if settings.data in companions:
        distilled = distill_companion(flow, name, settings, companions[settings.data], sources.encoded)
    data = _training_data(settings, sources.data, distilled)
    tables = sources.tables[settings.table_text] if settings.table_text else None
    weights = {other: built.trained for other, built in earlier.items() if built.trained} | companions
    pretrained = pretrain(flow, name, settings, sources.encoded) if settings.initial_weights == PRETRAINING else None
    initial = pretrained or _initial_weights(flow, name, settings, weights, sources)
    drafts = settings.training.validation_metric == "tokens_per_pass"
    verifier = companions[VERIFIER] if drafts else None
    texts = {**sources.encoded.named, "distilled": sources.data["distilled"]}
    trained = train_network(flow, name, settings, sources.encoded, data, initial, tables, verifier, texts)
    inputs = system.SystemInputs(trained, sources.encoded.vocabulary, tables=tables, companions=companions)
    built = bundle_and_tune(flow, name, settings, inputs, data, sources)
    return replace(built, trained=trained, pretrained=pretrained, distilled=distilled)


def pretrain(flow: Flow, name: str, settings: TrainedSystem, encoded: Encoded) -> Trained:
    """Train the network of a system to write masked spans of text. Systems with equal networks and recipes share the training."""
    inputs = train.TrainInputs(_infilled_text(flow, encoded), encoded.validation, encoded.texts.validation, encoded.vocabulary)
    config = stage_configs.pretraining_config(flow.config, settings)
    return flow.steps.add(train.STAGE, f"{name}/{PRETRAINING}", inputs, config)


def _infilled_text(flow: Flow, encoded: Encoded) -> TrainingData:
    settings = flow.config.pretraining
    languages = flow.config.languages
    assert settings is not None
    files = {"": (settings.monolingual, languages.source), "/target": (settings.target_monolingual, languages.target)}
    tokens = []
    for side, (paths, language) in files.items():
        if paths:
            text = read_monolingual_text(flow, f"train/{PRETRAINING}{side}", paths, encoded.texts, language)
            tokens.append(encode_text(flow, f"{PRETRAINING}{side}", text, encoded.vocabulary))
    return tuple(tokens) or (encoded.training,)


def distill_companion(flow: Flow, name: str, settings: TrainedSystem, companion: System, encoded: Encoded) -> dict[str, Distilled]:
    """Translate the training text, and monolingual text of the system `name`, with its companion; by the name of the step.

    The companion decodes with the default search of its family.
    """
    companion_name = settings.companions[settings.data]
    search = cast(LimitedSearch, family_named(flow.config.systems[companion_name].family).search())
    step = f"{companion_name}/{search.label}"
    texts = {step: encoded.texts.training}
    if settings.further_sources:
        corpus_name = f"train/monolingual:{name}"
        texts[f"{step}:{name}"] = read_monolingual_text(flow, corpus_name, settings.further_sources, encoded.texts)
    distilled: dict[str, Distilled] = {}
    for distill_name, text in texts.items():
        output = distill_text(flow, distill_name, text, companion, distill.DistillConfig(search=search))
        tokens = encode_text(flow, distill_name, output, encoded.vocabulary)
        distilled[distill_name] = Distilled(output, tokens)
    return distilled


def _training_data(settings: TrainedSystem, data: dict[str, TrainingData], companion_outputs: dict[str, Distilled]) -> TrainingData:
    if companion_outputs:
        return tuple(part.tokens for part in companion_outputs.values())
    if settings.data != "mixed":
        return data[settings.data]
    return data["raw"] * settings.mixture.raw + data["distilled"] * settings.mixture.distilled


def _initial_weights(
    flow: Flow, name: str, settings: TrainedSystem, others: Mapping[str, Trained | System], sources: Sources
) -> Trained | System | None:
    stated = settings.initial_weights
    if isinstance(stated, FinishedNetwork):
        return pinned_weights(stated.path, f"systems.{name}", settings, flow.store, sources.encoded.vocabulary)
    if stated == "random":
        return None
    return sources.teachers[0] if stated == "teacher" else others[stated]


def bundle_and_tune(
    flow: Flow,
    name: str,
    settings: TrainedSystem | UsedSystem,
    inputs: system.SystemInputs,
    data: TrainingData,
    sources: Sources,
) -> Built:
    """Bundle a system with everything that its searches read, and tune their length penalties and shortlists.

    The result has the default search alone, so that another search, label or length penalty leaves all steps that use the system
    unchanged. The system with all of its searches, if it has others, is a further step, which shares the files of the first.
    """
    searches = settings.search.values()
    if any(search.needs_tables for search in searches):
        inputs = replace(inputs, tables=count_shortlist(flow, name, data[-1], sources.encoded))
    if any(search.needs_ngram for search in searches):
        inputs = replace(inputs, ngram=sources.language_model)
    averaging = None if isinstance(settings, UsedSystem) else settings.averaging
    default = next(iter(searches))
    alone = {default.label: default}
    complete = settings.search == alone and not _tuned_searches(flow.config, settings)
    config = stage_configs.system_config(flow.config, name, alone, settings.family, averaging)
    bundle = flow.steps.add(system.STAGE, name if complete else f"{name}/default", inputs, config)
    tuned = tune_searches(flow, name, settings, bundle, sources.encoded.texts.validation)
    # A step of its own, so that another search or length penalty leaves the steps that use the system unchanged.
    if not complete:
        config = stage_configs.system_config(flow.config, name, settings.search, settings.family, averaging)
        flow.steps.add(system.STAGE, name, replace(inputs, tuned=tuned, alone=bundle), config)
    return Built(bundle, tuned=tuned)


def tune_searches(
    flow: Flow, name: str, settings: TrainedSystem | UsedSystem | FinishedSystem, bundle: System, validation: Text
) -> dict[str, Tuned]:
    """Choose length penalties, if the config lists some to try, and sizes of shortlists on the validation text; by the label of the
    search."""
    inputs = tune.TuneInputs(bundle, validation)
    metric = settings.training.validation_metric if isinstance(settings, TrainedSystem) else ""
    return {
        label: flow.steps.add(tune.STAGE, f"{name}/{label}", inputs, stage_configs.tune_config(flow.config, search, metric))
        for label, search in _tuned_searches(flow.config, settings).items()
    }


def _tuned_searches(config: RunConfig, settings: TrainedSystem | UsedSystem | FinishedSystem) -> dict[str, SearchConfig]:
    return {label: search for label, search in settings.search.items() if config.evaluation.tunes(search)}
