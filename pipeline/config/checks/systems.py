"""Rules between the teacher, the systems and the sections that they depend on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from urllib.parse import urlsplit

from fewstep.config.network import NetworkConfig
from fewstep.config.options import HALF_PRECISIONS
from fewstep.config.problems import KeyPath
from fewstep.config.search import SearchConfig, SystemParts
from fewstep.families.dag.config import DagConfig
from models.stepwise.system import StepwiseTeacher
from models.training.config import TrainingConfig
from models.training.initial import FinishedNetwork
from models.training.recipe import Companion, TrainedSystem
from pipeline.config.checks.rules import Rule, broken, overlap, placed
from pipeline.config.schema import Pinned, RunConfig, network_of, teacher_network
from pipeline.config.systems import (
    PRETRAINING,
    BartTeacher,
    CommandTeacher,
    Distillation,
    ExternalTeacher,
    FinishedSystem,
    ImportedTeacher,
    MarianTeacher,
    OpenAITeacher,
    RayLLMTeacher,
    TeacherVocabulary,
    UsedSystem,
    kind_of,
)
from pipeline.config.texts import DistilledText
from pipeline.urls import masked
from stages.external import LanguageModelOptions, OpenAIOptions, RayLLMOptions
from stages.ngram import NgramConfig
from stages.shared.decoding.searches import missing_engine
from stages.shared.tasks import TASKS
from stages.vocabulary import VocabularyOptions

CUT: KeyPath = ("corpus", "max_source_tokens")
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

MAX_SYSTEMS = 1000
"""The most systems of a run. They have at most `pipeline.plan.step.MAX_STEPS` steps."""


def system_rules(config: RunConfig, pruned: Sequence[KeyPath]) -> Iterator[Rule]:
    """Yield the broken rules on the teacher, distillation and systems."""
    yield from _teacher(config, pruned)
    yield from _distillation(config, pruned)
    if len(config.systems) > MAX_SYSTEMS:
        yield broken(("systems",), f"at most {MAX_SYSTEMS:,} systems", f"{len(config.systems):,}")
        return  # rules compare systems with each other
    for name, system in config.systems.items():
        path: KeyPath = ("systems", name)
        if name == "teacher":
            yield broken(path, "a name other than 'teacher', whose steps are those of the teacher itself", repr(name))
        if name == PRETRAINING:
            yield broken(path, f"a name other than {name!r}, which stands for no system in initial_weights", repr(name))
        if isinstance(system, UsedSystem):
            yield from _use(path, system, config)
        elif isinstance(system, TrainedSystem):
            yield from _trained(path, system, config, pruned)
        yield from _searches(path, config, pruned)
    yield from _unread_texts(config)


def _unread_texts(config: RunConfig) -> Iterator[Rule]:
    """Yield the texts of `corpus.texts` that nothing reads."""
    trained = [system for system in config.systems.values() if isinstance(system, TrainedSystem)]
    trainings = [config.teacher.training] if isinstance(config.teacher, StepwiseTeacher) else []
    trainings += [system.training for system in trained]
    named = {name for training in trainings for stage in training.curriculum for name in stage.mix}
    for name in config.corpus.texts.keys() - named:
        yield broken(("corpus", "texts", name), "a text that a curriculum names (training.curriculum)", "none that does")


def _teacher(config: RunConfig, pruned: Sequence[KeyPath]) -> Iterator[Rule]:
    teacher = config.teacher
    yield from _foreign_teacher(config)
    if not isinstance(teacher, StepwiseTeacher):
        return
    if not _is_wrong(("teacher",), pruned):
        yield from placed(("teacher",), teacher.problems())
    yield from _curriculum(("teacher",), teacher.training, config, distilled=False)
    yield from _lengths(("teacher",), teacher.network, teacher.training, config)
    yield from _metric(("teacher", "training"), teacher.training, TASKS[config.task].metric, config.task)


def _foreign_teacher(config: RunConfig) -> Iterator[Rule]:
    teacher = config.teacher
    settings = config.distillation
    if config.languages.target_token and not isinstance(teacher, MarianTeacher):
        yield broken(
            ("languages", "target_token"),
            "none unless the teacher is imported (teacher: {marian: DIRECTORY})",
            repr(config.languages.target_token),
        )
    if isinstance(config.vocabulary, TeacherVocabulary):
        if not isinstance(teacher, ImportedTeacher):
            expected = "an imported teacher in the config (teacher: {marian: DIRECTORY}, {bart: DIRECTORY} or {fairseq: FILE})"
            yield broken(("vocabulary", "use"), expected, "none", ("teacher",))
        elif config.languages.target_token:
            yield broken(("vocabulary", "use"), "a vocabulary of its own with languages.target_token", "'teacher'")
    if isinstance(teacher, CommandTeacher):
        for number, name in enumerate(names := [file.name for file in teacher.files]):
            if name in names[:number]:
                expected = "names that differ, since files are linked into one directory by name"
                yield broken(("teacher", "files", number), expected, f"{name!r} again")
    if isinstance(teacher, ExternalTeacher) and isinstance(settings, Distillation):
        if isinstance(teacher, OpenAITeacher):
            yield from _language_model("openai", teacher.openai, settings)
            yield from _server(teacher.openai)
            return
        if isinstance(teacher, RayLLMTeacher):
            yield from _language_model("ray_llm", teacher.ray_llm, settings)
            yield from _engines(teacher.ray_llm, config)
            return
        if settings.n_best > 1:
            key = f"teacher.{kind_of(teacher)}"
            yield broken(("distillation", "n_best"), f"1 with {key}, which writes one output", settings.n_best, ("teacher",))
        if settings.choose not in ("score", "quality"):
            key = f"teacher.{kind_of(teacher)}"
            yield broken(("distillation", "choose"), f"score or quality with {key}", settings.choose, ("teacher",))


def _language_model(key: str, options: LanguageModelOptions, settings: Distillation) -> Iterator[Rule]:
    path: KeyPath = ("teacher", key)
    if options.prompt.count("{text}") != 1:
        yield broken((*path, "prompt"), "{text} once, where the source stands", f"{options.prompt.count('{text}')} times")
    if settings.n_best > 1 and options.temperature == 0:
        yield broken((*path, "temperature"), "above 0 with distillation.n_best above 1, since equal answers are no choice", 0)


def _server(options: OpenAIOptions) -> Iterator[Rule]:
    path: KeyPath = ("teacher", "openai")
    try:
        url = urlsplit(options.url)
    except ValueError:
        url = urlsplit("")
    if url.scheme not in ("http", "https") or not url.netloc or url.query or url.fragment:
        yield broken((*path, "url"), "an http or https address such as http://localhost:8000/v1", masked(options.url))
    elif "@" in url.netloc:
        yield broken((*path, "url"), "an address without a user and a password (see key_variable)", masked(options.url))
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*|", options.key_variable):
        yield broken((*path, "key_variable"), "the name of an environment variable, not the key itself", "other characters")
    if options.max_cost is not None and not (options.input_price or options.output_price):
        yield broken((*path, "max_cost"), "prices (input_price, output_price) to count with", "none")


OWN_ARGUMENTS = {
    "model": "teacher.ray_llm.model",
    "tensor_parallel_size": "cluster.resources.external.gpus, the GPUs of an engine",
    "trust_remote_code": "a model without code of its own, which would run on the workers",
}
"""Arguments of vLLM's engine that the config does not take, and what it expects instead."""


