"""Small corpora with links, and the candidate tables of them."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fewstep
from fewstep import CandidateOptions, CandidateTables
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from kernels.reference.candidates import Pair, ReferenceTables
from tests.shared import public_data

A, B = 10, 11
U, V, W = 20, 21, 22
SMALL = [([A, B], [U, V], [0, 1]), ([A, B], [V, U], [1, 0]), ([A, B], [U, W], [0, 1])]
"""`A B -> u v (0-0 1-1)`, `A B -> v u (1-0 0-1)`, `A B -> u w (0-0 1-1)`."""

COUNTING = CountOptions(source_size=32, target_size=32)
CUTTING = TableOptions()


def build(
    shards: Sequence[Sequence[Pair]],
    directory: Path,
    counting: CountOptions = COUNTING,
    options: TableOptions = CUTTING,
) -> CandidateTables:
    directory.mkdir(parents=True, exist_ok=True)
    runs = []
    for index, pairs in enumerate(shards):
        columns = [list(column) for column in zip(*pairs, strict=True)] or [[], [], []]
        source, target, links = (Sentences.of(column) for column in columns)
        runs.append(directory / f"{index}.run")
        count_candidates(source, target, links.values, runs[-1], options=counting)
    merge_candidates(runs, directory / "tables.bin", options=options)
    return CandidateTables.load(directory / "tables.bin")


def column(tables: CandidateTables, source: Sequence[int], slot: int, count: int = 8) -> dict[int, float]:
    """Return the candidates of one slot in order, with their probabilities."""
    options = CandidateOptions(candidates=count)
    found = fewstep.lattice_candidates(tables, [list(source)], [len(source)], num_slots=[slot + 1], options=options)
    pairs = zip(found.token_ids[0, slot].tolist(), found.log_probs[0, slot].tolist(), strict=True)
    return {y: math.exp(value) for y, value in pairs if y >= 0}


def close(found: dict[int, float], expected: dict[int, float]) -> bool:
    """Assert equal ids in equal order, with values that are equal up to rounding."""
    return list(found) == list(expected) and list(found.values()) == pytest.approx(list(expected.values()), rel=1e-12)


def random_pairs(generator: random.Random, count: int, pieces: int = 32, longest: int = 8) -> list[Pair]:
    pairs: list[Pair] = []
    for _ in range(count):
        source = [generator.randrange(pieces) for _ in range(generator.randrange(longest + 1))]
        target = [generator.randrange(pieces) for _ in range(generator.randrange(longest + 1))]
        links = [generator.randrange(-1, len(source)) for _ in target]
        pairs.append((source, target, links))
    return pairs


def reference_of(pairs: Sequence[Pair], **options: Any) -> ReferenceTables:
    reference = ReferenceTables(**options)
    reference.add(pairs)
    return reference


def real_pairs() -> list[Pair]:
    """Return 5,000 pairs of Multi30k, words numbered from 7, with the forward links of fast_align."""
    golden = public_data("golden")
    numbers: dict[str, int] = {}
    pairs: list[Pair] = []
    texts = zip(*((golden / f"fast_align.{name}").read_text().splitlines() for name in ("pairs.txt", "forward.links")), strict=True)
    for text, linked in texts:
        source, target = ([numbers.setdefault(word, 7 + len(numbers)) for word in side.split()] for side in text.split(" ||| "))
        links = [-1] * len(target)
        for link in linked.split():
            position, slot = map(int, link.split("-"))
            links[slot] = position
        pairs.append((source, target, links))
    return pairs
