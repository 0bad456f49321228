"""The Triton kernel of `kernels.gpu.lattice`, which documents and calls it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def best_paths(
    start,
    edges,
    exits,
    min_lengths,
    max_lengths,
    alpha,
    origins,
    path,
    lengths,
    scores,
    slots,
    candidates,
    many: tl.constexpr,
    few: tl.constexpr,
):
    """Search one sentence per Triton program: alpha_p(j) = max_i alpha_{p-1}(i) + edge(i,j), `few` i at a time for all `many` >= K
    of j; then the ends of slots in the window; then the way back. Slots communicate through memory and synchronise at a barrier."""
    b = tl.program_id(0).to(tl.int64)
    least, most = tl.load(min_lengths + b), tl.load(max_lengths + b)
    here = b * slots * candidates
    alpha += here
    origins += here
    exits += here
    edges += b * (slots - 1) * candidates * candidates
    j = tl.arange(0, many)
    inside = j < candidates
    now = tl.load(start + b * candidates + j, mask=inside, other=float("-inf"))
    now = tl.where(now < float("inf"), now, float("-inf"))
    best = tl.full([1], float("-inf"), start.dtype.element_ty)
    length = tl.zeros([1], tl.int64)
    last = tl.zeros([1], tl.int64)
    if (least >= 1) & (least <= most) & (most <= slots):
        for slot in range(0, most):
            if slot > 0:
                top = tl.full([many], float("-inf"), start.dtype.element_ty)
                origin = tl.zeros([many], tl.int32) - 1
                for first in range(0, candidates, few):
                    i = first + tl.arange(0, few)
                    before = tl.load(alpha + (slot - 1) * candidates + i, mask=i < candidates, other=float("-inf"))
                    cells = edges + ((slot - 1) * candidates + i[:, None]).to(tl.int64) * candidates + j[None, :]
                    table = tl.load(cells, mask=(i < candidates)[:, None] & inside[None, :], other=float("-inf"))
                    sums = before[:, None] + tl.where(table < float("inf"), table, float("-inf"))
                    highest, which = tl.max(sums, 0, return_indices=True, return_indices_tie_break_left=True)
                    origin = tl.where(highest > top, first + which, origin).to(tl.int32)
                    top = tl.maximum(top, highest)
                now = top
                tl.store(origins + slot * candidates + j, origin, mask=inside)
            tl.store(alpha + slot * candidates + j, now, mask=inside)
            if slot + 1 >= least:
                exit = tl.load(exits + slot * candidates + j, mask=inside, other=float("-inf"))
                ends = now + tl.where(exit < float("inf"), exit, float("-inf"))
                highest, which = tl.max(ends, 0, return_indices=True, return_indices_tie_break_left=True)
                better = highest > best
                last = tl.where(better, which.to(tl.int64), last)
                length = tl.where(better, slot + 1, length).to(tl.int64)
                best = tl.where(better, highest, best)
            tl.debug_barrier()
        words = tl.sum(length, 0)
        candidate = tl.sum(last, 0)
        for back in range(0, words):
            slot = words - 1 - back
            tl.store(path + b * slots + slot, candidate)
            if slot > 0:
                candidate = tl.load(origins + slot * candidates + candidate).to(tl.int64)
    tl.store(lengths + b, tl.sum(length, 0))
    tl.store(scores + b, tl.max(best, 0))
