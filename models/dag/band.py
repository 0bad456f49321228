"""Bands of matrices over vertices: cells [...,L,D] instead of [...,L,L].

Cell (i, d) of a band belongs to the vertices i and i + 1 + d. A band of D = L - 1 next vertices is the whole upper triangle; cells
beyond the last vertex belong to nothing. A block is a part of the matrix with K rows and the columns from the one after the first
row's vertex on: cell (r, c) of the block of vertex i belongs to the vertices i + r and i + 1 + c, and is cell (i + r, c - r) of the
band.

Products with a band need memory that is linear in the number of vertices: only the blocks of K >= D rows are held, each with the
columns that its transitions lead to. If all later vertices may follow there is one block, the matrix itself.

Legend: B batch, L vertices, D next vertices that may follow a vertex, N blocks of K vertices, G products at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
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


MIN_ROWS = 64
"""The fewest vertices of a block, if there are several."""


class Edges(NamedTuple):
    """The transition probabilities of a batch of graphs: the matrix E [L,L], whose cell (i, j) is the probability that vertex j
    follows vertex i, in blocks."""

    blocks: Tensor
    """[B,N,K,W]: cell (r, c) of block n belongs to the vertices n K + r and n K + 1 + c."""
    vertices: int
    """L."""

    @classmethod
    def of(cls, probabilities: Tensor) -> Edges:
        """Return the edges for a band [B,L,D] of probabilities, which are 0 beyond the last vertex of a graph."""
        size, band = probabilities.shape[1:]
        rows = size if band >= size - 1 else min(size, max(band, MIN_ROWS))
        count = -(-size // rows)
        padded = F.pad(probabilities, (0, 0, 0, count * rows - size)).view(len(probabilities), count, rows, band)
        return cls(block_of(padded)[..., : max(size - 1, 0)], size)

    def step(self, values: Tensor) -> Tensor:
        """Return the product [B,G,L] of values [B,G,L] with E."""
        count, rows, width = self.blocks.shape[1:]
        padded = F.pad(values, (0, count * rows - self.vertices))
        given = padded.view(*values.shape[:2], count, rows).transpose(1, 2)
        found = given @ self.blocks
        # A block leads to the vertices after its first one: as many as it has, and some of the next block.
        near = found[..., :rows]
        far = F.pad(found[..., rows:], (0, rows - max(width - rows, 0)))
        near = F.pad(near, (0, rows - near.size(-1)))
        total = F.pad(near, (0, 0, 0, 0, 0, 1)) + F.pad(far, (0, 0, 0, 0, 1, 0))
        return F.pad(total.transpose(1, 2).flatten(2), (1, 0))[..., : self.vertices]

    def passing(self) -> Tensor:
        """Return the probability [B,L] that a path visits each vertex: the first row of (I - E)^-1, from one triangular system for
        each block."""
        batch, _, rows, width = self.blocks.shape
        identity = torch.eye(rows, dtype=self.blocks.dtype, device=self.blocks.device)
        arriving = identity[0].expand(batch, 1, rows)
        found = []
        for block in self.blocks.unbind(1):
            inside = F.pad(block[..., : rows - 1], (1, max(rows - 1 - width, 0)))
            here = torch.linalg.solve_triangular(identity - inside, arriving, upper=True, left=False, unitriangular=True)
            found.append(here)
            leaving = here @ block[..., rows - 1 :]
            arriving = F.pad(leaving, (0, rows - leaving.size(-1)))
        return torch.cat(found, 2)[:, 0, : self.vertices]
