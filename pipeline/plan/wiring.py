"""The flow of the pipeline, from raw text to the report.

`build_plan` is the whole of it and can be read from top to bottom beside the picture in the README. Every other function plans one
or a few steps: it takes artifacts and returns the artifacts that the steps will leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from fewstep.config.search import LimitedSearch, SearchConfig
from fewstep.system.format import VERIFIER
from models.family import family_named
from models.stepwise.system import StepwiseTeacher
from models.training.recipe import TrainedSystem
from pipeline.config.pretraining import PRETRAINING
from pipeline.config.schema import Pinned, RunConfig
from pipeline.config.systems import (
    BartTeacher,
    CommandTeacher,
    Distillation,
    ExternalTeacher,
    FairseqTeacher,
    MarianTeacher,
    TeacherVocabulary,
    UsedSystem,
)
from pipeline.config.texts import DistilledText, TextConfig, VocabularyFiles
from pipeline.plan import stage_configs
from pipeline.plan.analyses import analyse_dags, analyse_lattices, analyse_slots, compare_minimal_pairs, measure_likelihood
from pipeline.plan.counts import align_and_count, count_shortlist, estimate_language_model, texts_of_tables
from pipeline.plan.flow import Built, Distilled, Encoded, Flow, Sources, Teachers, Texts, TrainingData
from pipeline.plan.pins import pinned_distillation, pinned_teacher, pinned_vocabulary
from pipeline.plan.step import Builder, Plan
from pipeline.plan.text_files import (
    ctranslate2_files,
    directory_files,
    fairseq_files,
    local_file,
    monolingual_files,
    piece_files,
    text_files,
)
from pipeline.store.artifacts import Store
from stages import (
    benchmark,
    corpus,
    decode,
    distill,
    encode,
    external,
    import_network,
    report,
    score,
    system,
    train,
    tune,
    vocabulary,
)
from stages.artifacts import (
    Artifact,
    ExternalFile,
    Hypotheses,
    Links,
    Ngram,
    Scores,
    System,
    Tables,
    Text,
    Timings,
    Tokens,
    Trained,
    Tuned,
    Vocabulary,
)


def build_plan(config: RunConfig, store: Store) -> Plan:
    """Return all steps of `config`. Files that it names by URL are downloaded unless the store holds them.

    Raises DataError for a file or pinned artifact that is missing or unsuitable, StageError for a server that cannot be reached.
    """
    flow = Flow(config, store, Builder(store.root))

    texts = read_texts(flow)
    imported = import_teacher(flow)
    vocab = train_vocabulary(flow, texts.training, imported)
    encoded, truncated = encode_texts(flow, texts, vocab)

    teacher_trainings = train_teacher(flow, encoded)
    teachers = (imported,) if imported else teacher_networks(flow, teacher_trainings, vocab)
    distilled = distill_training_text(flow, encoded, teachers)
    data = {"raw": (encoded.training,), "distilled": tuple(part.tokens for part in distilled.values())}

    links, tables = align_and_count(flow, encoded, data)
    language_model = estimate_language_model(flow, encoded)
    systems = build_systems(flow, Sources(encoded, data, teachers, tables, language_model))

    inputs = report.ReportInputs(
        corpus=texts.training,
        tests=texts.tests,
        trainings=teacher_trainings | _trainings(systems),
        evaluated=decode_and_score(flow, texts, systems),
        timings=measure_speed(flow, texts, systems),
        cut=truncated,
        counts=_counted_artifacts(config, distilled, links, tables, language_model, systems),
        likelihoods=measure_likelihood(flow, texts, systems),
        contrasts=compare_minimal_pairs(flow, systems),
        dag_analyses=analyse_dags(flow, texts, systems),
        parallel_analyses=analyse_slots(flow, texts, systems),
        lattice_analyses=analyse_lattices(flow, texts, systems),
        tuned={f"{name}/{search}": tuned for name, built in systems.items() for search, tuned in built.tuned.items()},
        imported=imported,
    )
    flow.steps.add(report.STAGE, "run", inputs, stage_configs.report_config(config))
    return flow.steps.plan()


# Texts and tokens


def read_texts(flow: Flow) -> Texts:
    """Read and clean the corpus. Training pairs with a side that occurs in the validation or a test text are dropped."""
    parts = flow.config.corpus
    validation = _read(flow, "validation", parts.validation)
    tests = {name: _read(flow, name, text) for name, text in parts.test.items()}
    inputs = corpus.CorpusInputs(text_files(parts.train, flow.access), (validation, *tests.values()))
    config = stage_configs.corpus_config(flow.config, "train", parts.train, parts.filters)
    return Texts(flow.steps.add(corpus.STAGE, "train", inputs, config), validation, tests)


def _read(flow: Flow, name: str, text: TextConfig) -> Text:
    inputs = corpus.CorpusInputs(text_files(text, flow.access))
    return flow.steps.add(corpus.STAGE, name, inputs, stage_configs.corpus_config(flow.config, name, text))


def read_monolingual_text(flow: Flow, name: str, paths: Sequence[Path], texts: Texts, language: str | None = None) -> Text:
    """Read and clean text in one language (None: that of the source), which becomes both sides of its pairs."""
    inputs = corpus.CorpusInputs(monolingual_files(paths, flow.store), texts.held_out)
    config = stage_configs.monolingual_config(flow.config, language or flow.config.languages.source)
    return flow.steps.add(corpus.STAGE, name, inputs, config)


def read_distilled_text(flow: Flow, text: DistilledText, texts: Texts) -> Text:
    """Read and clean text that was distilled elsewhere."""
    inputs = corpus.CorpusInputs(text_files(text, flow.access), texts.held_out)
    return flow.steps.add(corpus.STAGE, "train/distilled", inputs, stage_configs.distilled_text_config(flow.config))


def import_teacher(flow: Flow) -> System | None:
    """Import the teacher, if the config names a network of another program."""
    teacher, languages = flow.config.teacher, flow.config.languages
    kind: Literal["marian", "bart", "fairseq"]
    if isinstance(teacher, MarianTeacher):
        kind, path, files = "marian", teacher.marian, directory_files("marian", teacher.marian, flow.store)
    elif isinstance(teacher, BartTeacher):
        kind, path, files = "bart", teacher.bart, directory_files("bart", teacher.bart, flow.store)
    elif isinstance(teacher, FairseqTeacher):
        kind, path, files = "fairseq", teacher.fairseq, fairseq_files(teacher, flow.store)
    else:
        return None
    config = import_network.ImportConfig(
        kind=kind,
        name=path.name,
        source_language=languages.source,
        target_language=languages.target,
        target_token=languages.target_token,
    )
    return flow.steps.add(import_network.STAGE, "teacher", import_network.ImportInputs(files), config)


def train_vocabulary(flow: Flow, text: Text, imported: System | None) -> Vocabulary:
    """Train the subword vocabulary, unless the config pins one, names files of one, or uses that of the imported teacher."""
    config = flow.config.vocabulary
    if isinstance(config, TeacherVocabulary):
        assert imported is not None
        return Vocabulary(imported.path, imported.fingerprint)
    if isinstance(config, Pinned):
        return pinned_vocabulary(config, flow.store)
    if isinstance(config, VocabularyFiles):
        files = piece_files(config, flow.access)
        inputs = vocabulary.VocabularyInputs(files=files)
        return flow.steps.add(vocabulary.STAGE, "imported", inputs, vocabulary.VocabularyConfig())
    inputs = vocabulary.VocabularyInputs(text)
    return flow.steps.add(vocabulary.STAGE, "joint" if config.joint else "separate", inputs, config)


def encode_texts(flow: Flow, texts: Texts, vocab: Vocabulary) -> tuple[Encoded, dict[str, Tokens]]:
    """Encode the training and validation texts. Also return the texts whose truncated sources the report counts, by name."""
    training = _encode(flow, "raw", texts.training, vocab)
    truncated: dict[str, Tokens] = {}
    if flow.config.corpus.max_source_tokens is not None:
        tests = {name: _encode(flow, f"raw:{name}", text, vocab) for name, text in texts.tests.items()}
        truncated = {"train": training, **tests}
    return Encoded(texts, vocab, training, _encode(flow, "validation", texts.validation, vocab)), truncated


def _encode(flow: Flow, name: str, text: Text, vocab: Vocabulary) -> Tokens:
    config = encode.EncodeConfig(max_source_tokens=flow.config.corpus.max_source_tokens)
    return flow.steps.add(encode.STAGE, name, encode.EncodeInputs(text, vocab), config)


# The teacher and its translations


def train_teacher(flow: Flow, encoded: Encoded) -> dict[str, Trained]:
    """Train the networks of the teacher's ensemble; by name, which no system can have. Empty for a pinned or absent teacher."""
    config = flow.config.teacher
    if not isinstance(config, StepwiseTeacher):
        return {}
    names = ["teacher", *(f"teacher/{number}" for number in range(2, config.ensemble + 1))]
    return {
        name: _train(flow, name, replace(config, training=recipe), encoded, (encoded.training,))
        for name, recipe in zip(names, config.recipes(), strict=True)
    }