def _engines(options: RayLLMOptions, config: RunConfig) -> Iterator[Rule]:
    for argument in OWN_ARGUMENTS.keys() & options.engine.keys():
        yield broken(("teacher", "ray_llm", "engine", argument), OWN_ARGUMENTS[argument], "this argument")
    resources = config.cluster.resources.get("external")
    gpus = resources.gpus if resources else 0
    if gpus < 1 or gpus % 1:
        place: KeyPath = ("cluster", "resources", "external", "gpus")
        yield broken(place, "the whole GPUs of each engine of teacher.ray_llm, at least 1", gpus, ("teacher",))
    stages = options.engine.get("pipeline_parallel_size", 1)
    if type(stages) is not int or stages < 1 or gpus % stages:
        expected = f"a number that divides the {gpus:g} GPUs of an engine"
        yield broken(("teacher", "ray_llm", "engine", "pipeline_parallel_size"), expected, stages)
    if config.cluster.node_store:
        yield broken(("cluster", "node_store"), "machines that share the store, with teacher.ray_llm", "a store of each machine")


def _distillation(config: RunConfig, pruned: Sequence[KeyPath]) -> Iterator[Rule]:
    settings = config.distillation
    path = ("distillation",)
    if isinstance(settings, Pinned | DistilledText) or _is_wrong(path, pruned):
        return
    yield from _judge(path, settings)
    if settings.choose != "score" and settings.n_best == 1 and settings.min_quality is None:
        other = ", or min_quality" if settings.choose == "quality" else ""
        yield broken((*path, "n_best"), f"at least 2, to choose from, with choose: {settings.choose}{other}", settings.n_best)
    if isinstance(config.teacher, OpenAITeacher | RayLLMTeacher):
        return  # it has no search of fewstep
    parts = SystemParts(ngram=False, tables=False, networks=_teachers(config))
    network = None if _is_wrong(("teacher",), pruned) else teacher_network(config)
    yield from _search(path, settings.search, network, parts)
    if not isinstance(config.teacher, ExternalTeacher):
        yield from _gpu(path, settings.search, config, ("distill",))


