"""The Triton kernel of `kernels.gpu.dag.best_alignment`, in the terms of `kernels.gpu.dag_kernels`."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.gpu.dag_kernels import on_path, possible


@triton.jit
def _step_cells(transitions, q, p, m, n, band):
    """Return the transitions [Q,P] that paths take from vertices q to p, and whether all are numbers below infinity."""
    gap = p[None, :] - q[:, None] - 1
    leads = (gap < band) & on_path(q[:, None], p[None, :], m, n)
    cells = tl.load(transitions + q[:, None] * band + gap, mask=leads, other=float("-inf"))
    sound = cells < float("inf")
    return tl.where(sound, cells, float("-inf")), tl.min(tl.min(sound.to(tl.int32), 1), 0)


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
    """Run the recurrence of alpha with max, storing the lowest of the best predecessors; then follow them back.

    Tiles of vertices follow each other, as in `sums`: a tile of transitions is read once for all tokens. `best` and `predecessors`
    first hold the best of earlier tiles.
    """
    b = tl.program_id(0).to(tl.int64)
    m, n = tl.load(target_lengths + b), tl.load(graph_lengths + b)
    if possible(m, n, max_tokens, max_vertices):
        here = b * max_tokens * max_vertices
        tokens += here
        best += here
        predecessors += here
        transitions += b * max_vertices * band
        tl.store(best, tl.load(tokens))
        sound = (tl.load(tokens) < float("inf")).to(tl.int32)  # until a path meets NaN or plus infinity
        for start in range(0, n, many):
            p = start + tl.arange(0, many)
            first, past = tl.maximum(1, start - (n - m)), tl.minimum(m, start + many)
            for place in range(tl.maximum(0, start - band) // few * few, start, few):
                q = place + tl.arange(0, few)
                cells, numbers = _step_cells(transitions, q, p, m, n, band)
                sound = tl.minimum(sound, numbers)
                tl.debug_barrier()
                for t in range(first, past):
                    before = tl.load(best + (t - 1) * max_vertices + q, mask=q < n, other=float("-inf"))
                    scores = before[:, None] + cells
                    top = tl.max(scores, 0)
                    origin = tl.min(tl.where(scores == top[None, :], q[:, None], 2147483647), 0)
                    at = t * max_vertices + p
                    higher = top > tl.load(best + at, mask=p < n, other=float("inf"))
                    tl.store(best + at, top, mask=higher)
                    tl.store(predecessors + at, origin, mask=higher)
            q = p
            cells, numbers = _step_cells(transitions, q, p, m, n, band)
            sound = tl.minimum(sound, numbers)
            tl.debug_barrier()
            before = tl.load(best + (first - 1) * max_vertices + p, mask=p < n, other=float("-inf"))
            for t in range(first, past):
                can = (p >= t) & (p <= n - m + t) & ((p == n - 1) == (t == m - 1))
                at = t * max_vertices + p
                emitted = tl.load(tokens + at, mask=can, other=float("-inf"))
                earlier = tl.load(best + at, mask=p < n, other=float("-inf"))
                scores = before[:, None] + cells
                top = tl.max(scores, 0)
                origin = tl.min(tl.where(scores == top[None, :], q[:, None], 2147483647), 0)
                sound = tl.minimum(sound, tl.min((emitted < float("inf")).to(tl.int32), 0))
                before = tl.where(can, tl.maximum(top, earlier) + emitted, float("-inf"))
                tl.store(best + at, before, mask=p < n)
                tl.store(predecessors + at, origin, mask=top > earlier)
        tl.debug_barrier()
        score = tl.load(best + (m - 1) * max_vertices + n - 1)
        tl.store(result + b, tl.where(sound == 1, score, float("nan")))
        if (score > float("-inf")) & (sound == 1):
            vertex = n - 1
            for step in range(1, m + 1):
                tl.store(vertices + b * max_tokens + m - step, vertex)
                vertex = tl.load(predecessors + (m - step) * max_vertices + vertex).to(tl.int64)
