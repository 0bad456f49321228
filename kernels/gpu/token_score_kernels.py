"""The Triton kernels of `kernels.gpu.token_scores`, which documents and calls them.

A program processes one row of logits, `block` of them at a time. Logits are widened to single precision.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _read(row, allowed, size, block: tl.constexpr, restricted: tl.constexpr, two: tl.constexpr):
    """Return the normaliser log sum_v exp(x_v), the sum of x_v, and the first highest of the allowed x_v with its place, followed
    by the first highest of the others with its place if `two`, else by the same again.

    Each lane keeps its own sum, relative to the highest logit so far, and its own best ones.
    """
    lane = tl.arange(0, block)
    top = tl.full([], float("-inf"), tl.float32)
    total, plain = tl.zeros([block], tl.float32), tl.zeros([block], tl.float32)
    best, places = tl.full([block], float("-inf"), tl.float32), tl.full([block], 2147483647, tl.int32)
    next_best, next_places = best, places
    for start in range(0, size, block):
        v = start + lane
        x = tl.load(row + v, mask=v < size, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.exp(x - base)
        plain += tl.where(v < size, x, 0.0)
        top = higher
        if restricted:
            x = tl.where(tl.load(allowed + v, mask=v < size, other=0) != 0, x, float("-inf"))
        better = (x > best) | ((places == 2147483647) & (v < size))
        if two:
            second = (x > next_best) | ((next_places == 2147483647) & (v < size))
            next_best = tl.where(better, best, tl.where(second, x, next_best))
            next_places = tl.where(better, places, tl.where(second, v, next_places))
        best, places = tl.where(better, x, best), tl.where(better, v, places)
    highest, place = _first_highest(best, places, size)
    normaliser = tl.where(top == float("-inf"), 0.0, top) + tl.log(tl.sum(total, 0))
    next_highest, next_place = highest, place
    if two:
        taken = places == place
        next_highest, next_place = _first_highest(tl.where(taken, next_best, best), tl.where(taken, next_places, places), size)
    return normaliser, tl.sum(plain, 0), highest, place, next_highest, next_place


@triton.jit
def _first_highest(values, places, size):
    """Return the highest value and the lowest place that has it; a place below `size` for NaN, which has none."""
    highest = tl.max(values, 0)
    return highest, tl.minimum(tl.min(tl.where(values == highest, places, 2147483647), 0), size - 1)


@triton.jit
def scores(
    logits,
    targets,
    rows,
    found,
    normalisers,
    best,
    size,
    most,
    vertices,
    smoothing,
    with_best: tl.constexpr,
    block: tl.constexpr,
    many: tl.constexpr,
):
    """Compute (1 - e) x[y_t] + e mean_v x_v - n for the tokens of a row's sentence, the normaliser n, and the best token."""
    r = tl.program_id(0).to(tl.int64)
    at = tl.load(rows + r)
    sentence, vertex = at // vertices, at % vertices
    row = logits + r * size
    normaliser, plain, _, place, _, _ = _read(row, row, size, block, False, False)
    tl.store(normalisers + r, normaliser)
    if with_best:
        tl.store(best + at, place)
    mean = tl.where(smoothing > 0.0, smoothing * (plain / size), 0.0)  # a logit of minus infinity counts only with smoothing
    for start in range(0, most, many):
        t = start + tl.arange(0, many)
        y = tl.load(targets + sentence * most + t, mask=t < most, other=0)
        x = tl.load(row + y, mask=t < most, other=0.0).to(tl.float32)
        tl.store(found + (sentence * most + t) * vertices + vertex, (1.0 - smoothing) * x + mean - normaliser, mask=t < most)


@triton.jit
def gradients(
    logits,
    targets,
    rows,
    upstream,
    normalisers,
    size,
    most,
    vertices,
    smoothing,
    penalty,
    block: tl.constexpr,
    many: tl.constexpr,
):
    """Replace a row by sum_t u_t ((1 - e) [y_t = v] + e / V - (1 + 2 c n) exp(x_v - n)), u being the `upstream` of its vertex.

    The logits of its sentence's tokens are read before the row is written; a token that occurs more than once is written as often,
    each time with the sum over all of its places.
    """
    r = tl.program_id(0).to(tl.int64)
    at = tl.load(rows + r)
    sentence, vertex = at // vertices, at % vertices
    row = logits + r * size
    normaliser = tl.load(normalisers + r)
    ids = targets + sentence * most
    given = upstream + sentence * most * vertices + vertex
    t = tl.arange(0, many)
    y = tl.load(ids + t, mask=t < most, other=-1)
    x = tl.load(row + y, mask=t < most, other=0.0).to(tl.float32)
    total = tl.sum(tl.load(given + t * vertices, mask=t < most, other=0.0), 0)
    factor = total * (1.0 + 2.0 * penalty * normaliser)
    share = total * (smoothing / size)
    own = tl.zeros([many], tl.float32)
    for place in range(0, most):
        own += tl.where(y == tl.load(ids + place), tl.load(given + place * vertices), 0.0)
    for start in range(0, size, block):
        v = start + tl.arange(0, block)
        z = tl.load(row + v, mask=v < size, other=0.0).to(tl.float32)
        tl.store(row + v, share - factor * tl.exp(z - normaliser), mask=v < size)
    tl.debug_barrier()
    tl.store(row + y, share - factor * tl.exp(x - normaliser) + (1.0 - smoothing) * own, mask=t < most)


@triton.jit
def best_tokens(logits, allowed, normalisers, highest, best, size, count: tl.constexpr, block: tl.constexpr):
    """Compute the normaliser of a row, and its `count` (one or two) highest allowed logits and the first tokens that have them."""
    r = tl.program_id(0).to(tl.int64)
    normaliser, _, top, place, next_top, next_place = _read(logits + r * size, allowed, size, block, True, count == 2)
    tl.store(normalisers + r, normaliser)
    tl.store(highest + r * count, top)
    tl.store(best + r * count, place)
    if count == 2:
        tl.store(highest + r * count + 1, next_top)
        tl.store(best + r * count + 1, next_place)
