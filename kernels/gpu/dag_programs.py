"""The Triton programs of `kernels.gpu.dag`, which documents and calls them.

A program of `sums` or `best_paths` processes one sentence; its steps synchronise at a barrier and communicate through memory. m and
n are the sentence's own M and L: token t can only be at t <= j <= L - M + t, and at the ends only at 0 and L - 1; arrays hold minus
infinity elsewhere. A transition from i to j is cell j - i - 1 of row i, which has `band` cells. Where all values are minus
infinity, 0 is subtracted instead of the highest, so that no NaN arises.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _possible(m, n, max_tokens, max_vertices):
    """Return whether a path of the right length exists and the arrays contain it."""
    return (m >= 1) & (m <= n) & (m <= max_tokens) & (n <= max_vertices) & ((m > 1) | (n == 1))


@triton.jit
def exponentials(
    transitions,
    target_lengths,
    graph_lengths,
    highest,
    scaled,
    max_tokens,
    max_vertices,
    band,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    """Compute highest[i] = max_j transition[i,j] and scaled[i,j] = exp(transition[i,j] - highest[i]) for `rows` vertices i.

    Both are 0 where no path leads on.
    """
    b = tl.program_id(0).to(tl.int64)
    m, n = tl.load(target_lengths + b), tl.load(graph_lengths + b)
    if _possible(m, n, max_tokens, max_vertices):
        i = tl.program_id(1) * rows + tl.arange(0, rows)
        rows_of_cells = (b * max_vertices + i)[:, None] * band
        top = tl.full([rows], float("-inf"), transitions.dtype.element_ty)
        for start in range(0, tl.minimum(band, n), columns):
            gap = (start + tl.arange(0, columns))[None, :]
            leads = (gap < band) & (gap <= n - m) & (i[:, None] + 1 + gap < n)
            edges = tl.load(transitions + rows_of_cells + gap, mask=leads, other=float("-inf"))
            top = tl.maximum(top, tl.max(tl.where(edges < float("inf"), edges, float("-inf")), 1))
        top = tl.where(top == float("-inf"), 0.0, top)
        for start in range(0, tl.minimum(band, n), columns):
            gap = (start + tl.arange(0, columns))[None, :]
            leads = (gap < band) & (gap <= n - m) & (i[:, None] + 1 + gap < n)
            edges = tl.load(transitions + rows_of_cells + gap, mask=leads, other=float("-inf"))
            inside = (i < max_vertices)[:, None] & (gap < band)
            tl.store(scaled + rows_of_cells + gap, tl.exp(edges - top[:, None]), mask=inside)
        tl.store(highest + b * max_vertices + i, top, mask=i < max_vertices)


@triton.jit
def _log_sum_before(transitions, alpha, j, start, first, last_before, last, band, many: tl.constexpr, few: tl.constexpr):
    """Return log sum_i exp(alpha[i] + transition[i,j]) for vertices j in log space, for any scores."""
    top = tl.full([many], float("-inf"), alpha.dtype.element_ty)
    total = tl.zeros([many], alpha.dtype.element_ty)
    for place in range(first, tl.minimum(last_before, start + many - 2) + 1, few):
        i = place + tl.arange(0, few)
        before = tl.load(alpha + i, mask=i <= last_before, other=float("-inf"))
        gap = j[None, :] - i[:, None] - 1
        leads = (i <= last_before)[:, None] & (j <= last)[None, :] & (gap >= 0) & (gap < band)
        edges = tl.load(transitions + i[:, None] * band + gap, mask=leads, other=float("-inf"))
        scores = before[:, None] + edges
        higher = tl.maximum(top, tl.max(scores, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(scores - base[None, :]), 0)
        top = higher
    return tl.where(top == float("-inf"), 0.0, top) + tl.log(total)


@triton.jit
def _log_sum_after(transitions, beta, i, first, last, last_after, band, many: tl.constexpr, few: tl.constexpr):
    """Return log sum_j exp(transition[i,j] + beta[j]) for vertices i in log space, for any scores."""
    top = tl.full([many], float("-inf"), beta.dtype.element_ty)
    total = tl.zeros([many], beta.dtype.element_ty)
    for place in range(first, last_after + 1, few):
        j = place + tl.arange(0, few)
        after = tl.load(beta + j, mask=j <= last_after, other=float("-inf"))
        gap = j[None, :] - i[:, None] - 1
        leads = (i <= last)[:, None] & (j <= last_after)[None, :] & (gap >= 0) & (gap < band)
        edges = tl.load(transitions + i[:, None] * band + gap, mask=leads, other=float("-inf"))
        scores = after[None, :] + edges
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(scores - base[:, None]), 1)
        top = higher
    return tl.where(top == float("-inf"), 0.0, top) + tl.log(total)


@triton.jit
def _forward(
    tokens,
    transitions,
    highest,
    scaled,
    alpha,
    m,
    n,
    stride,
    band,
    tiny: tl.constexpr,
    wide: tl.constexpr,
    many: tl.constexpr,
    few: tl.constexpr,
):
    tl.store(alpha, tl.load(tokens))
    for t in range(1, m):
        tl.debug_barrier()
        first = tl.where(t == m - 1, n - 1, t)
        last = n - m + t
        last_before = tl.where(t == 1, 0, last - 1)
        row = alpha + (t - 1) * stride
        for start in range(first, last + 1, many):
            j = start + tl.arange(0, many)
            first_before = tl.maximum(t - 1, start - band)
            final_before = tl.minimum(last_before, start + many - 2)
            top = tl.full([1], float("-inf"), tokens.dtype.element_ty)
            lowest = tl.full([1], 2147483647, tl.int32)  # the first vertex with a path
            for place in range(first_before, final_before + 1, wide):
                i = place + tl.arange(0, wide)
                before = tl.load(row + i, mask=i <= final_before, other=float("-inf"))
                lowest = tl.minimum(lowest, tl.min(tl.where(before > float("-inf"), i, 2147483647).to(tl.int32), 0))
                top = tl.maximum(top, tl.max(before + tl.load(highest + i, mask=i <= final_before, other=0.0), 0))
            base = tl.where(top == float("-inf"), 0.0, top)
            products = tl.zeros([few, many], tokens.dtype.element_ty)
            for place in range(first_before, final_before + 1, few):
                i = place + tl.arange(0, few)
                before = tl.load(row + i, mask=i <= final_before, other=float("-inf"))
                raised = before + tl.load(highest + i, mask=i <= final_before, other=0.0)
                gap = j[None, :] - i[:, None] - 1
                leads = (i <= final_before)[:, None] & (j <= last)[None, :] & (gap >= 0) & (gap < band)
                cells = tl.load(scaled + i[:, None] * band + gap, mask=leads, other=0.0)
                products += tl.exp(raised - base)[:, None] * cells
            total = tl.sum(products, 0)
            emitted = tl.load(tokens + t * stride + j, mask=j <= last, other=float("-inf"))
            found = base + tl.log(total)
            inexact = (emitted > float("-inf")) & (j > lowest) & (total < tiny)
            if tl.max(inexact.to(tl.int32), 0) > 0:
                found = _log_sum_before(transitions, row, j, start, first_before, last_before, last, band, many, few)
            tl.store(alpha + t * stride + j, found + emitted, mask=j <= last)


@triton.jit
def _backward(
    tokens,
    transitions,
    highest,
    scaled,
    beta,
    m,
    n,
    stride,
    band,
    tiny: tl.constexpr,
    wide: tl.constexpr,
    many: tl.constexpr,
    few: tl.constexpr,
):
    end = (m - 1) * stride + n - 1
    tl.store(beta + end, tl.load(tokens + end))
    for step in range(1, m):
        tl.debug_barrier()
        t = m - 1 - step
        last = tl.where(t == 0, 0, n - m + t)
        first_after = tl.where(step == 1, n - 1, t + 1)
        last_after = n - m + t + 1
        row = beta + (t + 1) * stride
        for start in range(t, last + 1, many):
            i = start + tl.arange(0, many)
            first = tl.maximum(first_after, start + 1)
            final = tl.minimum(last_after, start + many - 1 + band)
            top = tl.full([1], float("-inf"), tokens.dtype.element_ty)
            furthest = tl.full([1], -1, tl.int32)  # the last vertex with a path
            for place in range(first, final + 1, wide):
                j = place + tl.arange(0, wide)
                after = tl.load(row + j, mask=j <= final, other=float("-inf"))
                furthest = tl.maximum(furthest, tl.max(tl.where(after > float("-inf"), j, -1).to(tl.int32), 0))
                top = tl.maximum(top, tl.max(after, 0))
            base = tl.where(top == float("-inf"), 0.0, top)
            products = tl.zeros([many, few], tokens.dtype.element_ty)
            for place in range(first, final + 1, few):
                j = place + tl.arange(0, few)
                after = tl.load(row + j, mask=j <= final, other=float("-inf"))
                gap = j[None, :] - i[:, None] - 1
                leads = (i <= last)[:, None] & (j <= final)[None, :] & (gap >= 0) & (gap < band)
                cells = tl.load(scaled + i[:, None] * band + gap, mask=leads, other=0.0)
                products += tl.exp(after - base)[None, :] * cells
            total = tl.sum(products, 1)
            emitted = tl.load(tokens + t * stride + i, mask=i <= last, other=float("-inf"))
            raised = tl.load(highest + i, mask=i <= last, other=0.0)
            found = base + raised + tl.log(total)
            inexact = (emitted > float("-inf")) & (i < furthest) & (total < tiny)
            if tl.max(inexact.to(tl.int32), 0) > 0:
                found = _log_sum_after(transitions, row, i, first, last, final, band, many, few)
            tl.store(beta + t * stride + i, found + emitted, mask=i <= last)


@triton.jit
def sums(
    tokens,
    transitions,
    highest,
    scaled,
    target_lengths,
    graph_lengths,
    alpha,
    beta,
    result,
    max_tokens,
    max_vertices,
    band,
    tiny: tl.constexpr,
    wide: tl.constexpr,
    many: tl.constexpr,
    few: tl.constexpr,
):
    """Compute alpha and `result` of sentence program_id(0) if program_id(1) is 0, else beta.

    With the arrays of `exponentials`, a step multiplies exp(alpha[i] + highest[i] - top) by scaled[i,j]: an exponential for every
    edge of the graph instead of one for every edge and token. Vertices whose sum is below `tiny`, so that terms may have
    underflowed, are summed in log space.
    """
    b = tl.program_id(0).to(tl.int64)
    m, n = tl.load(target_lengths + b), tl.load(graph_lengths + b)
    if _possible(m, n, max_tokens, max_vertices):
        here = b * max_tokens * max_vertices
        corner = b * max_vertices * band
        tokens += here
        transitions += corner
        scaled += corner
        highest += b * max_vertices
        if tl.program_id(1) == 0:
            _forward(tokens, transitions, highest, scaled, alpha + here, m, n, max_vertices, band, tiny, wide, many, few)
            tl.debug_barrier()
            tl.store(result + b, tl.load(alpha + here + (m - 1) * max_vertices + n - 1))
        else:
            _backward(tokens, transitions, highest, scaled, beta + here, m, n, max_vertices, band, tiny, wide, many, few)


@triton.jit
def transition_gradients(
    transitions,
    highest,
    scaled,
    target_lengths,
    graph_lengths,
    alpha,
    beta,
    result,
    upstream,
    gradients,
    max_tokens,
    max_vertices,
    band,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    """Compute a tile of a sentence: sum_t exp(alpha[t,i] + transition[i,j] + beta[t+1,j] - log Z). It has row group program_id(1),
    and column group program_id(2) counted from the first vertex after the first row.

    A token adds the product of a column exp(alpha[t,i] + highest[i] - a) and a row exp(beta[t+1,j] - b), where a and b are the
    maxima, times exp(a + b - log Z); the sum is multiplied by scaled[i,j]. Where that factor is large, and the product of the
    maxima therefore on no likely path, the token's terms are computed one by one.
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
    if _possible(m, n, max_tokens, max_vertices) & (log_z > float("-inf")) & (log_z < float("inf")):
        here = b * max_tokens * max_vertices
        leads = inside & (gap <= n - m) & (j < n)[None, :]  # longer transitions belong to no path
        raise_by = tl.load(highest + b * max_vertices + i, mask=i < n, other=0.0)
        products = tl.zeros([rows, columns], transitions.dtype.element_ty)
        first = tl.maximum(tl.program_id(1) * rows - (n - m), 0)
        past = tl.minimum(tl.program_id(1) * rows + rows, m - 1)
        for t in range(first, past):
            before = tl.load(alpha + here + t * max_vertices + i, mask=i < n, other=float("-inf"))
            after = tl.load(beta + here + (t + 1) * max_vertices + j, mask=j < n, other=float("-inf"))
            raised = before + raise_by
            most_before, most_after = tl.max(raised, 0), tl.max(after, 0)
            if (most_before > float("-inf")) & (most_after > float("-inf")):
                if most_before + most_after - log_z < 60.0:
                    column = tl.exp(raised - most_before) * tl.exp(most_before + most_after - log_z)
                    products += column[:, None] * tl.exp(after - most_after)[None, :]
                else:
                    edges = tl.load(transitions + cells, mask=leads, other=float("-inf")) - log_z
                    met = (before > float("-inf"))[:, None] & (after > float("-inf"))[None, :]
                    total += tl.where(met, tl.exp(tl.minimum(before[:, None] + edges + after[None, :], 0.0)), 0.0)
        weights = tl.load(scaled + cells, mask=leads, other=0.0)
        total += tl.where(products > 0.0, products * weights, 0.0)
        total *= tl.load(upstream + b)
    tl.store(gradients + cells, total, mask=inside)


