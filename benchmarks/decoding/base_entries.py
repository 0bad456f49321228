"""The systems of the table at Transformer-base size, each with its decoder and its cost by arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from benchmarks.decoding.networks import VOCABULARY, Layers
from benchmarks.decoding.random_systems import (
    SHORTLIST,
    Decode,
    by_drafts,
    by_graph,
    by_lattice,
    by_slots,
    full_depth,
    natively,
    shortlist_size,
)
from benchmarks.decoding.roofline import Network, Phase, drafts, graph, lattice, slots, stepwise
from fewstep.config.network import SIZES
from fewstep.config.options import OutputLimits
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagSearch
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch

QUICK = ("autoregressive", "interleaved-sa", "graph x4 lookahead", "lattice 16", "ctc")
"""The entries of a quick run begin with one of these."""


class Entry(NamedTuple):
    """A system of the table."""

    make: Callable[[], Decode]
    """Returns the decoder."""
    phases: list[Phase]
    """The cost of a sentence."""


def entries(size: str, tokens: int, batches: tuple[int, ...]) -> dict[str, Entry]:
    """Return the systems by name, greedy search of one token a step first. A new family adds its systems here."""
    net = Network(SIZES[size]["width"], SIZES[size]["feed_forward"], tokens + 1, VOCABULARY[size], shortlist_size(size, tokens))
    limits: dict[str, Any] = {"output_limits": OutputLimits(min_tokens=tokens, max_tokens=tokens)}
    return {
        **_stepwise(size, tokens, net, limits),
        **_graphs(size, net),
        **_lattices(size, tokens, net, batches),
        **_drafts(size, tokens, net, limits),
        **_slots(size, net),
    }


def _named(layers: Layers) -> str:
    return f"{layers[0]}-{layers[1]}"


def _stepwise(size: str, tokens: int, net: Network, limits: dict[str, Any]) -> dict[str, Entry]:
    search = StepwiseSearch(rescore=False, precision="int8", shortlist=SHORTLIST, **limits)
    depth = full_depth(size)
    shapes = [("autoregressive", depth), ("autoregressive", (depth[0], 1))]
    shapes += [(order, (depth[0], 2)) for order in ("autoregressive", "interleaved", "interleaved-sa", "double-token")]
    shapes += [("interleaved-sa", (depth[0], 1))]
    return {
        f"{order} {_named(layers)}": Entry(
            partial(natively, size, layers, order, search),
            stepwise(net, layers, tokens, StepwiseConfig(order=order).generation().step_size),  # type: ignore[arg-type]
        )
        for order, layers in shapes
    }


def _graphs(size: str, net: Network) -> dict[str, Entry]:
    search = DagSearch(precision="int8", shortlist=SHORTLIST)
    depth = full_depth(size)
    shapes = [(4.0, "lookahead", depth), (4.0, "lookahead", (depth[0], 2)), (4.0, "greedy", depth)]
    shapes += [(4.0, "joint-viterbi", depth), (4.0, "beam", depth), (8.0, "lookahead", depth)]
    return {
        f"graph x{factor:g} {strategy} {_named(layers)}": Entry(
            partial(by_graph, size, replace(search, strategy=strategy), layers, factor),  # type: ignore[arg-type]
            graph(net, layers, factor),
        )
        for factor, strategy, layers in shapes
    }


def _lattices(size: str, tokens: int, net: Network, batches: tuple[int, ...]) -> dict[str, Entry]:
    found = {}
    depth = full_depth(size)
    for candidates, layers in ((16, depth), (16, (depth[0], 2)), (64, depth)):
        search = LatticeSearch(candidates=candidates, normalizer="local", precision="int8")
        make = partial(by_lattice, size, batches, tokens, search, layers)
        found[f"lattice {candidates} {_named(layers)}"] = Entry(
            make, lattice(net, layers, candidates, tokens + search.length_window)
        )
    return found


def _drafts(size: str, tokens: int, net: Network, limits: dict[str, Any]) -> dict[str, Entry]:
    search = AggressiveSearch(
        draft_shortlist=SHORTLIST, draft_precision="int8", verifier_precision="int8", shortlist=SHORTLIST, **limits
    )
    depth = full_depth(size)
    kinds: list[tuple[str, bool, int, Layers, bool]] = [
        ("k4 autoregressive", True, 4, (0, 1), True),
        ("k4 autoregressive", False, 4, (0, 1), True),
        ("k4 shared 1-layer", True, 4, (0, 1), False),
        ("k15 separate", True, 15, depth, False),
    ]
    return {
        f"aggressive {name}, {'all' if accepted else 'none'} accepted": Entry(
            partial(by_drafts, size, name, accepted, search),
            drafts(net, depth, tokens, width, layers, accepted=accepted, one_by_one=one),
        )
        for name, accepted, width, layers, one in kinds
    }


def _slots(size: str, net: Network) -> dict[str, Entry]:
    greedy = ParallelSearch(precision="int8", shortlist=SHORTLIST)
    depth = full_depth(size)
    kinds: list[tuple[str, str, int, int]] = [("glat", "glat", 1, 1), ("ctc", "ctc-glat", 1, 2)]
    kinds += [(f"mask-predict {count}", "cmlm", count, 1) for count in (4, 10)]
    return {
        f"{name} {_named(depth)}": Entry(
            partial(by_slots, size, objective, _passes(greedy, objective, count)), slots(net, depth, upsampling, count)
        )
        for name, objective, count, upsampling in kinds
    }


def _passes(search: ParallelSearch, objective: str, count: int) -> ParallelSearch:
    return replace(search, strategy="mask-predict", iterations=count) if objective == "cmlm" else search


def chosen(found: dict[str, Entry], only: Sequence[str], *, quick: bool = False) -> dict[str, Entry]:
    """Return the entries whose names contain one of `only`, and with `quick` those of the quick run alone. Raises ValueError if
    none is left."""
    kept = {name: entry for name, entry in found.items() if any(part in name for part in only)}
    if quick:
        kept = {name: entry for name, entry in kept.items() if name.startswith(QUICK)}
    if not kept:
        raise ValueError(f"--only: expected parts of names of entries, found {' '.join(only)}; the names are {', '.join(found)}")
    return kept
