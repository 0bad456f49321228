"""Rules on comparisons and analyses."""

from __future__ import annotations

from collections.abc import Iterator

from fewstep.config.problems import KeyPath
from fewstep.families.stepwise.config import StepwiseConfig
from models.family import FAMILIES
from pipeline.config.checks.rules import Rule, broken
from pipeline.config.schema import MutualInformation, RunConfig, network_of
from pipeline.config.systems import analysis_of
from pipeline.config.texts import LocalFile
from pipeline.store.downloads import RemoteFile

ANALYSES = tuple(entry.system.analysis for entry in FAMILIES.values() if entry.system.analysis)
"""Keys of analyses that only systems of some families have."""


def evaluation_rules(config: RunConfig) -> Iterator[Rule]:
    """Yield the broken rules on the evaluation and the benchmark."""
    yield from _names(config)
    yield from _minima(config)
    yield from _analyses(config)
    yield from _mutual_information(config)


def _names(config: RunConfig) -> Iterator[Rule]:
    tests = list(config.corpus.test)
    if config.benchmark.test not in tests:
        yield broken(
            ("benchmark", "test"), f"one of {', '.join(tests)}", repr(config.benchmark.test), ("corpus", "test"), valid=tests
        )
    system, slash, label = config.evaluation.baseline.partition("/")
    path = ("evaluation", "baseline")
    systems = list(config.systems)
    if system not in systems:
        yield broken(path, f"one of {', '.join(systems)}", repr(config.evaluation.baseline), ("systems",), valid=systems)
    elif slash and label not in config.systems[system].search:
        results = [f"{system}/{one}" for one in config.systems[system].search]
        got = repr(config.evaluation.baseline)
        yield broken(path, f"one of {', '.join(results)}", got, ("systems", system), valid=results)


def _minima(config: RunConfig) -> Iterator[Rule]:
    for key, metric in (("min_bleu", "bleu"), ("min_rouge", "rougeL")):
        if getattr(config.evaluation, key) and metric not in config.evaluation.metrics:
            yield broken(("evaluation", "metrics"), f"{metric} among them for {key}", "none", ("evaluation", key))


def _analyses(config: RunConfig) -> Iterator[Rule]:
    evaluation = config.evaluation
    languages = (config.languages.source, config.languages.target)
    if evaluation.contrastive and sorted(languages) != ["de", "en"]:
        expected = "languages en and de with minimal pairs"
        yield broken(("evaluation", "contrastive"), expected, "-".join(languages), ("languages",))
    pairs = evaluation.contrastive_pairs
    if evaluation.contrastive and pairs is not None:
        yield broken(
            ("evaluation", "contrastive"), "0 with a file of pairs", evaluation.contrastive, ("evaluation", "contrastive_pairs")
        )
    if isinstance(pairs, RemoteFile | LocalFile) and pairs.member:
        yield broken(("evaluation", "contrastive_pairs", "member"), "a file that is in no archive", repr(pairs.member))
    bins = evaluation.length_bins
    if list(bins) != sorted(set(bins)):
        yield broken(("evaluation", "length_bins"), "ascending lengths", str(list(bins)))
    found = {analysis_of(system) for system in config.systems.values()}
    for key in ANALYSES:
        if (count := getattr(evaluation, key)) and key not in found:
            nothing = "false" if isinstance(count, bool) else "0"
            yield broken(("evaluation", key), f"{nothing} without a system of the family that is analysed", count, ("systems",))


def _mutual_information(config: RunConfig) -> Iterator[Rule]:
    evaluation = config.evaluation
    if evaluation.mutual_information and not evaluation.likelihood:
        expected = "true with mutual_information"
        yield broken(("evaluation", "likelihood"), expected, False, ("evaluation", "mutual_information"))
    for name, pair in evaluation.mutual_information.items():
        path: KeyPath = ("evaluation", "mutual_information", name)
        unknown = {side: system for side, system in vars(pair).items() if system not in config.systems}
        for side, system in unknown.items():
            yield broken(
                (*path, side), f"one of {', '.join(config.systems)}", repr(system), ("systems",), valid=list(config.systems)
            )
        if not unknown:
            yield from _arrangements(config, path, pair)


def _arrangements(config: RunConfig, path: KeyPath, pair: MutualInformation) -> Iterator[Rule]:
    """Yield a rule unless one system writes several tokens per step that the other writes one by one in the same arrangement."""
    networks = [_stepwise(config, system) for system in (pair.parallel, pair.sequential)]
    parallel, sequential = (None if network is None else network.valid_generation() for network in networks)
    if any(network is not None and network.valid_generation() is None for network in networks):
        return  # a problem of that system's own
    rests_on: tuple[KeyPath, ...] = (("systems", pair.parallel), ("systems", pair.sequential), ("teacher",))
    if parallel is None or parallel.step_size == 1:
        got = "one that is pinned, or of another family" if parallel is None else f"{pair.parallel!r}, which writes 1"
        yield broken((*path, "parallel"), "a system of this config that writes several tokens a step", got, *rests_on)
    elif sequential is not None and sequential.step_size > 1:
        got = f"{pair.sequential!r}, which writes {sequential.step_size}"
        yield broken((*path, "sequential"), "a system that writes one token a step", got, *rests_on)
    elif sequential is not None and (parallel.arrangement, parallel.directions) != (sequential.arrangement, sequential.directions):
        expected = f"a system that writes in the arrangement of {pair.parallel!r} ({parallel.arrangement})"
        yield broken((*path, "sequential"), expected, f"{pair.sequential!r} ({sequential.arrangement})", *rests_on)


def _stepwise(config: RunConfig, name: str) -> StepwiseConfig | None:
    """Return the network of a system; None if it is pinned, or if its family has no orders."""
    network = network_of(config, name)
    return network if isinstance(network, StepwiseConfig) else None
