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


class TreeGrowth:
    """A tree of drafts that grows by levels in tensors of fixed shapes.

    The candidates of the best nodes of the last level, by the product of the probabilities on their paths, are the next level; the
    best candidates of all levels are the tree. L expanded nodes of a level, C candidates of each.
    """

    def __init__(self, rows: int, nodes: int, device: torch.device) -> None:
        """`nodes` is the size of the tree."""
        self.nodes = nodes
        nothing = torch.zeros((rows, 0), dtype=torch.int64, device=device)
        self.expanded = DraftTree(nothing, nothing)
        """The expanded nodes; the last L of them are those of the last level. Where a level has fewer, some are no part of a
        tree."""
        self._levels: list[tuple[Tensor, Tensor, Tensor]] = []
        self._scores = torch.zeros((rows, 1), device=device)
        self._numbers = nothing.new_zeros((rows, 1))
        """The numbers [B,L] of the last level's expanded nodes among all candidates, from 1 on; 0: the root."""
        self._expanded_numbers = self._numbers
        """Their numbers among all expanded nodes."""

    def extend(self, log_probs: Tensor, tokens: Tensor, growing: Tensor, expanded: int) -> None:
        """Add candidates of the expanded nodes of the last level, at first of the root, and expand the best of the new level, at
        most `expanded`.

        `tokens` and their `log_probs` are [B,L,C], or [B,1,C] for equal candidates of all nodes; the trees of other sentences than
        `growing` [B] stay as they are. Nothing follows EOS.
        """
        scores = (self._scores[:, :, None] + log_probs).masked_fill(~growing[:, None, None], -torch.inf)
        ids = tokens.expand(scores.shape).flatten(1)
        # Stable, so that a level is in the order of its parents among equal scores.
        scores, chosen = scores.flatten(1).sort(dim=1, descending=True, stable=True)
        # Neither the others nor what follows them can be in the tree.
        scores, chosen = scores[:, : self.nodes], chosen[:, : self.nodes]
        ids, parents = ids.gather(1, chosen), chosen // log_probs.size(2)
        first = 1 + sum(level[0].size(1) for level in self._levels)
        self._levels.append((scores, ids, self._numbers.gather(1, parents)))
        open_scores, order = scores.masked_fill(ids == EOS, -torch.inf).sort(dim=1, descending=True, stable=True)
        self._scores, order = open_scores[:, :expanded], order[:, :expanded]
        self._numbers = first + order
        above = self._expanded_numbers.gather(1, parents.gather(1, order))
        count = self.expanded.ids.size(1)
        self.expanded = DraftTree(
            torch.cat((self.expanded.ids, ids.gather(1, order)), 1), torch.cat((self.expanded.parents, above), 1)
        )
        self._expanded_numbers = count + torch.arange(1, order.size(1) + 1, device=order.device).expand_as(order)

    @property
    def level_size(self) -> int:
        """The number L of expanded nodes of the last level."""
        return self._numbers.size(1)

    def best(self) -> DraftTree:
        """Return the tree of the best candidates, with their parents numbered among them.

        With a node its parent is in the tree: products do not rise, and ties keep the parent.
        """
        scores, ids, parents = (torch.cat(parts, 1) for parts in zip(*self._levels, strict=True))
        return _prune(scores, ids, parents, self.nodes)


def best_tree(log_probs: Tensor, widths: Tensor, branches: int, nodes: int) -> DraftTree:
    """Return the `nodes` paths of highest probability, a product over positions, for log-probabilities [B,W,V] by position.

    A path has at most `widths` [B] tokens, each among the `branches` best of its position (all, if the vocabulary has fewer), none
    of probability 0, and none after EOS.
    """
    top, tokens = log_probs.topk(min(branches, log_probs.size(2)), dim=2)
    growth = TreeGrowth(log_probs.size(0), nodes, log_probs.device)
    for position in range(min(log_probs.size(1), nodes)):  # a tree of N nodes is at most N deep
        growth.extend(top[:, position, None], tokens[:, position, None], widths > position, nodes)
    return growth.best()


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