def teacher_networks(flow: Flow, trainings: dict[str, Trained], vocab: Vocabulary) -> Teachers:
    """Return the teacher's networks, trained or pinned."""
    config = flow.config.teacher
    return (pinned_teacher(config, flow.store, vocab),) if isinstance(config, Pinned) else tuple(trainings.values())


def distill_training_text(flow: Flow, encoded: Encoded, teachers: Teachers) -> dict[str, Distilled]:
    """Translate the training text, and monolingual text if there is some, with the teacher; by the name of the step.

    Empty if no system is trained on, and no table counted from, the teacher's translations.
    """
    if not _uses_distilled_text(flow.config):
        return {}
    names = {"train": "distilled", "monolingual": "distilled:monolingual"}
    texts = _distilled_texts(flow, encoded, teachers)
    return {step: Distilled(text, _encode(flow, names[step], text, encoded.vocabulary)) for step, text in texts.items()}


def _uses_distilled_text(config: RunConfig) -> bool:
    data = {settings.data for settings in config.systems.values() if isinstance(settings, TrainedSystem)}
    return not data.isdisjoint({"distilled", "mixed"}) or "distilled" in texts_of_tables(config)


def _distilled_texts(flow: Flow, encoded: Encoded, teachers: Teachers) -> dict[str, Text]:
    config, training = flow.config.distillation, encoded.texts.training
    if isinstance(config, Pinned):
        return {"train": pinned_distillation(config, flow.store, training)}
    if isinstance(config, DistilledText):
        return {"train": read_distilled_text(flow, config, encoded.texts)}
    if isinstance(flow.config.teacher, ExternalTeacher):
        return _externally_distilled_texts(flow, config, flow.config.teacher, encoded.texts)
    teacher = teachers[0]
    if isinstance(teacher, Trained):
        bundled = system.SystemInputs(teacher, encoded.vocabulary, members=_other_members(teachers))
        described = stage_configs.system_config(flow.config, "teacher", {config.search.label: config.search})
        teacher = flow.steps.add(system.STAGE, "teacher", bundled, described)
    with_references = stage_configs.distill_with_references_config(flow.config, config)
    texts = {"train": _distill(flow, "train", training, teacher, with_references)}
    if config.monolingual:
        monolingual = read_monolingual_text(flow, "train/monolingual", config.monolingual, encoded.texts)
        texts["monolingual"] = _distill(flow, "monolingual", monolingual, teacher, stage_configs.distill_config(config))
    return texts


