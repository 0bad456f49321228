"""What no single field can tell: rules between the parts of a config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.aggressive.config import AggressiveConfig, AggressiveSearch
from models.dag.config import DagConfig, DagSearch
from models.lattice.config import LatticeSearch
from models.stepwise.config import StepwiseConfig, StepwiseSearch
from pipeline.config_problems import Complaint
from pipeline.config_shorthand import FILES
from pipeline.config_tree import Path, shown
from pipeline.downloads import FORM, RemoteFile
from pipeline.publication import masked
from pipeline.remote import MIRRORS, TEXTS, wrong_url
from stages.embedded import LANGUAGES
from stages.engines import foreign, missing_engine
from stages.tasks import TASKS

if TYPE_CHECKING:
    from models.training.config import TrainingConfig
    from pipeline.config import MutualInformation, RunConfig, TextConfig
    from pipeline.config_systems import AggressiveSystem, Distillation, TrainedSystem
    from stages.families import Network, Search

SHARED = ("width", "encoder_layers", "feed_forward", "heads", "norm", "positions", "max_positions")
"""What a drafter that reads its verifier's encoder has in common with it."""
CUT: Path = ("corpus", "max_source_tokens")
RESERVED_TESTS = ("train", "validation")
"""Names of other corpus steps."""


@dataclass(frozen=True)
class _Rule:
    """A complaint, and the other values that it rests on."""

    complaint: Complaint
    rests_on: tuple[Path, ...] = ()

    @property
    def values(self) -> tuple[Path, ...]:
        return (self.complaint.path, *self.rests_on)


def check(config: RunConfig, pruned: Sequence[Path]) -> list[Complaint]:
    """All broken rules, save those that rest on a value which was wrong by itself (`pruned`) and was taken out."""
    counted, trained = [*_corpus(config), *_counts(config)], [*_teacher(config), *_systems(config)]
    rules = [*counted, *trained, *_verifiers(config), *_names(config), *_minima(config), *_analyses(config), *_mirror(config)]
    return [
        rule.complaint for rule in rules if not any(_touch(p, q) for p in (rule.complaint.path, *rule.rests_on) for q in pruned)
    ]


