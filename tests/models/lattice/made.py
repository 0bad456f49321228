"""Small networks, candidate tables and lattices that the tests of the lattice share."""

import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewstep.candidates import CandidateTables
from fewstep.config.network import Sizes
from fewstep.families.lattice.config import LatticeModelConfig
from fewstep.families.lattice.paths import Lattice
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from models.lattice.model import LatticeModel

SMALL = LatticeModelConfig(
    width=16, feed_forward=24, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.1, max_positions=32, segment_length=2
)
SIZE = 17


def network(seed: int = 0, **changes: Any) -> LatticeModel:
    """Return a network whose weights, biases and norms are all far from their initial values."""
    torch.manual_seed(seed)
    model = LatticeModel(dataclasses.replace(SMALL, **changes), Sizes(SIZE, SIZE, True))
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                weights.add_(torch.randn_like(weights) * 0.3)
        model.target_embedding.weight.mul_(3.0)
    return model.eval()


def counted(path: Path, pairs: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]], size: int = SIZE) -> CandidateTables:
    """Return tables counted from (source, target, links)."""
    source, target, links = (Sentences.of([pair[side] for pair in pairs]) for side in range(3))
    run = path.with_suffix(".run")
    count_candidates(source, target, links.values, run, options=CountOptions(source_size=size, target_size=size))
    merge_candidates([run], path, options=TableOptions())
    return CandidateTables.load(path)


def usual_pairs(seed: int = 1, count: int = 200, size: int = SIZE) -> list[tuple[list[int], list[int], list[int]]]:
    """Draw pairs whose token 7 + i mostly becomes itself, with some adjacent tokens swapped and some tokens added."""
    generator = random.Random(seed)
    found = []
    for _ in range(count):
        source = [generator.randrange(7, size) for _ in range(generator.randrange(1, 7))]
        order = sorted(range(len(source)), key=lambda place: place + 1.6 * generator.random())
        if generator.random() < 0.3:
            order.append(order[-1])
        target = [7 + (source[place] - 7 + (generator.random() < 0.3)) % (size - 7) for place in order]
        found.append((source, target, order))
    return found


def random_lattice(generator: random.Random, batch: int, size: int, width: int) -> Lattice:
    """Return scores, minus infinity for missing candidates."""
    draw = np.random.default_rng(generator.randrange(2**31))
    shapes = (batch, width), (batch, size - 1, width, width), (batch, size, width)
    start, edges, exits = (-3 * draw.random(shape) for shape in shapes)
    missing = draw.random((batch, size, width)) < 0.15
    start[missing[:, 0]] = -np.inf
    edges[np.broadcast_to(missing[:, 1:, None], edges.shape) | np.broadcast_to(missing[:, :-1, :, None], edges.shape)] = -np.inf
    exits[missing] = -np.inf
    return Lattice(start, edges, exits)


def all_paths(lattice: Lattice, row: int, least: int, most: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield every path of a lattice with its score."""
    size, width = lattice.exits.shape[1:]
    for length in range(max(1, least), min(most, size) + 1):
        for path in itertools.product(range(width), repeat=length):
            steps = sum(float(lattice.edges[row, p, i, j]) for p, (i, j) in enumerate(itertools.pairwise(path)))
            yield float(lattice.start[row, path[0]]) + steps + float(lattice.exits[row, length - 1, path[-1]]), path
