"""Rules on searches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from models.aggressive.config import AggressiveSearch
from models.dag.config import DagSearch
from models.lattice.config import LatticeSearch
from models.stepwise.config import StepwiseConfig, StepwiseSearch, misfit
from pipeline.config.rules import Rule, broken
from pipeline.config.tree import Path
from stages.decoding.ctranslate2 import foreign, missing_engine

if TYPE_CHECKING:
    from pipeline.config.schema import RunConfig
    from stages.families import Search


def rules_of_search(path: Path, search: Search) -> Iterator[Rule]:
    if isinstance(search, LatticeSearch):
        if search.strategy == "lookup" and search.n_best > 1:
            yield broken((*path, "n_best"), "1 with lookup", search.n_best, (*path, "strategy"))
        return
    most = search.beam_size if not isinstance(search, AggressiveSearch) and search.strategy == "beam" else 1
    if search.n_best > most and search.strategy != "sample":
        rests_on = ((*path, "beam_size"), (*path, "strategy"))
        yield broken((*path, "n_best"), f"at most {most}, the size of the beam", search.n_best, *rests_on)


def network_of(settings: object) -> StepwiseConfig | None:
    """The network where it is known: not that of what is pinned."""
    return settings if isinstance(settings, StepwiseConfig) else None


def engine(path: Path, search: Search, network: StepwiseConfig | None, *, together: bool) -> Iterator[Rule]:
    """What an engine must have, and what it has not."""
    if not isinstance(search, StepwiseSearch | DagSearch):
        return
    whole = "fp32" if isinstance(search, DagSearch) else "float32"
    if isinstance(search, StepwiseSearch) and foreign(search):
        yield from _ctranslate2(path, search, network, together=together)
    elif search.precision != whole and search.engine == "torch":
        yield broken((*path, "precision"), f"{whole} with engine torch", repr(search.precision), (*path, "engine"))
    elif search.precision != whole and search.strategy == "sample":
        yield broken((*path, "precision"), f"{whole} for sampling", repr(search.precision), (*path, "strategy"))
    elif search.precision == "float16":
        yield broken((*path, "precision"), "float32, bfloat16 or int8 unless engine is ctranslate2", repr(search.precision))


def _ctranslate2(path: Path, search: StepwiseSearch, network: StepwiseConfig | None, *, together: bool) -> Iterator[Rule]:
    if missing := missing_engine(search):
        yield broken((*path, "engine"), missing, "none installed")
    if together:
        yield broken((*path, "engine"), "auto or torch for an ensemble", repr(search.engine), ("teacher",))
    if search.strategy == "sample":
        yield broken((*path, "engine"), "auto or torch for sampling", repr(search.engine), (*path, "strategy"))
    if search.strategy == "beam" and search.length_penalty_form == "gnmt":
        yield broken((*path, "length_penalty_form"), "power with engine ctranslate2", repr("gnmt"), (*path, "engine"))
    if search.strategy == "beam" and search.prune is not None:
        yield broken((*path, "prune"), "empty with engine ctranslate2", search.prune, (*path, "engine"))
    if search.shortlist_words is not None:
        yield broken((*path, "shortlist_words"), "empty with engine ctranslate2", search.shortlist_words, (*path, "engine"))
    if network is not None and network.order != "autoregressive":
        yield broken((*path, "engine"), f"auto or torch for order {network.order}", repr(search.engine))


def joint_step(path: Path, search: Search, network: StepwiseConfig | None) -> Iterator[Rule]:
    """What slots of a step may know of each other."""
    if not isinstance(search, StepwiseSearch) or not search.chooses_jointly:
        return
    if search.end_threshold and search.strategy != "greedy":
        yield broken((*path, "end_threshold"), f"0 with {search.strategy}", search.end_threshold, (*path, "strategy"))
    try:
        found = None if network is None else misfit(network.generation(), search)
    except ValueError:  # an order that does not go together is told as such
        return
    if found is not None:
        field, expected, value = found
        yield broken((*path, field), expected, value)


def language_model(path: Path, search: Search, config: RunConfig) -> Iterator[Rule]:
    from pipeline.config.schema import Pinned

    if not isinstance(search, DagSearch | StepwiseSearch) or not search.ngram_weight:
        return
    if search.strategy not in (("beam",) if isinstance(search, DagSearch) else ("greedy", "beam")):
        yield broken((*path, "ngram_weight"), f"0 with {search.strategy}", search.ngram_weight, (*path, "strategy"))
    elif config.ngram is None:
        yield broken((*path, "ngram_weight"), "0 without an n-gram model (ngram: {})", search.ngram_weight, ("ngram",))
    elif not isinstance(config.ngram, Pinned) and (config.ngram.unit, config.ngram.side) != ("pieces", "target"):
        got = f"{config.ngram.unit} of the {config.ngram.side}"
        yield broken(("ngram",), "an n-gram model of pieces of the target for searches", got, (*path, "ngram_weight"))
