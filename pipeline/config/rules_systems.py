"""Rules on teachers and systems."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from models.aggressive.config import AggressiveConfig
from models.dag.config import DagConfig
from models.stepwise.config import StepwiseConfig
from pipeline.config.rules import Rule, broken
from pipeline.config.rules_searches import engine, joint_step, language_model, network_of, rules_of_search
from pipeline.config.tree import Path
from stages.score.tasks import TASKS

if TYPE_CHECKING:
    from models.training.config import TrainingConfig
    from pipeline.config.schema import RunConfig
    from pipeline.config.systems import Distillation, TrainedSystem
    from stages.families import Network, Search

CUT: Path = ("corpus", "max_source_tokens")


def teacher(config: RunConfig) -> Iterator[Rule]:
    from pipeline.config.schema import Pinned
    from pipeline.config.systems import UsedSystem

    for name, system in config.systems.items():
        path: Path = ("systems", name)
        if name == "teacher":
            yield broken(path, "a name other than 'teacher', whose steps are those of the teacher itself", repr(name))
        if isinstance(system, UsedSystem):
            if config.teacher is None:
                yield broken((*path, "use"), "a teacher in the config", "none", ("teacher",))
            elif system.use == "ensemble" and (isinstance(config.teacher, Pinned) or config.teacher.ensemble == 1):
                yield broken((*path, "use"), "teacher, or teacher.ensemble of at least 2", "'ensemble'", ("teacher",))
            continue
        if system.data == "mixed" and system.mixture.raw + system.mixture.distilled == 0:
            yield broken((*path, "mixture"), "at least 1 of either data", "none")
        yield from _initial_weights(path, system, config)
        if system.data in ("distilled", "mixed") and config.teacher is None and not isinstance(config.distillation, Pinned):
            expected = f"a teacher (or distillation: {{from: DIRECTORY}}) for {system.data!r}"
            yield broken((*path, "data"), expected, "none", ("teacher",), ("distillation",))
    if not isinstance(config.distillation, Pinned):
        yield from rules_of_search(("distillation",), config.distillation)
        yield from _distillation(config.distillation)
        yield from _no_list(config.distillation)
        members = 1 if config.teacher is None or isinstance(config.teacher, Pinned) else config.teacher.ensemble
        yield from engine(("distillation",), config.distillation, network_of(config.teacher), together=members > 1)
        yield from joint_step(("distillation",), config.distillation, network_of(config.teacher))
    if config.teacher is not None and not isinstance(config.teacher, Pinned):
        yield from _network(("teacher",), config.teacher, config)
        yield from _training(("teacher", "training"), config.teacher.training, config)


def _initial_weights(path: Path, system: TrainedSystem, config: RunConfig) -> Iterator[Rule]:
    from pipeline.config.systems import AggressiveSystem, UsedSystem

    if system.initial_weights == "teacher" and config.teacher is None:
        yield broken((*path, "initial_weights"), "a teacher in the config", "none", ("teacher",))
    if isinstance(system, AggressiveSystem) or system.initial_weights in ("random", "teacher"):
        return
    before = takewhile(lambda item: item[0] != path[1], config.systems.items())
    trained = [name for name, other in before if not isinstance(other, UsedSystem | AggressiveSystem)]
    if system.initial_weights not in trained:
        expected = f"one of {', '.join(['random', 'teacher', *trained])} (systems are named after those that they start from)"
        yield broken((*path, "initial_weights"), expected, repr(system.initial_weights))


def _distillation(settings: Distillation) -> Iterator[Rule]:
    if settings.choose == "reference" and settings.n_best == 1:
        expected = "at least 2, to choose from, with choose: reference"
        yield broken(("distillation", "n_best"), expected, settings.n_best, ("distillation", "choose"))


def _no_list(settings: Distillation) -> Iterator[Rule]:
    if settings.shortlist_words is not None:
        expected = "none: what links words is counted for systems, not for their teacher"
        yield broken(("distillation", "shortlist_words"), expected, settings.shortlist_words)


def systems(config: RunConfig) -> Iterator[Rule]:
    from pipeline.config.systems import UsedSystem

    for name, system in config.systems.items():
        path: Path = ("systems", name)
        if not isinstance(system, UsedSystem):
            yield from _network(path, system, config)
            yield from _training((*path, "training"), system.training, config)
            yield from _average(path, system)
            yield from _tables(path, system, config)
            yield from _sample(path, system)
        searches: tuple[Search, ...] = system.search
        names = [search.name for search in searches]
        for i, search in enumerate(searches):
            yield from rules_of_search((*path, "search", i), search)
            yield from language_model((*path, "search", i), search, config)
            network = network_of(config.teacher if isinstance(system, UsedSystem) else system)
            together = isinstance(system, UsedSystem) and system.use == "ensemble"
            yield from engine((*path, "search", i), search, network, together=together)
            yield from joint_step((*path, "search", i), search, network)
            if search.name in names[:i]:
                yield broken((*path, "search", i), "searches of different names", f"{search.name!r} again")


def _average(path: Path, system: TrainedSystem) -> Iterator[Rule]:
    kept = system.training.average_count
    if system.average_fewer is not None and system.average_fewer >= kept:
        expected = f"fewer than the {kept} candidates that its training keeps"
        yield broken((*path, "average_fewer"), expected, system.average_fewer, (*path, "training", "average_count"))


def _tables(path: Path, system: TrainedSystem, config: RunConfig) -> Iterator[Rule]:
    from pipeline.config.schema import Pinned
    from pipeline.config.systems import LatticeSystem

    if not isinstance(system, LatticeSystem):
        return
    if system.tables == "distilled" and config.teacher is None and not isinstance(config.distillation, Pinned):
        expected = "raw without a teacher (or distillation: {from: DIRECTORY})"
        yield broken((*path, "tables"), expected, "distilled", ("teacher",), ("distillation",))
    for i, search in enumerate(system.search):
        at = (*path, "search", i)
        if search.normalizer == "selfnorm" and not system.normalizer_penalty:
            expected = "full, union or local for a network trained without normalizer_penalty"
            yield broken((*at, "normalizer"), expected, "selfnorm", (*path, "normalizer_penalty"))
        if search.prune is not None and not system.word_dropout:
            expected = "none for a network trained without word_dropout"
            yield broken((*at, "prune"), expected, search.prune, (*path, "word_dropout"))


def _sample(path: Path, system: TrainedSystem) -> Iterator[Rule]:
    if isinstance(system, DagConfig) and system.sampled_words and system.training.label_smoothing:
        expected = "none with label smoothing, which is over all words"
        yield broken((*path, "sampled_words"), expected, system.sampled_words, (*path, "training", "label_smoothing"))


def _network(path: Path, network: Network, config: RunConfig) -> Iterator[Rule]:
    if network.width % network.heads:
        expected = f"a divisor of width {network.width}"
        yield broken((*path, "heads"), expected, network.heads, (*path, "width"), (*path, "size"))
    if (cut := config.corpus.max_source_tokens) is not None and network.max_positions <= cut:
        yield broken((*path, "max_positions"), f"more than max_source_tokens ({cut})", network.max_positions, CUT)
    if isinstance(network, DagConfig):
        yield from _graph(path, network)
    elif isinstance(network, StepwiseConfig):
        yield from _order(path, network)
    elif isinstance(network, AggressiveConfig):
        yield from _block(path, network)


def _order(path: Path, network: StepwiseConfig) -> Iterator[Rule]:
    try:
        network.generation()
    except ValueError as error:
        yield broken((*path, "order"), f"an order that goes together ({error})", network.order)


def _graph(path: Path, network: DagConfig) -> Iterator[Rule]:
    low, high = network.factors
    if not 0 < low <= high:
        yield broken((*path, "graph_factor_range"), "two factors above 0, the lower one first", f"[{low}, {high}]")


def _block(path: Path, network: AggressiveConfig) -> Iterator[Rule]:
    low, high = network.widths
    if not 1 <= low <= high < network.max_positions or network.draft_width >= network.max_positions:
        expected = f"two widths from 1 to less than max_positions ({network.max_positions}), the lower one first"
        yield broken((*path, "draft_width_range"), expected, f"[{low}, {high}]", (*path, "max_positions"), (*path, "draft_width"))


def _training(path: Path, training: TrainingConfig, config: RunConfig) -> Iterator[Rule]:
    if training.schedule == "cosine" and training.warmup_updates >= training.updates:
        expected = f"less than updates ({training.updates}) with the cosine schedule"
        yield broken((*path, "warmup_updates"), expected, training.warmup_updates, (*path, "updates"), (*path, "schedule"))
    metric, wanted = TASKS[config.task].metric, training.validation_metric
    if wanted not in ("loss", metric):
        yield broken((*path, "validation_metric"), f"loss or {metric} with task {config.task}", repr(wanted), ("task",))
    if wanted != "loss" and not training.validation_sentences:
        expected = f"at least 1 with validation_metric {wanted}"
        yield broken((*path, "validation_sentences"), expected, 0, (*path, "validation_metric"))
    if (cut := config.corpus.max_source_tokens) is not None:
        for key, least in (("max_tokens", cut), ("batch_tokens", cut + 1)):
            if getattr(training, key) < least:
                expected = f"at least {least}, for sources cut to max_source_tokens ({cut})"
                yield broken((*path, key), expected, getattr(training, key), CUT)