def _touch(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _broken(path: Path, expected: str, got: object, *rests_on: Path, valid: Sequence[str] = ()) -> _Rule:
    return _Rule(Complaint(path, expected, got if isinstance(got, str) else shown(got), tuple(valid)), rests_on)


def _corpus(config: RunConfig) -> Iterator[_Rule]:
    corpus = config.corpus
    texts: dict[Path, TextConfig] = {("corpus", "train"): corpus.train, ("corpus", "validation"): corpus.validation}
    texts.update({("corpus", "test", name): text for name, text in corpus.test.items()})
    for path, text in texts.items():
        yield from _text(path, text, config)
    for name in RESERVED_TESTS:
        if name in corpus.test:
            yield _broken(("corpus", "test", name), "a name other than 'train' and 'validation'", repr(name))
    if corpus.filters.max_length < corpus.filters.min_length:
        path, got = ("corpus", "filters"), f"{corpus.filters.max_length} < {corpus.filters.min_length}"
        yield _broken((*path, "max_length"), "at least min_length", got, (*path, "min_length"))


def _text(path: Path, text: TextConfig, config: RunConfig) -> Iterator[_Rule]:
    given = [name for name in ("embedded", "tsv", "parquet") if getattr(text, name)]
    given += ["source and target"] if text.source or text.target else []
    if len(given) != 1:
        yield _broken(path, "exactly one of embedded, source and target, tsv, parquet", ", ".join(given) or "none of them")
    elif given == ["source and target"] and not (text.source and text.target):
        missing = "target" if text.source else "source"
        yield _broken((*path, missing), "files of both sides", f"no {missing}")
    for name in FILES:
        yield from _files((*path, name), getattr(text, name))
    for number, side in enumerate(text.references):
        yield from _files((*path, "references", number), side)
    languages, embedded = (config.languages.source, config.languages.target), LANGUAGES[config.task]
    if text.embedded and sorted(languages) != sorted(embedded):
        expected = f"languages {embedded[0]} and {embedded[1]} with the embedded corpus"
        yield _broken((*path, "embedded"), expected, "-".join(languages), ("languages",), ("task",))
    if text.references and (path[1] != "test" or not text.source):
        yield _broken((*path, "references"), "further references only beside source and target of a test set", "some here")


def _files(path: Path, files: Sequence[object]) -> Iterator[_Rule]:
    for number, file in enumerate(files):
        if not isinstance(file, RemoteFile):
            continue
        if expected := wrong_url(file.url, TEXTS):
            yield _broken((*path, number, "url"), expected, repr(masked(file.url)))
        if file.sha256 and not FORM.fullmatch(file.sha256):
            yield _broken((*path, number, "sha256"), "64 hex digits", repr(file.sha256))


def _mirror(config: RunConfig) -> Iterator[_Rule]:
    url = config.store.mirror
    if url and (expected := wrong_url(url, MIRRORS)):
        yield _broken(("store", "mirror"), expected, repr(masked(url)))


def _counts(config: RunConfig) -> Iterator[_Rule]:
    from pipeline.config import Pinned
    from pipeline.config_systems import LatticeSystem

    if config.lattice is None and not any(isinstance(system, LatticeSystem) for system in config.systems.values()):
        return
    if config.alignment is not None and config.alignment.unit != "pieces":
        yield _broken(("alignment", "unit"), "pieces for the lattice", config.alignment.unit, ("lattice",))
    distilled = config.lattice is not None and config.lattice.data == "distilled"
    if distilled and config.teacher is None and not isinstance(config.distillation, Pinned):
        expected = "raw without a teacher (or distillation: {from: DIRECTORY})"
        yield _broken(("lattice", "data"), expected, "distilled", ("teacher",), ("distillation",))


def _teacher(config: RunConfig) -> Iterator[_Rule]:
    from pipeline.config import Pinned
    from pipeline.config_systems import UsedSystem

    for name, system in config.systems.items():
        path: Path = ("systems", name)
        if name == "teacher":
            yield _broken(path, "a name other than 'teacher', whose steps are those of the teacher itself", repr(name))
        if isinstance(system, UsedSystem):
            if config.teacher is None:
                yield _broken((*path, "use"), "a teacher in the config", "none", ("teacher",))
            elif system.use == "ensemble" and (isinstance(config.teacher, Pinned) or config.teacher.ensemble == 1):
                yield _broken((*path, "use"), "teacher, or teacher.ensemble of at least 2", "'ensemble'", ("teacher",))
            continue
        if system.data == "mixed" and system.mixture.raw + system.mixture.distilled == 0:
            yield _broken((*path, "mixture"), "at least 1 of either data", "none")
        if system.initial_weights == "teacher" and config.teacher is None:
            yield _broken((*path, "initial_weights"), "a teacher in the config", "none", ("teacher",))
        if system.data != "raw" and config.teacher is None and not isinstance(config.distillation, Pinned):
            expected = f"a teacher (or distillation: {{from: DIRECTORY}}) for {system.data!r}"
            yield _broken((*path, "data"), expected, "none", ("teacher",), ("distillation",))
    if not isinstance(config.distillation, Pinned):
        yield from _search(("distillation",), config.distillation)
        yield from _distillation(config.distillation)
        members = 1 if config.teacher is None or isinstance(config.teacher, Pinned) else config.teacher.ensemble
        yield from _engine(("distillation",), config.distillation, _network_of(config.teacher), together=members > 1)
    if config.teacher is not None and not isinstance(config.teacher, Pinned):
        yield from _network(("teacher",), config.teacher, config)
        yield from _training(("teacher", "training"), config.teacher.training, config)


def _distillation(settings: Distillation) -> Iterator[_Rule]:
    if settings.choose == "reference" and settings.n_best == 1:
        expected = "at least 2, to choose from, with choose: reference"
        yield _broken(("distillation", "n_best"), expected, settings.n_best, ("distillation", "choose"))


def _systems(config: RunConfig) -> Iterator[_Rule]:
    from pipeline.config_systems import UsedSystem

    for name, system in config.systems.items():
        path: Path = ("systems", name)
        if not isinstance(system, UsedSystem):
            yield from _network(path, system, config)
            yield from _training((*path, "training"), system.training, config)
            yield from _tables(path, system, config)
        searches: tuple[Search, ...] = system.search
        names = [search.name for search in searches]
        for i, search in enumerate(searches):
            yield from _search((*path, "search", i), search)
            yield from _language_model((*path, "search", i), search, config)
            network = _network_of(config.teacher if isinstance(system, UsedSystem) else system)
            together = isinstance(system, UsedSystem) and system.use == "ensemble"
            yield from _engine((*path, "search", i), search, network, together=together)
            if search.name in names[:i]:
                yield _broken((*path, "search", i), "searches of different names", f"{search.name!r} again")


def _tables(path: Path, system: TrainedSystem, config: RunConfig) -> Iterator[_Rule]:
    from pipeline.config import Pinned
    from pipeline.config_systems import LatticeSystem

    if not isinstance(system, LatticeSystem):
        return
    if system.tables == "distilled" and config.teacher is None and not isinstance(config.distillation, Pinned):
        expected = "raw without a teacher (or distillation: {from: DIRECTORY})"
        yield _broken((*path, "tables"), expected, "distilled", ("teacher",), ("distillation",))
    unpenalised = not system.normalizer_penalty
    for i, search in enumerate(system.search):
        if search.normalizer == "selfnorm" and unpenalised:
            expected = "full, union or local for a network trained without normalizer_penalty"
            yield _broken((*path, "search", i, "normalizer"), expected, "selfnorm", (*path, "normalizer_penalty"))


def _network(path: Path, network: Network, config: RunConfig) -> Iterator[_Rule]:
    if network.width % network.heads:
        expected = f"a divisor of width {network.width}"
        yield _broken((*path, "heads"), expected, network.heads, (*path, "width"), (*path, "size"))
    if (cut := config.corpus.max_source_tokens) is not None and network.max_positions <= cut:
        yield _broken((*path, "max_positions"), f"more than max_source_tokens ({cut})", network.max_positions, CUT)
    if isinstance(network, DagConfig):
        yield from _graph(path, network)
    elif isinstance(network, StepwiseConfig):
        yield from _order(path, network)
    elif isinstance(network, AggressiveConfig):
        yield from _block(path, network)


def _order(path: Path, network: StepwiseConfig) -> Iterator[_Rule]:
    try:
        network.generation()
    except ValueError as error:
        yield _broken((*path, "order"), f"an order that goes together ({error})", network.order)


def _graph(path: Path, network: DagConfig) -> Iterator[_Rule]:
    low, high = network.factors
    if not 0 < low <= high:
        yield _broken((*path, "graph_factor_range"), "two factors above 0, the lower one first", f"[{low}, {high}]")


def _block(path: Path, network: AggressiveConfig) -> Iterator[_Rule]:
    low, high = network.widths
    if not 1 <= low <= high < network.max_positions:
        expected = f"two widths from 1 to less than max_positions ({network.max_positions}), the lower one first"
        yield _broken((*path, "draft_width_range"), expected, f"[{low}, {high}]", (*path, "max_positions"), (*path, "draft_width"))


def _search(path: Path, search: Search) -> Iterator[_Rule]:
    if isinstance(search, LatticeSearch):
        if search.strategy == "lookup" and search.n_best > 1:
            yield _broken((*path, "n_best"), "1 with lookup", search.n_best, (*path, "strategy"))
        return
    most = search.beam_size if not isinstance(search, AggressiveSearch) and search.strategy == "beam" else 1
    if search.n_best > most and search.strategy != "sample":
        rests_on = ((*path, "beam_size"), (*path, "strategy"))
        yield _broken((*path, "n_best"), f"at most {most}, the size of the beam", search.n_best, *rests_on)


def _network_of(settings: object) -> StepwiseConfig | None:
    """The network where it is known: not that of what is pinned."""
    return settings if isinstance(settings, StepwiseConfig) else None


def _engine(path: Path, search: Search, network: StepwiseConfig | None, *, together: bool) -> Iterator[_Rule]:
    """What CTranslate2 must have, and what it has not."""
    if not isinstance(search, StepwiseSearch) or not foreign(search):
        return
    if missing := missing_engine(search):
        yield _broken((*path, "engine"), missing, "none installed")
    if together:
        yield _broken((*path, "engine"), "auto or torch for an ensemble", repr(search.engine), ("teacher",))
    if search.strategy == "sample":
        yield _broken((*path, "engine"), "auto or torch for sampling", repr(search.engine), (*path, "strategy"))
    if search.strategy == "beam" and search.length_penalty_form == "gnmt":
        yield _broken((*path, "length_penalty_form"), "power with engine ctranslate2", repr("gnmt"), (*path, "engine"))
    if network is not None and network.order != "autoregressive":
        yield _broken((*path, "engine"), f"auto or torch for order {network.order}", repr(search.engine))


def _language_model(path: Path, search: Search, config: RunConfig) -> Iterator[_Rule]:
    from pipeline.config import Pinned

    if not isinstance(search, DagSearch) or not search.ngram_weight:
        return
    if search.strategy != "beam":
        yield _broken((*path, "ngram_weight"), f"0 with {search.strategy}", search.ngram_weight, (*path, "strategy"))
    elif config.ngram is None:
        yield _broken((*path, "ngram_weight"), "0 without an n-gram model (ngram: {})", search.ngram_weight, ("ngram",))
    elif not isinstance(config.ngram, Pinned) and (config.ngram.unit, config.ngram.side) != ("pieces", "target"):
        got = f"{config.ngram.unit} of the {config.ngram.side}"
        yield _broken(("ngram",), "an n-gram model of pieces of the target for searches", got, (*path, "ngram_weight"))


def _verifiers(config: RunConfig) -> Iterator[_Rule]:
    """Drafters, and those who verify what they draft."""
    from pipeline.config_systems import AggressiveSystem

    for name, system in config.systems.items():
        if not isinstance(system, AggressiveSystem):
            continue
        path: Path = ("systems", name)
        others = [other for other, kind in config.systems.items() if not isinstance(kind, AggressiveSystem)]
        for key, other in (("verifier", system.verifier), ("drafter_system", system.drafter_system or system.verifier)):
            if other not in others:
                expected = f"one of {', '.join(others)}" if others else "a system of another family"
                yield _broken((*path, key), expected, repr(other), ("systems",), valid=others)
        if system.verifier in others:
            yield from _pair(config, path, system)
        for i, search in enumerate(system.search):
            if search.drafter == "system" and not system.drafter_system:
                yield _broken(
                    (*path, "search", i), "drafter: network or lookup without drafter_system", "system", (*path, "drafter_system")
                )


def _pair(config: RunConfig, path: Path, system: AggressiveSystem) -> Iterator[_Rule]:
    from pipeline.config import stepwise_network

    if config.systems[system.verifier].family != "stepwise":
        got = f"{system.verifier!r} of family {config.systems[system.verifier].family}"
        yield _broken((*path, "verifier"), "a system of family stepwise", got, ("systems", system.verifier))
        return
    rests_on: tuple[Path, ...] = (("systems", system.verifier), ("teacher",))
    if getattr(config.systems[system.verifier], "use", "") == "ensemble":
        yield _broken(
            (*path, "verifier"), "a system of one network", f"{system.verifier!r}, an ensemble", ("systems", system.verifier)
        )
    network = stepwise_network(config, system.verifier)
    if network is None:  # pinned: its directory says
        return
    try:
        order = network.generation()
    except ValueError:  # which the system is told itself
        return
    if (order.step_size, order.arrangement) != (1, "l2r"):
        got = f"{system.verifier!r}, which writes {order.step_size} in the arrangement {order.arrangement}"
        yield _broken((*path, "verifier"), "a system that writes one token a step from left to right", got, *rests_on)
    keys = SHARED if system.encoder == "shared" else ("norm", "positions") if system.initial_weights == "verifier" else ()
    for key in keys:
        if getattr(system, key) != getattr(network, key):
            why = "to share its encoder" if system.encoder == "shared" else "to start from its weights"
            yield _broken(
                (*path, key), f"{getattr(network, key)} as {system.verifier!r} has, {why}", getattr(system, key), *rests_on
            )
    if system.encoder == "shared" and system.initial_weights != "verifier":
        yield _broken((*path, "initial_weights"), "verifier with encoder: shared", system.initial_weights, (*path, "encoder"))


def _training(path: Path, training: TrainingConfig, config: RunConfig) -> Iterator[_Rule]:
    if training.schedule == "cosine" and training.warmup_updates >= training.updates:
        expected = f"less than updates ({training.updates}) with the cosine schedule"
        yield _broken((*path, "warmup_updates"), expected, training.warmup_updates, (*path, "updates"), (*path, "schedule"))
    metric, wanted = TASKS[config.task].metric, training.validation_metric
    if wanted not in ("loss", metric):
        yield _broken((*path, "validation_metric"), f"loss or {metric} with task {config.task}", repr(wanted), ("task",))
    if wanted != "loss" and not training.validation_sentences:
        expected = f"at least 1 with validation_metric {wanted}"
        yield _broken((*path, "validation_sentences"), expected, 0, (*path, "validation_metric"))
    if (cut := config.corpus.max_source_tokens) is not None:
        for key, least in (("max_tokens", cut), ("batch_tokens", cut + 1)):
            if getattr(training, key) < least:
                expected = f"at least {least}, for sources cut to max_source_tokens ({cut})"
                yield _broken((*path, key), expected, getattr(training, key), CUT)


def _names(config: RunConfig) -> Iterator[_Rule]:
    for section, key, name, valid, owner in (
        ("evaluation", "baseline", config.evaluation.baseline, list(config.systems), ("systems",)),
        ("benchmark", "test", config.benchmark.test, list(config.corpus.test), ("corpus", "test")),
    ):
        if name not in valid:
            yield _broken((section, key), f"one of {', '.join(valid)}", repr(name), owner, valid=valid)


def _minima(config: RunConfig) -> Iterator[_Rule]:
    for key, metric in (("minimum_bleu", "bleu"), ("minimum_rouge", "rougeL")):
        if getattr(config.evaluation, key) and metric not in config.evaluation.metrics:
            yield _broken(("evaluation", "metrics"), f"{metric} among them for {key}", "none", ("evaluation", key))


def _analyses(config: RunConfig) -> Iterator[_Rule]:
    evaluation = config.evaluation
    languages = (config.languages.source, config.languages.target)
    if evaluation.contrastive and sorted(languages) != ["de", "en"]:
        expected = "languages en and de with minimal pairs"
        yield _broken(("evaluation", "contrastive"), expected, "-".join(languages), ("languages",))
    bins = evaluation.length_bins
    if list(bins) != sorted(set(bins)):
        yield _broken(("evaluation", "length_bins"), "ascending lengths", str(list(bins)))
    if evaluation.graphs and not any(system.family == "dag" for system in config.systems.values()):
        expected = "0 without a system of family dag"
        yield _broken(("evaluation", "graphs"), expected, evaluation.graphs, ("systems",))
    if evaluation.lattices and not any(system.family == "lattice" for system in config.systems.values()):
        expected = "0 without a system of family lattice"
        yield _broken(("evaluation", "lattices"), expected, evaluation.lattices, ("systems",))
    if evaluation.mutual_information and not evaluation.likelihood:
        expected = "true with mutual_information"
        yield _broken(("evaluation", "likelihood"), expected, False, ("evaluation", "mutual_information"))
    for name, pair in evaluation.mutual_information.items():
        path: Path = ("evaluation", "mutual_information", name)
        unknown = {side: system for side, system in vars(pair).items() if system not in config.systems}
        for side, system in unknown.items():
            yield _broken(
                (*path, side), f"one of {', '.join(config.systems)}", repr(system), ("systems",), valid=list(config.systems)
            )
        if not unknown:
            yield from _arrangements(config, path, pair)


def _arrangements(config: RunConfig, path: Path, pair: MutualInformation) -> Iterator[_Rule]:
    """One system writes together what the other writes one by one."""
    from pipeline.config import stepwise_network

    try:
        parallel, sequential = (
            network.generation() if (network := stepwise_network(config, system)) else None
            for system in (pair.parallel, pair.sequential)
        )
    except ValueError:  # which the system is told itself
        return
    rests_on: tuple[Path, ...] = (("systems", pair.parallel), ("systems", pair.sequential), ("teacher",))
    if parallel is None or parallel.step_size == 1:
        got = "one that is pinned" if parallel is None else f"{pair.parallel!r}, which writes 1"
        yield _broken((*path, "parallel"), "a system of this config that writes several tokens a step", got, *rests_on)
    elif sequential is not None and sequential.step_size > 1:
        got = f"{pair.sequential!r}, which writes {sequential.step_size}"
        yield _broken((*path, "sequential"), "a system that writes one token a step", got, *rests_on)
    elif sequential is not None and (parallel.arrangement, parallel.directions) != (sequential.arrangement, sequential.directions):
        expected = f"a system that writes in the arrangement of {pair.parallel!r} ({parallel.arrangement})"
        yield _broken((*path, "sequential"), expected, f"{pair.sequential!r} ({sequential.arrangement})", *rests_on)