def _externally_distilled_texts(flow: Flow, config: Distillation, teacher: ExternalTeacher, texts: Texts) -> dict[str, Text]:
    sources = {"train": texts.training}
    if config.monolingual:
        sources["monolingual"] = read_monolingual_text(flow, "train/monolingual", config.monolingual, texts)
    settings = stage_configs.external_config(teacher)
    files = tuple(local_file(path, flow.store) for path in teacher.files) if isinstance(teacher, CommandTeacher) else ()
    model = {} if isinstance(teacher, CommandTeacher) else ctranslate2_files(teacher, flow.store)
    inputs = {name: external.ExternalInputs(text, files, model) for name, text in sources.items()}
    return {name: flow.steps.add(external.STAGE, name, found, settings) for name, found in inputs.items()}


def _distill(flow: Flow, name: str, text: Text, teacher: System, config: distill.DistillConfig) -> Text:
    return flow.steps.add(distill.STAGE, name, distill.DistillInputs(text, teacher), config)


def _other_members(networks: Teachers) -> tuple[Trained, ...]:
    return tuple(network for network in networks[1:] if isinstance(network, Trained))


# Systems


def build_systems(flow: Flow, sources: Sources) -> dict[str, Built]:
    """Train, bundle and tune the systems of the config; by name. Systems that work with companions are planned after these."""
    built: dict[str, Built] = {}
    for name, settings in sorted(flow.config.systems.items(), key=lambda item: bool(item[1].companions)):
        if isinstance(settings, UsedSystem):
            built[name] = use_teacher(flow, name, settings, sources)
        else:
            built[name] = train_system(flow, name, settings, sources, built)
    return {name: built[name] for name in flow.config.systems}


