"""Text infilling: spans of a text are masked, and a network learns to write them from the rest.

This is the task of pre-training of Huang, Ke and Huang (2023, PreDAT). Legend: n tokens of a text, m of them masked, in k spans.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fewstep.sources import Ints
from fewstep.vocabulary import BOS, MASK
from models.training.batch import Pool, Ragged
from models.training.config import Infilling
from models.training.seeds import seed_of

Tokens = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def span_counts(lengths: Ints, config: Infilling) -> tuple[Ints, Ints]:
    """Return the numbers of masked tokens and of spans [N] of texts with these lengths [N]."""
    masked = np.minimum(lengths, np.maximum(1, np.floor(lengths * config.masked_share + 0.5).astype(np.int64)))
    wanted = np.floor(masked / config.mean_span_tokens + 0.5).astype(np.int64)
    return masked, np.clip(wanted, 1, np.minimum(masked, lengths - masked + 1))


def infilled_lengths(lengths: Ints, config: Infilling) -> tuple[Ints, Ints]:
    """Return the lengths [N] of the sources and of the targets of texts with these lengths [N], all without EOS."""
    masked, spans = span_counts(lengths, config)
    return lengths - masked + spans, lengths if config.target == "text" else np.maximum(0, masked + spans - 1)


def infill(pool: Pool, config: Infilling, seed: int) -> Pool:
    """Return the pairs of texts with masked spans, from the sources of a pool.

    A source is its text with one mask token in place of each span. The spans of a text are a function of the seed, its id and its
    length alone, not of the other texts.
    """
    values, offsets = pool.source
    starts, ends, row_starts = _spans(pool, config, seed)
    first = np.zeros(len(values), bool)
    step = np.zeros(len(values) + 1, np.int64)
    first[starts] = True
    step[starts] += 1
    step[ends] -= 1
    hidden = np.cumsum(step)[:-1] > 0
    source = _repeated(np.where(first, values.dtype.type(MASK), values), offsets, (~hidden | first).astype(np.int64))
    if config.target == "text":
        return Pool(pool.ids, source, pool.source)
    separated = first.copy()
    separated[row_starts] = False
    separator = BOS if config.target == "segments" else MASK
    return Pool(pool.ids, source, _with_separators(values, offsets, hidden, separated, separator))


def _spans(pool: Pool, config: Infilling, seed: int) -> tuple[Ints, Ints, Ints]:
    """The first positions and the ends of all spans in the values of a pool, and the first positions of the first spans of rows."""
    lengths = pool.source.lengths
    counts = zip(*span_counts(lengths, config), strict=True)
    starts, ends, firsts = [], [], []
    for row, (masked, spans) in enumerate(counts):
        if spans == 0:
            continue
        generator = np.random.Generator(np.random.Philox(seed_of(seed, int(pool.ids[row]))))
        start, size = draw_spans(int(lengths[row]), int(masked), int(spans), generator)
        start = start + pool.source.offsets[row]
        starts.append(start)
        ends.append(start + size)
        firsts.append(start[:1])
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *starts]), np.concatenate([none, *ends]), np.concatenate([none, *firsts])


def draw_spans(length: int, masked: int, spans: int, generator: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the first positions and the sizes [k] of random spans of a text of `length` tokens.

    Their sizes differ by at most one token; the tokens that are not masked fall into the gaps before, between and after spans by a
    multinomial distribution with equal probabilities, after one token for each gap between spans.
    """
    sizes = masked // spans + (generator.permutation(spans) < masked % spans)
    gaps = generator.multinomial(length - masked - (spans - 1), np.full(spans + 1, 1 / (spans + 1)))
    gaps[1:-1] += 1
    return np.cumsum(gaps[:-1]) + np.cumsum(sizes) - sizes, sizes


def _repeated(values: Tokens, offsets: Ints, counts: Ints) -> Ragged:
    """Rows in which each token is repeated `counts` times."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Ragged(np.repeat(values, counts), total[offsets])


def _with_separators(values: Tokens, offsets: Ints, hidden: Mask, separated: Mask, separator: int) -> Ragged:
    """The hidden tokens of each row, with the separator in front of those that are `separated`."""
    counts = hidden.astype(np.int64) + separated
    rows = _repeated(values, offsets, counts)
    rows.values[np.cumsum(counts)[separated] - 2] = separator
    return rows