@triton.jit
def best_paths(
    tokens,
    transitions,
    target_lengths,
    graph_lengths,
    best,
    predecessors,
    vertices,
    result,
    max_tokens,
    max_vertices,
    band,
    many: tl.constexpr,
    few: tl.constexpr,
):
    """Run the recurrence of alpha with max, storing the lowest of the best predecessors; then follow them back."""
    b = tl.program_id(0).to(tl.int64)
    m, n = tl.load(target_lengths + b), tl.load(graph_lengths + b)
    if _possible(m, n, max_tokens, max_vertices):
        here = b * max_tokens * max_vertices
        tokens += here
        best += here
        predecessors += here
        transitions += b * max_vertices * band
        tl.store(best, tl.load(tokens))
        sound = (tl.load(tokens) < float("inf")).to(tl.int32)  # until a path meets NaN or plus infinity
        for t in range(1, m):
            tl.debug_barrier()
            first = tl.where(t == m - 1, n - 1, t)
            last = n - m + t
            last_before = tl.where(t == 1, 0, last - 1)
            for start in range(first, last + 1, many):
                j = start + tl.arange(0, many)
                tops = tl.full([few, many], float("-inf"), tokens.dtype.element_ty)
                origins = tl.zeros([few, many], tl.int32)
                finite = tl.full([few, many], 1, tl.int32)
                for place in range(tl.maximum(t - 1, start - band), tl.minimum(last_before, start + many - 2) + 1, few):
                    i = place + tl.arange(0, few)
                    before = tl.load(best + (t - 1) * max_vertices + i, mask=i <= last_before, other=float("-inf"))
                    gap = j[None, :] - i[:, None] - 1
                    leads = (i <= last_before)[:, None] & (j <= last)[None, :] & (gap >= 0) & (gap < band)
                    edges = tl.load(transitions + i[:, None] * band + gap, mask=leads, other=float("-inf"))
                    finite = tl.minimum(finite, (edges < float("inf")).to(tl.int32))
                    scores = before[:, None] + edges
                    origins = tl.where(scores > tops, i[:, None], origins).to(tl.int32)
                    tops = tl.where(scores > tops, scores, tops)
                top = tl.max(tops, 0)
                origin = tl.min(tl.where(tops == top[None, :], origins, 2147483647), 0)
                sound = tl.minimum(sound, tl.min(tl.min(finite, 1), 0))
                emitted = tl.load(tokens + t * max_vertices + j, mask=j <= last, other=float("-inf"))
                sound = tl.minimum(sound, tl.min((emitted < float("inf")).to(tl.int32), 0))
                tl.store(best + t * max_vertices + j, top + emitted, mask=j <= last)
                tl.store(predecessors + t * max_vertices + j, origin, mask=j <= last)
        tl.debug_barrier()
        score = tl.load(best + (m - 1) * max_vertices + n - 1)
        tl.store(result + b, tl.where(sound == 1, score, float("nan")))
        if (score > float("-inf")) & (sound == 1):
            vertex = n - 1
            for step in range(1, m + 1):
                tl.store(vertices + b * max_tokens + m - step, vertex)
                vertex = tl.load(predecessors + (m - step) * max_vertices + vertex).to(tl.int64)