def _judge(path: KeyPath, settings: Distillation) -> Iterator[Rule]:
    """Yield the problems of the COMET model that chooses."""
    if settings.choose == "quality" and settings.comet is None:
        yield broken((*path, "comet"), "a COMET model for quality estimation, with choose: quality", "none")
    if settings.comet is not None and settings.choose not in ("mbr", "quality"):
        yield broken((*path, "choose"), "mbr or quality with comet, a model that chooses", settings.choose)
    if settings.min_quality is not None and settings.choose != "quality":
        yield broken((*path, "choose"), "quality with min_quality", settings.choose)


def _use(path: KeyPath, system: UsedSystem, config: RunConfig) -> Iterator[Rule]:
    if config.teacher is None:
        yield broken((*path, "use"), "a teacher in the config", "none", ("teacher",))
    elif isinstance(config.teacher, ExternalTeacher):
        got = {
            "command": "a command",
            "ctranslate2": "a model of CTranslate2",
            "transformers": "a model of transformers",
            "openai": "a language model behind a server",
            "ray_llm": "a language model",
        }[kind_of(config.teacher)]
        yield broken((*path, "use"), f"a teacher with a network, not {got}", got, ("teacher",))
    elif system.use == "ensemble" and _teachers(config) == 1:
        yield broken((*path, "use"), "teacher, or teacher.ensemble of at least 2", "'ensemble'", ("teacher",))


def _trained(path: KeyPath, system: TrainedSystem, config: RunConfig, pruned: Sequence[KeyPath]) -> Iterator[Rule]:
    if not _is_wrong(path, pruned, but="search"):
        yield from placed(path, system.problems())
        yield from _companions(path, system, config, pruned)
    yield from _lengths(path, system.network, system.training, config)
    metric = system.training_presets.get("validation_metric", TASKS[config.task].metric)
    yield from _metric((*path, "training"), system.training, metric, config.task)
    yield from _initial_weights(path, system, config)
    yield from _curriculum(path, system.training, config, distilled=_distils(config))
    if system.training.curriculum and system.data not in ("raw", "distilled"):
        expected = "raw or distilled, which shortlists are counted from, with a curriculum"
        yield broken((*path, "data"), expected, repr(system.data), (*path, "training", "curriculum"))
    if system.data in ("distilled", "mixed") and not _distils(config):
        expected = f"a teacher (or distillation: {{from: DIRECTORY}}) for {system.data!r}"
        yield broken((*path, "data"), expected, "none", ("teacher",), ("distillation",))
    elif system.table_text == "distilled" and not _distils(config):
        expected = "raw without a teacher (or distillation: {from: DIRECTORY})"
        yield broken((*path, "tables"), expected, "distilled", ("teacher",), ("distillation",))


def _curriculum(path: KeyPath, training: TrainingConfig, config: RunConfig, *, distilled: bool) -> Iterator[Rule]:
    """Yield the names of texts in a curriculum that there are not."""
    known = ["raw", *config.corpus.texts]
    known += ["back_translation"] if config.corpus.back_translation else []
    known += ["distilled"] if distilled else []
    for number, stage in enumerate(training.curriculum):
        for name in stage.mix:
            if name not in known:
                place = (*path, "training", "curriculum", number, "mix", name)
                yield broken(place, f"one of {', '.join(known)}", "another name", ("corpus",))


def _companions(path: KeyPath, system: TrainedSystem, config: RunConfig, pruned: Sequence[KeyPath]) -> Iterator[Rule]:
    others = [name for name, other in config.systems.items() if not other.companions]
    found: dict[str, Companion] = {}
    for role, name in system.companions.items():
        if name in others:
            if not _is_wrong(("systems", name), pruned) and not _is_wrong(("teacher",), pruned):
                found[role] = _companion(config, name)
            yield from _vocabulary_of_companion(name, config)
            continue
        key = next(key for key, value in vars(system).items() if value == name and key.startswith(role))
        expected = f"one of {', '.join(others)}" if others else "a system that needs no other system"
        yield broken((*path, key), expected, repr(name), ("systems",), valid=others)
    yield from placed(path, system.companion_problems(found))