def use_teacher(flow: Flow, name: str, settings: UsedSystem, sources: Sources) -> Built:
    """Bundle the teacher, alone or with its ensemble, as the system `name`. A pinned system is a bundle already."""
    networks = sources.teachers if settings.use == "ensemble" else sources.teachers[:1]
    first = networks[0]
    if isinstance(first, System):
        return Built(first, tuned=tune_searches(flow, name, settings, first, sources.encoded.texts.validation))
    inputs = system.SystemInputs(first, sources.encoded.vocabulary, members=_other_members(networks))
    return bundle_and_tune(flow, name, settings, inputs, sources.data["raw"], sources)


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
    initial = pretrained or _initial_weights(settings, weights, sources.teachers)
    drafts = settings.training.validation_metric == "tokens_per_pass"
    verifier = companions[VERIFIER] if drafts else None
    trained = _train(flow, name, settings, sources.encoded, data, initial, tables, verifier)
    inputs = system.SystemInputs(trained, sources.encoded.vocabulary, tables=tables, companions=companions)
    built = bundle_and_tune(flow, name, settings, inputs, data, sources)
    return replace(built, trained=trained, pretrained=pretrained, distilled=distilled)


def pretrain(flow: Flow, name: str, settings: TrainedSystem, encoded: Encoded) -> Trained:
    """Train the network of a system to write masked spans of text. Systems with equal networks and recipes share the training."""
    inputs = train.TrainInputs(_infilled_text(flow, encoded), encoded.validation, encoded.texts.validation, encoded.vocabulary)
    config = stage_configs.pretraining_config(flow.config, settings)
    return flow.steps.add(train.STAGE, f"{name}/{PRETRAINING}", inputs, config)


def _infilled_text(flow: Flow, encoded: Encoded) -> TrainingData:
    settings, languages = flow.config.pretraining, flow.config.languages
    assert settings is not None
    files = {"": (settings.monolingual, languages.source), "/target": (settings.target_monolingual, languages.target)}
    tokens = []
    for side, (paths, language) in files.items():
        if paths:
            text = read_monolingual_text(flow, f"train/{PRETRAINING}{side}", paths, encoded.texts, language)
            tokens.append(_encode(flow, f"{PRETRAINING}{side}", text, encoded.vocabulary))
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
        output = _distill(flow, distill_name, text, companion, distill.DistillConfig(search=search))
        distilled[distill_name] = Distilled(output, _encode(flow, distill_name, output, encoded.vocabulary))
    return distilled


def _train(
    flow: Flow,
    name: str,
    settings: StepwiseTeacher | TrainedSystem,
    encoded: Encoded,
    data: TrainingData,
    initial: Trained | System | None = None,
    tables: Tables | None = None,
    verifier: System | None = None,
) -> Trained:
    inputs = train.TrainInputs(data, encoded.validation, encoded.texts.validation, encoded.vocabulary, initial, tables, verifier)
    return flow.steps.add(train.STAGE, name, inputs, stage_configs.train_config(flow.config, settings))


def _training_data(settings: TrainedSystem, data: dict[str, TrainingData], companion_outputs: dict[str, Distilled]) -> TrainingData:
    if companion_outputs:
        return tuple(part.tokens for part in companion_outputs.values())
    if settings.data != "mixed":
        return data[settings.data]
    return data["raw"] * settings.mixture.raw + data["distilled"] * settings.mixture.distilled


def _initial_weights(
    settings: TrainedSystem, others: Mapping[str, Trained | System], teachers: Teachers
) -> Trained | System | None:
    if settings.initial_weights == "random":
        return None
    return teachers[0] if settings.initial_weights == "teacher" else others[settings.initial_weights]


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
    if not complete:
        config = stage_configs.system_config(flow.config, name, settings.search, settings.family, averaging)
        flow.steps.add(system.STAGE, name, replace(inputs, tuned=tuned, alone=bundle), config)
    return Built(bundle, tuned=tuned)


