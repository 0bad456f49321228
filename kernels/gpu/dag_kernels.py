"""The Triton kernels of `kernels.gpu.dag`, which documents and calls them.

A Triton program of `sums` processes one sentence; its threads synchronise at a barrier and communicate through memory. m
and n are the sentence's own M and L: token t can only be at t <= j <= L - M + t, and at the ends only at 0 and L - 1; arrays hold
minus infinity elsewhere. A transition from i to j is cell j - i - 1 of row i, which has `band` cells. Where all values are minus
infinity, 0 is subtracted instead of the highest, so that no NaN arises.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def possible(m, n, max_tokens, max_vertices):
    """Return whether a path of the right length exists and the arrays contain it."""
    return (m >= 1) & (m <= n) & (m <= max_tokens) & (n <= max_vertices) & ((m > 1) | (n == 1))


@triton.jit
def on_path(i, j, m, n):
    """Return whether some path of m tokens from 0 to n - 1 takes the step from i to j: one of its tokens can be at both ends."""
    from_start = (i == 0) & (j <= n - m + 1) & ((j == n - 1) == (m == 2))
    to_end = (i > 0) & (j == n - 1) & (m > 2) & (i >= m - 2)
    between = tl.maximum(2, j - (n - m)) <= tl.minimum(m - 2, i + 1)
    return (j > i) & (j < n) & (from_start | to_end | ((i > 0) & (j < n - 1) & between))


@triton.jit
def exponentials(
    transitions,
    target_lengths,
    graph_lengths,
    highest,
    scaled,
    result,
    max_tokens,
    max_vertices,
    band,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    """Compute highest[i] = max_j transition[i,j] and scaled[i,j] = exp(transition[i,j] - highest[i]) for `rows` vertices i.

    Both are 0 where no path leads on. Where a path meets NaN or plus infinity, scaled is 0 and `result` NaN.
    """
    b = tl.program_id(0).to(tl.int64)
    m, n = tl.load(target_lengths + b), tl.load(graph_lengths + b)
    if possible(m, n, max_tokens, max_vertices):
        i = tl.program_id(1) * rows + tl.arange(0, rows)
        rows_of_cells = (b * max_vertices + i)[:, None] * band
        top = tl.full([rows], float("-inf"), transitions.dtype.element_ty)
        broken = tl.zeros([rows], tl.int32)
        for start in range(0, tl.minimum(band, n), columns):
            gap = (start + tl.arange(0, columns))[None, :]
            leads = (gap < band) & on_path(i[:, None], i[:, None] + 1 + gap, m, n)
            edges = tl.load(transitions + rows_of_cells + gap, mask=leads, other=float("-inf"))
            broken = tl.maximum(broken, tl.max(tl.where(edges < float("inf"), 0, 1), 1))
            top = tl.maximum(top, tl.max(tl.where(edges < float("inf"), edges, float("-inf")), 1))
        top = tl.where(top == float("-inf"), 0.0, top)
        for start in range(0, tl.minimum(band, n), columns):
            gap = (start + tl.arange(0, columns))[None, :]
            leads = (gap < band) & on_path(i[:, None], i[:, None] + 1 + gap, m, n)
            edges = tl.load(transitions + rows_of_cells + gap, mask=leads, other=float("-inf"))
            inside = (i < max_vertices)[:, None] & (gap < band)
            tl.store(scaled + rows_of_cells + gap, tl.where(edges < float("inf"), tl.exp(edges - top[:, None]), 0.0), mask=inside)
        tl.store(highest + b * max_vertices + i, top, mask=i < max_vertices)
        if tl.max(broken, 0) > 0:
            tl.store(result + b, float("nan"))


@triton.jit
def _cells(array, q, p, n, band, reverse: tl.constexpr, other: tl.constexpr):
    """Return [Q,P], the steps from places q to places p of a chain, `other` in places without one."""
    if reverse:  # consecutive threads read consecutive cells
        gap = p[:, None] - q[None, :] - 1
        leads = (gap >= 0) & (gap < band) & (p[:, None] < n)
        cells = tl.trans(tl.load(array + (n - 1 - p)[:, None] * band + gap, mask=leads, other=other))
    else:
        gap = p[None, :] - q[:, None] - 1
        leads = (gap >= 0) & (gap < band) & (p[None, :] < n)
        cells = tl.load(array + q[:, None] * band + gap, mask=leads, other=other)
    return cells


@triton.jit
def _log_sum(transitions, row, p, first, past, n, band, reverse: tl.constexpr, many: tl.constexpr, few: tl.constexpr):
    """Return log sum_q exp(value[q] + transition[q,p]) for places first <= q < past in log space, for any scores."""
    top = tl.full([many], float("-inf"), transitions.dtype.element_ty)
    total = tl.zeros([many], transitions.dtype.element_ty)
    for place in range(first, past, few):
        q = place + tl.arange(0, few)
        before = tl.load(row + (n - 1 - q if reverse else q), mask=q < n, other=float("-inf"))
        scores = before[:, None] + _cells(transitions, q, p, n, band, reverse, float("-inf"))
        scores = tl.where((before > float("-inf"))[:, None], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(scores - base[None, :]), 0)
        top = higher
    return tl.where(top == float("-inf"), 0.0, top) + tl.log(total)


@triton.jit
def _sum_tiles_before(
    value,
    raises,
    scaled,
    partial,
    tops,
    lows,
    start,
    s,
    m,
    n,
    stride,
    band,
    reverse: tl.constexpr,
    many: tl.constexpr,
    few: tl.constexpr,
):
    """Write, for steps s [S] and the places from `start` on, the sums over all places of earlier tiles [S,P], the scores that they
    are relative to [S], and the first places with a path [S]."""
    p = start + tl.arange(0, many)
    top = tl.full(s.shape, float("-inf"), value.dtype.element_ty)
    low = tl.full(s.shape, 2147483647, tl.int32)
    total = tl.zeros([s.shape[0], many], value.dtype.element_ty)
    t = m - s if reverse else s - 1
    for place in range(tl.maximum(0, start - band) // few * few, start, few):
        q = place + tl.arange(0, few)
        at = n - 1 - q if reverse else q
        before = tl.load(value + t[:, None] * stride + at[None, :], mask=(s < m)[:, None] & (q < n)[None, :], other=float("-inf"))
        low = tl.minimum(low, tl.min(tl.where(before > float("-inf"), q[None, :], 2147483647).to(tl.int32), 1))
        raised = before if reverse else before + tl.load(raises + q, mask=q < n, other=0.0)[None, :]
        higher = tl.maximum(top, tl.max(raised, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total *= tl.exp(top - base)[:, None]
        cells = _cells(scaled, q, p, n, band, reverse, 0.0)
        total += tl.dot(tl.exp(raised - base[:, None]), cells, input_precision="ieee", out_dtype=value.dtype.element_ty)
        top = higher
    inside = s < m
    tl.store(partial + s[:, None] * many + tl.arange(0, many)[None, :], total, mask=inside[:, None])
    tl.store(tops + s, top, mask=inside)
    tl.store(lows + s, low, mask=inside)


@triton.jit
def _chain(
    tokens,
    transitions,
    raises,
    scaled,
    value,
    partial,
    tops,
    lows,
    m,
    n,
    stride,
    band,
    tiny: tl.constexpr,
    reverse: tl.constexpr,
    many: tl.constexpr,
    few: tl.constexpr,
    steps: tl.constexpr,
):
    """Compute alpha, or beta if `reverse`.

    Step s at place p is token s at vertex p, in reverse token m - 1 - s at vertex n - 1 - p, so that places lead to higher ones.

    Tiles of places follow each other. The sums over the places of earlier tiles are products of matrices, for `steps` steps at a
    time; those over the tile's own places are computed step by step, with the tile of transitions in registers.
    """
    end = (m - 1) * stride + n - 1 if reverse else 0
    tl.store(value + end, tl.load(tokens + end))
    for start in range(0, n, many):
        first_step = tl.maximum(1, start - (n - m))
        past_step = tl.minimum(m, start + many)
        tl.debug_barrier()
        for step in range(first_step, past_step, steps):
            s = step + tl.arange(0, steps)
            _sum_tiles_before(value, raises, scaled, partial, tops, lows, start, s, m, n, stride, band, reverse, many, few)
        tl.debug_barrier()
        p = start + tl.arange(0, many)
        vertex = n - 1 - p if reverse else p
        raise_by = tl.load(raises + vertex, mask=p < n, other=0.0)
        own = _cells(scaled, p, p, n, band, reverse, 0.0)
        t = m - first_step if reverse else first_step - 1
        before = tl.load(value + t * stride + vertex, mask=p < n, other=float("-inf"))
        for s in range(first_step, past_step):
            t = m - 1 - s if reverse else s
            can = (p >= s) & (p <= n - m + s) & ((p == n - 1) == (s == m - 1))
            emitted = tl.load(tokens + t * stride + vertex, mask=can, other=float("-inf"))
            earlier = tl.load(partial + s * many + tl.arange(0, many))
            top_before = tl.load(tops + s)
            raised = before if reverse else before + raise_by
            top = tl.maximum(top_before, tl.max(raised, 0))
            base = tl.where(top == float("-inf"), 0.0, top)
            total = tl.sum(tl.exp(raised - base)[:, None] * own, 0) + earlier * tl.exp(top_before - base)
            found = base + tl.log(total)
            if reverse:
                found += raise_by
            low = tl.minimum(tl.load(lows + s), tl.min(tl.where(before > float("-inf"), p, 2147483647).to(tl.int32), 0))
            inexact = (emitted > float("-inf")) & (p > low) & (total < tiny)
            if tl.max(inexact.to(tl.int32), 0) > 0:
                tl.debug_barrier()
                row = value + (t + 1 if reverse else t - 1) * stride
                first = tl.maximum(0, start - band) // few * few
                found = _log_sum(transitions, row, p, first, start + many, n, band, reverse, many, few)
            before = tl.where(can, found + emitted, float("-inf"))
            tl.store(value + t * stride + vertex, before, mask=can)


@triton.jit
def sums(
    tokens,
    transitions,
    highest,
    scaled,
    target_lengths,
    graph_lengths,
    values,
    partial,
    tops,
    lows,
    result,
    max_tokens,
    max_vertices,
    band,
    tiny: tl.constexpr,
    many: tl.constexpr,
    few: tl.constexpr,
    steps: tl.constexpr,
):
    """Compute alpha and `result` of sentence program_id(0) if program_id(1) is 0, else beta; they are the first and the second half
    of `values`.

    With the arrays of `exponentials`, a step multiplies exp(alpha[i] + highest[i] - top) by scaled[i,j]: an exponential for every
    edge of the graph instead of one for every edge and token. Vertices whose sum is below `tiny`, so that terms may have
    underflowed, are summed in log space.
    """
    b = tl.program_id(0).to(tl.int64)
    m, n = tl.load(target_lengths + b), tl.load(graph_lengths + b)
    if possible(m, n, max_tokens, max_vertices):
        side = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + b
        here, corner = b * max_tokens * max_vertices, b * max_vertices * band
        tokens += here
        transitions += corner
        scaled += corner
        highest += b * max_vertices
        values += side * max_tokens * max_vertices
        partial += side * max_tokens * many
        tops += side * max_tokens
        lows += side * max_tokens
        given = tokens, transitions, highest, scaled, values, partial, tops, lows
        if tl.program_id(1) == 0:
            _chain(*given, m, n, max_vertices, band, tiny, False, many, few, steps)
            tl.debug_barrier()
            found = tl.load(values + (m - 1) * max_vertices + n - 1)
            if found < float("inf"):  # else NaN, or plus infinity
                found += tl.where(tl.load(result + b) == float("-inf"), 0.0, float("nan"))
            else:
                found = tl.full([], float("nan"), found.dtype)
            tl.store(result + b, found)
        else:
            _chain(*given, m, n, max_vertices, band, tiny, True, many, few, steps)


@triton.jit
def token_gradients(tokens, values, result, upstream, gradients, per_sentence, betas, block: tl.constexpr):
    """Compute `block` gradients of tokens: exp(alpha[t,j] + beta[t,j] - token[t,j] - log Z)."""
    b = tl.program_id(0).to(tl.int64)
    cell = tl.program_id(1) * block + tl.arange(0, block)
    inside = cell < per_sentence
    cell += b * per_sentence
    log_z = tl.load(result + b)
    gradient = tl.zeros([block], tokens.dtype.element_ty)
    if (log_z > float("-inf")) & (log_z < float("inf")):
        before = tl.load(values + cell, mask=inside, other=float("-inf"))
        after = tl.load(values + betas + cell, mask=inside, other=float("-inf"))
        met = (before > float("-inf")) & (after > float("-inf"))
        token = tl.load(tokens + cell, mask=met, other=0.0)
        share = tl.exp(tl.minimum(before + after - token - log_z, 0.0))
        gradient = tl.where(met, share, 0.0) * tl.load(upstream + b)
    tl.store(gradients + cell, gradient, mask=inside)


@triton.jit
def transition_gradients(
    transitions,
    highest,
    scaled,
    target_lengths,
    graph_lengths,
    values,
    result,
    upstream,
    gradients,
    max_tokens,
    max_vertices,
    band,
    rows: tl.constexpr,
    columns: tl.constexpr,
    steps: tl.constexpr,
):
    """Compute a tile of a sentence: sum_t exp(alpha[t,i] + transition[i,j] + beta[t+1,j] - log Z). It has row group program_id(1),
    and column group program_id(2) counted from the first vertex after the first row.

    A token adds the product of a column exp(alpha[t,i] + highest[i] - a) and a row exp(beta[t+1,j] - b), where a and b are the
    maxima, times exp(a + b - log Z), so that `steps` tokens are a product of matrices; the sum is multiplied by scaled[i,j]. Where
    that factor is large, and the product of the maxima therefore on no likely path, the token's terms are computed one by one.
    """
    b = tl.program_id(0).to(tl.int64)
    m, n = tl.load(target_lengths + b), tl.load(graph_lengths + b)
    i = tl.program_id(1) * rows + tl.arange(0, rows)
    j = tl.program_id(1) * rows + 1 + tl.program_id(2) * columns + tl.arange(0, columns)
    gap = j[None, :] - i[:, None] - 1
    inside = (i < max_vertices)[:, None] & (gap >= 0) & (gap < band)
    cells = (b * max_vertices + i)[:, None] * band + gap
    log_z = tl.load(result + b)
    total = tl.zeros([rows, columns], transitions.dtype.element_ty)
    if possible(m, n, max_tokens, max_vertices) & (log_z > float("-inf")) & (log_z < float("inf")):
        alpha = values + b * max_tokens * max_vertices
        beta = alpha + tl.num_programs(0).to(tl.int64) * max_tokens * max_vertices
        leads = inside & on_path(i[:, None], j[None, :], m, n)
        raise_by = tl.load(highest + b * max_vertices + i, mask=i < n, other=0.0)
        products = tl.zeros([rows, columns], transitions.dtype.element_ty)
        first = tl.maximum(tl.program_id(1) * rows - (n - m), 0)
        past = tl.minimum(tl.program_id(1) * rows + rows, m - 1)
        past = tl.where(tl.program_id(1) * rows + 1 + tl.program_id(2) * columns < n, past, 0)
        for step in range(first, past, steps):
            t = step + tl.arange(0, steps)
            taken = (t < past)[:, None]
            before = tl.load(alpha + t[:, None] * max_vertices + i[None, :], mask=taken & (i < n)[None, :], other=float("-inf"))
            after = tl.load(beta + (t + 1)[:, None] * max_vertices + j[None, :], mask=taken & (j < n)[None, :], other=float("-inf"))
            raised = before + raise_by[None, :]
            most_before, most_after = tl.max(raised, 1), tl.max(after, 1)
            met = (most_before > float("-inf")) & (most_after > float("-inf"))
            factor = tl.where(met, most_before + most_after - log_z, float("-inf"))
            likely = factor < 60.0
            weights = tl.exp(tl.where(likely, factor, float("-inf")))
            columns_of_t = tl.exp(raised - tl.where(met, most_before, 0.0)[:, None]) * weights[:, None]
            rows_of_t = tl.exp(after - tl.where(met, most_after, 0.0)[:, None])
            products += tl.dot(tl.trans(columns_of_t), rows_of_t, input_precision="ieee", out_dtype=products.dtype)
            if tl.min(likely.to(tl.int32), 0) == 0:
                edges = tl.load(transitions + cells, mask=leads, other=float("-inf")) - log_z
                for at in range(step, tl.minimum(step + steps, past)):
                    one = tl.load(alpha + at * max_vertices + i, mask=i < n, other=float("-inf"))
                    other = tl.load(beta + (at + 1) * max_vertices + j, mask=j < n, other=float("-inf"))
                    if tl.max(one + raise_by, 0) + tl.max(other, 0) - log_z >= 60.0:
                        both = (one > float("-inf"))[:, None] & (other > float("-inf"))[None, :]
                        terms = tl.exp(tl.minimum(one[:, None] + edges + other[None, :], 0.0))
                        total += tl.where(both, terms, 0.0)
        weights_of_cells = tl.load(scaled + cells, mask=leads, other=0.0)
        total += tl.where(products > 0.0, products * weights_of_cells, 0.0)
        total *= tl.load(upstream + b)
    tl.store(gradients + cells, total, mask=inside)