def _vocabulary_of_companion(name: str, config: RunConfig) -> Iterator[Rule]:
    """Yield a rule for an imported network, or a finished system, that works with a system of another vocabulary."""
    system = config.systems[name]
    if isinstance(system, FinishedSystem) and not isinstance(config.vocabulary, Pinned):
        yield broken(("vocabulary",), f"that of {name!r} ({{from: {system.path}}}), which works with a system", "another one")
    used = isinstance(system, UsedSystem) and isinstance(config.teacher, ImportedTeacher)
    if used and not isinstance(config.vocabulary, TeacherVocabulary | Pinned):
        expected = f"teacher, for a system that works with {name!r}, an imported network"
        yield broken(("vocabulary", "use"), expected, "none", ("teacher",))


def _companion(config: RunConfig, name: str) -> Companion:
    return Companion(name, config.systems[name].family, network_of(config, name), _networks(config, name))


def _initial_weights(path: KeyPath, system: TrainedSystem, config: RunConfig) -> Iterator[Rule]:
    if system.initial_weights == "teacher" and config.teacher is None:
        yield broken((*path, "initial_weights"), "a teacher in the config", "none", ("teacher",))
    if system.initial_weights == "teacher" and isinstance(config.teacher, ExternalTeacher):
        expected = f"random with {'teacher.' + kind_of(config.teacher)}, whose weights cannot be read"
        yield broken((*path, "initial_weights"), expected, "'teacher'", ("teacher",))
    if system.initial_weights == PRETRAINING:
        yield from _pretraining(path, system, config)
    if isinstance(system.initial_weights, FinishedNetwork):
        if not isinstance(config.vocabulary, Pinned | TeacherVocabulary):
            expected = "the vocabulary of the network that training starts from ({from: DIRECTORY}, or {use: teacher})"
            yield broken(("vocabulary",), expected, "another one", (*path, "initial_weights"))
        return
    if system.initial_weights in ("random", "teacher", PRETRAINING, *system.companions):
        return
    before = takewhile(lambda item: item[0] != path[1], config.systems.items())
    trained = [name for name, other in before if isinstance(other, TrainedSystem) and not other.companions]
    if system.initial_weights not in trained:
        names = ", ".join(["random", "teacher", PRETRAINING, *trained])
        expected = f"one of {names} (systems are listed after those that they start from)"
        yield broken((*path, "initial_weights"), expected, repr(system.initial_weights))


def _pretraining(path: KeyPath, system: TrainedSystem, config: RunConfig) -> Iterator[Rule]:
    section: KeyPath = (PRETRAINING,)
    if config.pretraining is None:
        yield broken((*path, "initial_weights"), f"the section `{PRETRAINING}` in the config", "none", section)
        return
    if isinstance(config.vocabulary, VocabularyOptions) and not config.vocabulary.joint:
        yield broken(("vocabulary", "joint"), "true with pretraining, whose targets are tokens of sources", False, section)
    yield from placed(section, config.pretraining.recipe(system.training).problems())
    if config.pretraining.target == "segments":
        yield from _segments(path, system)


def _segments(path: KeyPath, system: TrainedSystem) -> Iterator[Rule]:
    target: KeyPath = (PRETRAINING, "target")
    if not isinstance(system.network, DagConfig):
        expected = f"spans or text with {path[1]}, which is of family {system.family} and has no graphs"
        yield broken(target, expected, "'segments'", (*path, "family"))
    elif system.network.objective == "ngram":
        yield broken((*path, "objective"), "sum or max with pretraining.target segments", "'ngram'", target)


def _searches(path: KeyPath, config: RunConfig, pruned: Sequence[KeyPath]) -> Iterator[Rule]:
    name = str(path[1])
    system = config.systems[name]
    wrong = _is_wrong(path, pruned, but="search") or (isinstance(system, UsedSystem) and _is_wrong(("teacher",), pruned))
    network = None if wrong else network_of(config, name)
    # The plan reads the parts of a finished system.
    parts = SystemParts() if isinstance(system, FinishedSystem) else _parts(config, name, pruned)
    yield from _labels((*path, "search"), system.search)
    for label, search in system.search.items():
        place = (*path, "search", label)
        if _is_wrong(place, pruned):
            continue
        yield from _search(place, search, network, parts)
        tuned = ("tune",) if config.evaluation.tunes(search) else ()
        yield from _gpu(place, search, config, ("decode", *tuned, *(("benchmark",) if config.benchmark.enabled else ())))
        model = None if isinstance(system, FinishedSystem) else config.ngram
        if search.needs_ngram and isinstance(model, NgramConfig) and (model.unit, model.side) != ("pieces", "target"):
            got = f"{model.unit} of the {model.side}"
            yield broken(("ngram",), "an n-gram model of pieces of the target for searches", got, place)


