"""Decoders of every family with random weights and outputs of fixed lengths, for measurements at any size."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from benchmarks.decoding.networks import (
    AGREED,
    VOCABULARY,
    Layers,
    biased,
    candidates_for,
    drafter_of,
    network,
    sentences,
    sizes,
    slot_network,
    zipf,
)
from fewstep.config.network import SIZES
from fewstep.config.options import MAX_SHORTLIST_TOKENS, Shortlist
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.decoder import NativeDecoder as NativeDrafts
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.decoder import NativeDecoder as NativeGraphs
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.lattice.decoder import NativeDecoder as NativeLattices
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.parallel.decoder import NativeDecoder as NativeSlots
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.decoder import NativeDecoder
from fewstep.shortlist import Lexicon
from fewstep.sources import gather
from fewstep.vocabulary import RESERVED
from models.common.engines import native_arrays
from models.dag.model import build as build_graph
from models.lattice.model import build as build_lattice

Decode = Callable[[list[list[int]]], object]
SHORTLIST = Shortlist(tokens=500, links=16)
"""The shortlist of all systems: about 680 of 32,000 tokens for a sentence of 27."""


def full_depth(size: str) -> Layers:
    return SIZES[size]["encoder_layers"], SIZES[size]["decoder_layers"]


@cache
def lexicon(size: str) -> Lexicon:
    """Return frequent tokens and random links, in the form that candidate tables give them."""
    count = VOCABULARY[size]
    draw = np.random.default_rng(3)
    weights = np.array(zipf(VOCABULARY[size]))
    linked = len(RESERVED) + np.searchsorted(weights, draw.random((count, SHORTLIST.links)) * weights[-1])
    return Lexicon(np.arange(min(MAX_SHORTLIST_TOKENS, count)), np.sort(linked, 1))


def shortlist_size(size: str, tokens: int) -> int:
    """Return the mean number of tokens of a sentence's shortlist."""
    common, linked = lexicon(size)
    assert linked is not None
    counts = [len({*common[: SHORTLIST.tokens], *linked[source].ravel()}) for source in sentences(32, tokens, VOCABULARY[size])]
    return round(sum(counts) / len(counts))


def _shape(size: str, layers: Layers | None) -> dict[str, Any]:
    encoder, decoder = layers or full_depth(size)
    return {**SIZES[size], "encoder_layers": encoder, "decoder_layers": decoder}


@cache
def native_search(size: str, layers: Layers, order: str, precision: Any) -> NativeDecoder:
    model = network(size, layers, order)
    return NativeDecoder(model.config, [native_arrays(model)], None, lexicon(size), precision=precision)


def natively(size: str, layers: Layers, order: str, search: StepwiseSearch) -> Decode:
    found = native_search(size, layers, order, search.precision)

    def decode(sources: list[list[int]]) -> object:
        prepared = gather(sources, len(sources[0]))
        limits = np.full_like(prepared.lengths, search.output_limits.max_tokens or 1)
        return found.search(prepared, search, limits, torch.get_num_threads())

    return decode


@cache
def graph_decoder(size: str, layers: Layers | None, factor: float, precision: Any) -> NativeGraphs:
    torch.manual_seed(1)
    config = DagConfig(size=size, graph_factor=factor, **_shape(size, layers))  # type: ignore[arg-type]
    return NativeGraphs(config, native_arrays(build_graph(config, sizes(size)).eval()), None, lexicon(size), precision=precision)


def by_graph(size: str, search: DagSearch, layers: Layers | None = None, factor: float = 8.0) -> Decode:
    decoder = graph_decoder(size, layers, factor, search.precision)
    return lambda sources: decoder.decode(decoder.prepare(sources), search, torch.get_num_threads())


@cache
def lattice_decoder(size: str, batches: tuple[int, ...], tokens: int, layers: Layers | None, precision: Any) -> NativeLattices:
    torch.manual_seed(1)
    config = LatticeModelConfig(size=size, **_shape(size, layers))  # type: ignore[arg-type]
    sources = [source for batch in batches for source in sentences(batch, tokens, VOCABULARY[size])]
    tables = candidates_for(sources, VOCABULARY[size])
    return NativeLattices(config, native_arrays(build_lattice(config, sizes(size)).eval()), tables, precision=precision)


def by_lattice(size: str, batches: tuple[int, ...], tokens: int, search: LatticeSearch, layers: Layers | None = None) -> Decode:
    decoder = lattice_decoder(size, batches, tokens, layers, search.precision)
    return lambda sources: decoder.decode(decoder.prepare(sources, search), search, torch.get_num_threads())


def by_drafts(size: str, drafter: str, accepted: bool, search: AggressiveSearch) -> Decode:
    """Return a drafter whose drafts are all accepted (`accepted`), or all rejected."""
    verifier = network(size, full_depth(size))
    biased(verifier, AGREED)
    model = drafter_of(verifier, size, drafter, accepted=accepted)
    decoder = NativeDrafts(
        model.config,
        native_arrays(model),
        model.sizes,
        verifier.config,
        native_arrays(verifier),
        lexicon=lexicon(size),
        search=search,
    )

    def decode(sources: list[list[int]]) -> object:
        found = decoder.decode(decoder.prepare(sources), search, torch.get_num_threads())
        count = found[0][0].statistics["accepted"]
        assert (count > 0) == accepted, f"expected {'accepted drafts' if accepted else 'no accepted draft'}, got {count}"
        return found

    return decode


@cache
def slot_decoder(size: str, objective: Any, precision: Any) -> NativeSlots:
    model = slot_network(size, objective)
    return NativeSlots(model.config, native_arrays(model), None, lexicon(size), precision=precision)


def by_slots(size: str, objective: str, search: ParallelSearch) -> Decode:
    decoder = slot_decoder(size, objective, search.precision)
    return lambda sources: decoder.decode(decoder.prepare(sources), search, torch.get_num_threads())
