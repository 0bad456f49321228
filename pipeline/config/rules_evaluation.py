"""Rules on what is compared and looked into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.config.rules import Rule, broken
from pipeline.config.tree import Path

if TYPE_CHECKING:
    from pipeline.config.schema import MutualInformation, RunConfig


def names(config: RunConfig) -> Iterator[Rule]:
    for section, key, name, valid, owner in (
        ("evaluation", "baseline", config.evaluation.baseline, list(config.systems), ("systems",)),
        ("benchmark", "test", config.benchmark.test, list(config.corpus.test), ("corpus", "test")),
    ):
        if name not in valid:
            yield broken((section, key), f"one of {', '.join(valid)}", repr(name), owner, valid=valid)


def minima(config: RunConfig) -> Iterator[Rule]:
    for key, metric in (("minimum_bleu", "bleu"), ("minimum_rouge", "rougeL")):
        if getattr(config.evaluation, key) and metric not in config.evaluation.metrics:
            yield broken(("evaluation", "metrics"), f"{metric} among them for {key}", "none", ("evaluation", key))


def analyses(config: RunConfig) -> Iterator[Rule]:
    evaluation = config.evaluation
    languages = (config.languages.source, config.languages.target)
    if evaluation.contrastive and sorted(languages) != ["de", "en"]:
        expected = "languages en and de with minimal pairs"
        yield broken(("evaluation", "contrastive"), expected, "-".join(languages), ("languages",))
    bins = evaluation.length_bins
    if list(bins) != sorted(set(bins)):
        yield broken(("evaluation", "length_bins"), "ascending lengths", str(list(bins)))
    if evaluation.graphs and not any(system.family == "dag" for system in config.systems.values()):
        expected = "0 without a system of family dag"
        yield broken(("evaluation", "graphs"), expected, evaluation.graphs, ("systems",))
    if evaluation.lattices and not any(system.family == "lattice" for system in config.systems.values()):
        expected = "0 without a system of family lattice"
        yield broken(("evaluation", "lattices"), expected, evaluation.lattices, ("systems",))
    if evaluation.mutual_information and not evaluation.likelihood:
        expected = "true with mutual_information"
        yield broken(("evaluation", "likelihood"), expected, False, ("evaluation", "mutual_information"))
    for name, pair in evaluation.mutual_information.items():
        path: Path = ("evaluation", "mutual_information", name)
        unknown = {side: system for side, system in vars(pair).items() if system not in config.systems}
        for side, system in unknown.items():
            yield broken(
                (*path, side), f"one of {', '.join(config.systems)}", repr(system), ("systems",), valid=list(config.systems)
            )
        if not unknown:
            yield from _arrangements(config, path, pair)


def _arrangements(config: RunConfig, path: Path, pair: MutualInformation) -> Iterator[Rule]:
    """One system writes together what the other writes one by one."""
    from pipeline.config.schema import stepwise_network

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
        yield broken((*path, "parallel"), "a system of this config that writes several tokens a step", got, *rests_on)
    elif sequential is not None and sequential.step_size > 1:
        got = f"{pair.sequential!r}, which writes {sequential.step_size}"
        yield broken((*path, "sequential"), "a system that writes one token a step", got, *rests_on)
    elif sequential is not None and (parallel.arrangement, parallel.directions) != (sequential.arrangement, sequential.directions):
        expected = f"a system that writes in the arrangement of {pair.parallel!r} ({parallel.arrangement})"
        yield broken((*path, "sequential"), expected, f"{pair.sequential!r} ({sequential.arrangement})", *rests_on)