def _parts(config: RunConfig, name: str, pruned: Sequence[KeyPath]) -> SystemParts:
    system = config.systems[name]
    return SystemParts(
        ngram=None if _is_wrong(("ngram",), pruned) else config.ngram is not None,
        tables=isinstance(system, TrainedSystem) or not isinstance(config.teacher, MarianTeacher | BartTeacher),
        drafter="drafter" in system.companions,
        rescorer="rescorer" in system.companions,
        networks=_networks(config, name),
    )


def _search(path: KeyPath, search: SearchConfig, network: NetworkConfig | None, parts: SystemParts) -> Iterator[Rule]:
    yield from placed(path, search.problems(network, parts))
    if missing := missing_engine(search):
        yield broken((*path, "engine"), missing, "none installed")


def _gpu(path: KeyPath, search: SearchConfig, config: RunConfig, stages: Sequence[str]) -> Iterator[Rule]:
    """Yield a rule for half precision in torch, which is for GPUs, where one of the stages that run the search has none."""
    half = {key: value for key, value in search.precisions.items() if value in HALF_PRECISIONS}
    for stage in stages if half and search.workload.engine == "torch" else ():
        resources = config.cluster.resources.get(stage)
        if resources is None or not resources.gpus:
            place: KeyPath = ("cluster", "resources", stage, "gpus")
            for key, precision in half.items():
                yield broken((*path, key), f"float32 with engine torch and no GPU for {stage}", precision, place)


def _labels(path: KeyPath, searches: Mapping[str, SearchConfig]) -> Iterator[Rule]:
    seen: dict[SearchConfig, str] = {}
    for label, search in searches.items():
        if search in seen:
            yield broken((*path, label), "searches that differ", f"{seen[search]!r} again")
        elif not LABEL.fullmatch(label):
            yield broken((*path, label), "a label of letters, digits, _, . and -, which begins with a letter or digit", repr(label))
        elif (derived := type(search).parse(label)) is not None and derived != search:
            yield broken((*path, label), "a label that does not stand for another search", repr(label))
        seen.setdefault(search, label)


def _lengths(path: KeyPath, network: NetworkConfig, training: TrainingConfig, config: RunConfig) -> Iterator[Rule]:
    cut = config.corpus.max_source_tokens
    if cut is None:
        return
    if network.max_positions <= cut:
        yield broken((*path, "max_positions"), f"more than max_source_tokens ({cut})", network.max_positions, CUT)
    for key, least in (("max_tokens", cut), ("batch_tokens", cut + 1)):
        if (value := getattr(training, key)) < least:
            expected = f"at least {least}, for sources cut to max_source_tokens ({cut})"
            yield broken((*path, "training", key), expected, value, CUT)


def _metric(path: KeyPath, training: TrainingConfig, metric: str, task: str) -> Iterator[Rule]:
    """Allow the loss and the metric of decoded validation outputs."""
    wanted = training.validation_metric
    allowed = ("loss", metric, "tokenized_bleu") if metric == "bleu" else ("loss", metric)
    if wanted not in allowed:
        reason = "for a drafter" if metric == "tokens_per_pass" else f"with task {task}"
        yield broken((*path, "validation_metric"), f"loss or {metric} {reason}", repr(wanted), ("task",))


def _networks(config: RunConfig, name: str) -> int:
    """Return the number of networks of a system; at least 2 for an ensemble, whose size may be a problem of its own."""
    system = config.systems[name]
    return max(2, _teachers(config)) if isinstance(system, UsedSystem) and system.use == "ensemble" else 1


def _teachers(config: RunConfig) -> int:
    """Return the number of networks of the teacher."""
    return config.teacher.ensemble if isinstance(config.teacher, StepwiseTeacher) else 1


def _distils(config: RunConfig) -> bool:
    """Return whether the config provides distilled targets."""
    return config.teacher is not None or isinstance(config.distillation, Pinned | DistilledText)


def _is_wrong(path: KeyPath, pruned: Sequence[KeyPath], but: str = "") -> bool:
    """Return whether a value at `path` or below it was invalid, except below the key `but`."""
    return any(overlap(path, wrong) and wrong[len(path) : len(path) + 1] != (but,) for wrong in pruned)
