"""The least work of a sentence by arithmetic from shapes, and the time that a machine needs for it (Williams et al. 2009).

A phase is a pass over a stack of layers, or several equal ones. Its weights are read once for all sentences of a batch; its keys
and values once for each sentence. Its products are counted as multiply-adds, attention included. A phase takes at least as long as
its bytes at the machine's bandwidth, and as its products at the machine's peak."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch


class Network(NamedTuple):
    """The sizes that a cost depends on."""

    width: int
    feed_forward: int
    source: int
    """Tokens of a source with EOS."""
    vocabulary: int
    shortlist: int
    """Tokens that are ranked."""
    weight_bytes: int = 1
    """Bytes of a weight; 1: 8 bits."""
    state_bytes: int = 4
    """Bytes of a unit of a key or of a value."""


class Phase(NamedTuple):
    """Passes of a sentence over weights."""

    name: str
    passes: float
    weights: float
    """Bytes of the weights of a pass, which the sentences of a batch share."""
    own_weights: float
    """Bytes of a pass that are different for each sentence: keys, values, and the rows of its shortlist."""
    products: float
    """Multiply-adds of all passes."""


def sentence_bytes(phases: list[Phase], batch: int) -> float:
    """Return the bytes that a sentence of a batch reads."""
    return sum(phase.passes * (phase.weights / batch + phase.own_weights) for phase in phases)


def sentence_products(phases: list[Phase]) -> float:
    return sum(phase.products for phase in phases)


def least_seconds(phases: list[Phase], batch: int, bandwidth: float, peak: float) -> float:
    """Return the least time of a sentence with `bandwidth` in bytes and `peak` in multiply-adds a second."""
    return sum(max(sentence_bytes([phase], batch) / bandwidth, phase.products / peak) for phase in phases)


def encoder(net: Network, layers: int) -> Phase:
    weights = layers * (4 * net.width**2 + 2 * net.width * net.feed_forward)
    attention = layers * 2 * net.source**2 * net.width
    return Phase("encoder", 1, weights * net.weight_bytes, 0, net.source * weights + attention)


def memories(net: Network, layers: int) -> Phase:
    """Return the keys and values of the source for all layers of a decoder."""
    weights = layers * 2 * net.width**2
    return Phase("source keys and values", 1, weights * net.weight_bytes, 0, net.source * weights)


def decoder(net: Network, layers: int, passes: float, rows: float, keys: float, *, name: str = "decoder") -> Phase:
    """Return passes of `rows` rows each, which attend to `keys` target slots on average and to the source."""
    weights = layers * (6 * net.width**2 + 2 * net.width * net.feed_forward)
    cached = layers * (keys + net.source) * net.width * 2 * net.state_bytes
    attention = layers * 2 * (keys + net.source) * net.width
    return Phase(name, passes, weights * net.weight_bytes, cached, passes * rows * (weights + attention))


def output(net: Network, passes: float, rows: float, *, name: str = "output") -> Phase:
    """Return the ranking of tokens; rows of a shortlist are a sentence's own, the whole vocabulary is shared."""
    weights = net.shortlist * net.width
    shared = net.shortlist == net.vocabulary
    read = weights * net.weight_bytes
    return Phase(name, passes, read * shared, read * (not shared), passes * rows * weights)


def stepwise(net: Network, layers: tuple[int, int], tokens: int, step: int) -> list[Phase]:
    steps = math.ceil(tokens / step)
    parts = [encoder(net, layers[0]), memories(net, layers[1])]
    return [*parts, decoder(net, layers[1], steps, step, tokens / 2), output(net, steps, step)]


def graph(net: Network, layers: tuple[int, int], factor: float) -> list[Phase]:
    """Return the cost of a graph: all vertices, their links (two projections and a product) and their tokens."""
    vertices = factor * net.source
    links = 2 * net.width**2
    return [
        encoder(net, layers[0]),
        memories(net, layers[1]),
        decoder(net, layers[1], 1, vertices, vertices),
        Phase("links", 1, links * net.weight_bytes, 0, vertices * links + vertices**2 / 2 * net.width),
        output(net, 1, vertices),
    ]


def lattice(net: Network, layers: tuple[int, int], candidates: int, positions: int) -> list[Phase]:
    """Return the cost of a lattice whose candidates are each read once, and scored against those of the next slot."""
    rows = candidates * positions
    products = rows * candidates * net.width
    parts = [encoder(net, layers[0]), memories(net, layers[1]), decoder(net, layers[1], 1, rows, 1)]
    return [*parts, Phase("edges", 1, 0, rows * net.width * net.weight_bytes, products)]


def slots(net: Network, layers: tuple[int, int], upsampling: int, passes: int) -> list[Phase]:
    rows = upsampling * net.source
    parts = [encoder(net, layers[0]), memories(net, layers[1])]
    return [*parts, decoder(net, layers[1], passes, rows, rows), output(net, passes, rows)]


def drafts(
    net: Network, layers: tuple[int, int], tokens: int, width: int, drafter: tuple[int, int], *, accepted: bool, one_by_one: bool
) -> list[Phase]:
    """Return the cost of drafts of `width` tokens that are all accepted, or of three blocks of which none is, and of the greedy
    search that follows them."""
    blocks = math.ceil(tokens / (width + 1)) if accepted else 3
    verified = blocks
    alone = 0 if accepted else tokens - blocks
    passes, rows = (blocks * width, 1) if one_by_one else (blocks, width)
    return [
        encoder(net, layers[0] + drafter[0]),
        memories(net, layers[1] + drafter[1]),
        decoder(net, drafter[1], passes, rows, tokens / 2, name="drafter"),
        output(net, passes, rows, name="drafter's output"),
        decoder(net, layers[1], verified, width + 1, tokens / 2, name="verifier"),
        output(net, verified, width + 1, name="verifier's output"),
        decoder(net, layers[1], alone, 1, tokens / 2, name="verifier alone"),
        output(net, alone, 1, name="verifier's output alone"),
    ]


READ_MIB = 128
"""Memory that is read over and over: more than a core's caches, and about the weights of two networks of 8 bits."""
ROWS = 1024
"""Rows and columns of the products."""
TRIALS = 9


class Limits(NamedTuple):
    """The limits of a number of threads."""

    bandwidth: float
    """Bytes a second."""
    peak: float
    """8-bit multiply-adds a second."""


def fastest(call: Callable[[], object]) -> float:
    """Return the shortest of several times of a call, in seconds. The first call is not counted."""
    call()
    times = []
    for _ in range(TRIALS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def measure_limits(threads: int) -> Limits:
    """Return the limits of `threads` threads."""
    left = torch.ones(ROWS, ROWS, dtype=torch.int8)
    torch.set_num_threads(threads)
    products = fastest(lambda: torch._int_mm(left, left))
    torch.set_num_threads(1)
    parts = [part.chunk(2) for part in torch.ones(READ_MIB * 2**18).chunk(threads)]
    with ThreadPoolExecutor(threads) as pool:
        seconds = fastest(lambda: list(pool.map(lambda halves: torch.dot(*halves), parts)))
    return Limits(READ_MIB * 2**20 / seconds, ROWS**3 / products)
