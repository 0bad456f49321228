"""Bands of matrices over vertices: cells [...,L,D] instead of [...,L,L].

Cell (i, d) of a band belongs to the vertices i and i + 1 + d. A band of D = L - 1 next vertices is the whole upper triangle; cells
beyond the last vertex belong to nothing. A block is a part of the matrix with K rows and the columns from the one after the first
row's vertex on: cell (r, c) of the block of vertex i belongs to the vertices i + r and i + 1 + c, and is cell (i + r, c - r) of the
band.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def next_values(values: Tensor, band: int) -> Tensor:
    """Return a view [B,L,D] of values [B,L] of vertices, with that of vertex i + 1 + d in cell (i, d) and 0 beyond the last one."""
    return F.pad(values, (0, band))[:, 1:].unfold(1, band, 1)


def diagonals(block: Tensor, band: int) -> Tensor:
    """Return a view [...,K,D] of contiguous blocks [...,K,K+D-1], the cells of the band."""
    *outer, row, column = block.stride()
    return block.as_strided((*block.shape[:-1], band), (*outer, row + column, column), block.storage_offset())


def block_of(cells: Tensor) -> Tensor:
    """Return blocks [...,K,K+D-1] for the cells [...,K,D] of a band, 0 elsewhere. Each row is one cell further to the right than
    the one above."""
    rows, band = cells.shape[-2:]
    return F.pad(cells, (0, rows)).flatten(-2)[..., :-rows].view(*cells.shape[:-2], rows, rows + band - 1)