def tune_searches(
    flow: Flow, name: str, settings: TrainedSystem | UsedSystem, bundle: System, validation: Text
) -> dict[str, Tuned]:
    """Choose length penalties, if the config lists some to try, and sizes of shortlists on the validation text; by the label of the
    search."""
    inputs = tune.TuneInputs(bundle, validation)
    return {
        label: flow.steps.add(tune.STAGE, f"{name}/{label}", inputs, stage_configs.tune_config(flow.config, search))
        for label, search in _tuned_searches(flow.config, settings).items()
    }


def _tuned_searches(config: RunConfig, settings: TrainedSystem | UsedSystem) -> dict[str, SearchConfig]:
    penalties = config.evaluation.length_penalties
    return {
        label: search
        for label, search in settings.search.items()
        if search.unmeasured_shortlist or (penalties and search.penalises_length)
    }


# Evaluation


def decode_and_score(flow: Flow, texts: Texts, systems: dict[str, Built]) -> tuple[report.Evaluated, ...]:
    """Decode each test set with each system and search, and score the hypotheses."""
    checkpoint = flow.config.evaluation.comet
    comet = None if checkpoint is None else local_file(checkpoint, flow.store)
    return tuple(
        report.Evaluated(
            name, label, test, *_decode_and_score(flow, f"{name}/{label}:{test}", systems[name], label, search, text, comet)
        )
        for test, text in texts.tests.items()
        for name, settings in flow.config.systems.items()
        for label, search in settings.search.items()
    )


def _decode_and_score(
    flow: Flow, step: str, built: Built, label: str, search: SearchConfig, text: Text, comet: ExternalFile | None
) -> tuple[Hypotheses, Scores]:
    decoding = decode.DecodeConfig(search=search, batch_tokens=flow.config.evaluation.batch_tokens)
    inputs = decode.DecodeInputs(built.system, text, built.tuned.get(label))
    hypotheses = flow.steps.add(decode.STAGE, step, inputs, decoding)
    scoring = stage_configs.score_config(flow.config, search)
    return hypotheses, flow.steps.add(score.STAGE, step, score.ScoreInputs(hypotheses, text, comet), scoring)


def measure_speed(flow: Flow, texts: Texts, systems: dict[str, Built]) -> dict[str, Timings]:
    """Time all systems together on one test set, unless the config disables it; by test set."""
    test = flow.config.benchmark.test
    if not flow.config.benchmark.enabled:
        return {}
    measured = {
        f"{name}/{label}": tuned
        for name, built in systems.items()
        if name not in stage_configs.further_seeds(flow.config)
        for label, tuned in built.tuned.items()
        if flow.config.systems[name].search[label].unmeasured_shortlist
    }
    others = stage_configs.further_seeds(flow.config)
    timed = {name: built.system for name, built in systems.items() if name not in others}
    inputs = benchmark.BenchmarkInputs(timed, texts.tests[test], measured)
    return {test: flow.steps.add(benchmark.STAGE, f"all:{test}", inputs, stage_configs.benchmark_config(flow.config))}


def _trainings(systems: dict[str, Built]) -> dict[str, Trained]:
    """Return the trainings of systems, each after its pre-training, by name."""
    found: dict[str, Trained] = {}
    for name, built in systems.items():
        if built.pretrained:
            found[f"{name}/{PRETRAINING}"] = built.pretrained
        if built.trained:
            found[name] = built.trained
    return found


def _counted_artifacts(
    config: RunConfig,
    distilled: dict[str, Distilled],
    links: dict[str, Links],
    tables: dict[str, Tables],
    language_model: Ngram | None,
    systems: dict[str, Built],
) -> dict[str, Artifact]:
    """Return all artifacts whose counts the report lists, by step."""
    made = dict(distilled) if isinstance(config.distillation, Distillation) else {}
    made |= {step: part for built in systems.values() for step, part in built.distilled.items()}
    artifacts: dict[str, Artifact] = {f"distill:{step}": part.text for step, part in made.items()}
    for name in links:
        artifacts[f"align:{name}"] = links[name]
        if name in tables:
            artifacts[f"lattice:{name}"] = tables[name]
    if config.ngram is not None and language_model is not None:
        artifacts[f"ngram:{'pinned' if isinstance(config.ngram, Pinned) else config.ngram.side}"] = language_model
    return artifacts
