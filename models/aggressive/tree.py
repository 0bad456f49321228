"""Draft trees: several candidates for a position, verified in one pass (SpecInfer, Miao et al. 2024; EAGLE-2, Li et al. 2024).

Node 0, the root, is the last written token; nodes 1..N are drafted tokens, breadth-first, so that a parent precedes its children.
Siblings are distinct tokens. Dimensions are named as in `models.family`; Q = N + 1 queries.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.vocabulary import EOS


class DraftTree(NamedTuple):
    """Drafted tokens and their parents."""

    ids: Tensor
    """The tokens [B,N] of nodes 1..N, -1 where there is no node."""
    parents: Tensor
    """The parent nodes [B,N] of nodes 1..N."""


class AcceptedPath(NamedTuple):
    """The nodes that greedy decoding writes, and the first token after them."""

    nodes: Tensor
    """The nodes [B,P], from the root on; the last accepted node is repeated to the end."""
    ids: Tensor
    """The drafted child [B,P] of each node: the verifier's own token where it was drafted, otherwise any child; -1 without
    children."""


def best_tree(log_probs: Tensor, widths: Tensor, branches: int, nodes: int) -> DraftTree:
    """Return the `nodes` paths of highest probability, a product over positions, for log-probabilities [B,W,V] by position.

    A path has at most `widths` [B] tokens, each among the `branches` best of its position (all, if the vocabulary has fewer), none
    of probability 0, and none after EOS. With a node its parent is in the tree: products do not rise, and ties keep the parent.
    """
    top, tokens = log_probs.topk(min(branches, log_probs.size(2)), dim=2)
    rows = log_probs.size(0)
    depth = min(log_probs.size(1), nodes)  # a tree of N nodes is at most N deep
    scores = torch.zeros((rows, 1), device=log_probs.device)
    ids = scores.new_full((rows, 1), -1, dtype=torch.int64)
    parents = torch.zeros_like(ids)
    levels: list[tuple[Tensor, Tensor, Tensor]] = []
    first = 0  # the node before the last level's
    for position in range(depth):
        extended = scores[:, :, None] + top[:, position, None]
        extended = extended.masked_fill((ids == EOS)[:, :, None] | (position >= widths)[:, None, None], -torch.inf).flatten(1)
        # Stable, so that a level is in the order of its parents among equal scores.
        scores, chosen = extended.sort(dim=1, descending=True, stable=True)
        scores, chosen = scores[:, :nodes], chosen[:, :nodes]
        parents = chosen // top.size(2) + (first if position else 0)
        first = 1 + sum(level[0].size(1) for level in levels)
        ids = tokens[:, position].gather(1, chosen % top.size(2))
        levels.append((scores, ids, parents))
    scores, ids, parents = (torch.cat(parts, 1) for parts in zip(*levels, strict=True))
    return _prune(scores, ids, parents, nodes)


def _prune(scores: Tensor, ids: Tensor, parents: Tensor, nodes: int) -> DraftTree:
    """Return the best nodes of all levels, with their parents numbered among them."""
    total = scores.size(1)
    # Levels follow each other, so that of equal products the parent, which is shorter, is kept.
    values, best = scores.sort(dim=1, descending=True, stable=True)
    best = torch.where(values[:, :nodes] > -torch.inf, best[:, :nodes], total).sort(dim=1).values
    numbers = torch.zeros((len(scores), total + 2), dtype=torch.int64, device=scores.device)
    numbers.scatter_(1, best + 1, torch.arange(1, best.size(1) + 1, device=scores.device).expand_as(best).contiguous())
    real = best < total
    inside = best.clamp(max=total - 1)
    tree = DraftTree(ids.gather(1, inside).masked_fill(~real, -1), numbers.gather(1, parents.gather(1, inside)) * real)
    return DraftTree(*(F.pad(part, (0, nodes - best.size(1)), value=value) for part, value in zip(tree, (-1, 0), strict=True)))


def depths(tree: DraftTree) -> Tensor:
    """Return the depths [B,Q] of all nodes; 0 for the root."""
    found = F.pad(torch.zeros_like(tree.ids), (1, 0))
    for node in range(1, found.size(1)):
        found[:, node] = found.gather(1, tree.parents[:, node - 1, None])[:, 0] + 1
    return found


def ancestors(tree: DraftTree) -> Tensor:
    """Return [B,Q,Q], True where the node of the column is the node of the row or above it."""
    rows = torch.arange(len(tree.ids), device=tree.ids.device)
    size = tree.ids.size(1) + 1
    seen = torch.eye(size, dtype=torch.bool, device=tree.ids.device).repeat(len(rows), 1, 1)
    for node in range(1, size):
        seen[:, node] |= seen[rows, tree.parents[:, node - 1]]
    return seen


def accepted_path(tree: DraftTree, own: Tensor, length: int) -> AcceptedPath:
    """Follow the verifier's own tokens [B,Q] from the root to a node that the next one is no child of, for `length` nodes."""
    rows = torch.arange(len(own), device=own.device)
    node = torch.zeros_like(rows)
    nodes: list[Tensor] = []
    ids: list[Tensor] = []
    going = torch.ones_like(rows, dtype=torch.bool)
    for _ in range(length):
        nodes.append(node)
        children = (tree.parents == node[:, None]) & (tree.ids >= 0) & going[:, None]
        matching = children & (tree.ids == own[rows, node][:, None])
        going = matching.any(1)
        child = torch.where(going, matching.long().argmax(1), children.long().argmax(1))
        ids.append(torch.where(children.any(1), tree.ids[rows, child], -1))
        node = torch.where(going, child + 1, node)
    return AcceptedPath(torch.stack(nodes, 1), torch.stack(ids, 1))
