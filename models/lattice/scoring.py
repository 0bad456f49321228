"""The scoring of lattices: each candidate of each slot is a row, and all rows pass through the scorer at once.

Scores are normalised (section 4 of the paper leaves the choice open) without holding logits [R,V].

Legend: B batch, N slots, K candidates, R rows, V vocabulary, D width. Row (p, i) carries candidate i of slot p at position p + 1
and predicts slot p + 1; one more row carries BOS at position 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.families.lattice.batches import Slots
from fewstep.families.lattice.config import LatticeSearch
from fewstep.vocabulary import BOS, EOS
from models.common.layers.attention import Memory
from models.common.layers.linear import TokenTable
from models.common.layers.logits import logits_parts
from models.lattice.model import LatticeModel
from models.lattice.tables import BigramTables, row_states

GPU_ROWS = 2**18
"""The number of candidates that a GPU scores at a time, unless a single sentence has more."""


class SlotTensors(NamedTuple):
    """The candidates of a batch on a device; the fields are those of `fewstep.families.lattice.batches.Slots`."""

    token_ids: Tensor
    """[B,N,K] or, with the normaliser `local`, [B,N+1,K]; -1 where there is no candidate."""
    log_probs: Tensor
    """Float32 of the same shape."""
    min_lengths: Tensor
    """[B]."""
    max_lengths: Tensor
    """[B]; 0 for an empty source."""


def slot_tensors(slots: Slots, device: torch.device | str) -> SlotTensors:
    """Return slots on a device; on the CPU they share the memory of the arrays."""
    return SlotTensors(*(torch.from_numpy(part).to(device) for part in slots))


class LatticeScores(NamedTuple):
    """The scores of a batch of lattices, float32; minus infinity where there is no candidate."""

    start: Tensor
    """The scores of the first token, [B,K]."""
    edges: Tensor
    """The scores of steps from candidate i of slot p to candidate j of slot p + 1, [B,N-1,K,K]."""
    exits: Tensor
    """The scores of ending after candidate i of slot p, [B,N,K]."""


def score_memories(
    model: LatticeModel,
    memories: list[Memory],
    slots: SlotTensors,
    search: LatticeSearch,
    tables: BigramTables | None,
    size: int | None = None,
) -> LatticeScores:
    """Return the lattices of encoded sources. Candidates that `candidate_threshold` leaves out score minus infinity.

    `size` is the number of slots; None: that of the longest sentence, for which the host waits.
    """
    size = int(slots.max_lengths.max()) if size is None else size
    if search.candidate_threshold is None:
        return score_rows(model, scored_states(model, memories, slots, tables, size), slots, search, size)
    kept = kept_candidates(model, memories, slots, search, tables)
    order = (~kept).to(torch.int8).argsort(dim=2, stable=True)[..., : int(kept.sum(2).max())]
    ids, log_probs = (part.gather(2, order) for part in (slots.token_ids.masked_fill(~kept, -1), slots.log_probs))
    pruned = slots._replace(token_ids=ids, log_probs=log_probs)
    lattice = score_rows(model, scored_states(model, memories, pruned, tables, size), pruned, search, size)
    return _scatter(lattice, order, slots.token_ids.size(2))


def kept_candidates(
    model: LatticeModel, memories: list[Memory], slots: SlotTensors, search: LatticeSearch, tables: BigramTables | None
) -> Tensor:
    """Return a mask [B,N,K] of the candidates within `candidate_threshold` of the best one of their slot.

    A candidate's score is its logit in a row that carries BOS at its slot, plus its log-probability by the counts. These are the
    unigrams of the first round of cascaded decoding (Deng and Rush 2020), combined with the counts.
    """
    assert search.candidate_threshold is not None
    batch, size, _ = slots.token_ids.shape
    positions = torch.arange(size, device=slots.token_ids.device)
    states = row_states(model, positions.new_full((batch, size), BOS), positions, memories, tables)
    scores = (model.target_embedding.weight[slots.token_ids.clamp(min=0)] @ states[..., None])[..., 0].float()
    scores += slots.log_probs
    scores.masked_fill_(slots.token_ids < 0, -torch.inf)
    return (scores > -torch.inf) & (scores >= scores.amax(2, keepdim=True) - search.candidate_threshold)


def _scatter(lattice: LatticeScores, indices: Tensor, candidates: int) -> LatticeScores:
    """Return the lattice of all candidates, with those of a smaller lattice at `indices` [B,N,k] of each slot."""
    slots = lattice.exits.size(1)
    before, after = indices[:, : slots - 1, :, None], indices[:, 1:slots, None]

    def put(part: Tensor, where: Tensor, dimension: int) -> Tensor:
        shape = [*part.shape]
        shape[dimension] = candidates
        return part.new_full(shape, -torch.inf).scatter(dimension, where.expand(part.shape), part)

    edges = put(put(lattice.edges, after, 3), before, 2)
    return LatticeScores(put(lattice.start, indices[:, 0], 1), edges, put(lattice.exits, indices[:, :slots], 2))


def scored_states(
    model: LatticeModel, memories: list[Memory], slots: SlotTensors, tables: BigramTables | None, size: int
) -> Tensor:
    """Return the states [B,1+N*K,D] of the row of BOS and of all other rows, slot by slot, up to `size` slots N."""
    ids = slots.token_ids[:, :size]
    tokens = torch.cat((ids.new_full((len(ids), 1), BOS), ids.flatten(1).clamp(min=0)), 1)
    positions = torch.arange(1, size + 1, device=ids.device).repeat_interleave(ids.size(2))
    return row_states(model, tokens, torch.cat((positions.new_zeros(1), positions)), memories, tables)


def score_rows(model: LatticeModel, states: Tensor, slots: SlotTensors, search: LatticeSearch, size: int) -> LatticeScores:
    """Return the lattices of `scored_states`."""
    batch, _, candidates = slots.token_ids.shape
    weight = model.target_embedding.weight
    inner = states[:, 1:].view(batch, size, candidates, -1)
    vectors = weight[slots.token_ids.clamp(min=0)]
    # Missing candidates have the vector of token 0, and their scores become minus infinity.
    missing = slots.token_ids < 0
    start = (vectors[:, 0] @ states[:, 0, :, None])[..., 0].float().masked_fill_(missing[:, 0], -torch.inf)
    edges = (inner[:, : vectors.size(1) - 1] @ vectors[:, 1:].transpose(2, 3)).float()
    edges.masked_fill_(missing[:, 1:, None], -torch.inf)
    first, exits = ((part @ weight[EOS]).float() for part in (states[:, 0], inner))
    if search.normalizer == "local":
        normalizers = local_normalizers(edges, exits)
        start -= local_normalizers(start, first)[:, None]
        exits -= normalizers
        # The edges to the slot behind the last were needed for its normaliser alone.
        edges = (edges - normalizers[..., None])[:, : size - 1]
    elif search.normalizer != "selfnorm":
        if search.normalizer == "full":
            normalizers = full_normalizers(states, model.target_embedding)
        else:
            inside = torch.arange(size, device=states.device) < slots.max_lengths[:, None]
            tokens = slots.token_ids[:, :size].masked_fill(~inside[..., None], -1).flatten(1)
            normalizers = union_normalizers(states, tokens, weight)
        start -= normalizers[:, :1]
        of_candidates = normalizers[:, 1:].view(batch, size, candidates)
        exits -= of_candidates
        edges -= of_candidates[:, : size - 1, :, None]
    return _weighted(LatticeScores(start, edges, exits.masked_fill(missing[:, :size], -torch.inf)), slots, search)


def _weighted(lattice: LatticeScores, slots: SlotTensors, search: LatticeSearch) -> LatticeScores:
    """Add the weighted counts and the bonus to the scores that enter a token."""
    edges = lattice.edges.masked_fill((slots.token_ids[:, : lattice.edges.size(1)] < 0)[..., None], -torch.inf)
    if not search.count_weight and not search.token_bonus:
        return lattice._replace(edges=edges)
    log_probs = slots.log_probs.masked_fill(slots.token_ids < 0, 0.0)[:, : lattice.exits.size(1)]
    added = search.count_weight * log_probs + search.token_bonus
    return LatticeScores(lattice.start + added[:, 0], edges + added[:, 1:, None], lattice.exits)


def full_normalizers(states: Tensor, table: TokenTable) -> Tensor:
    """Return log sum_v exp(states w_v) [...] over the vocabulary for states [...,D], computed for some rows at a time."""
    flat = states.flatten(0, -2)
    normalizers = torch.empty(len(flat), device=flat.device)
    for part in logits_parts(len(flat), table.num_embeddings, flat.device):
        normalizers[part] = table.logits(flat[part]).float().logsumexp(1)
    return normalizers.view(states.shape[:-1])


def union_normalizers(states: Tensor, tokens: Tensor, weight: Tensor) -> Tensor:
    """Return normalisers [B,R] for states [B,R,D] over EOS and distinct `tokens` [B,W] of a sentence. Negative ids are ignored."""
    normalizers = torch.empty(states.shape[:2], device=states.device)
    for row, (rows, ids) in enumerate(zip(states, tokens, strict=True)):
        distinct = ids[ids >= 0].unique()
        vectors = weight[torch.cat((distinct, distinct.new_tensor([EOS])))]
        for part in logits_parts(len(rows), len(vectors), rows.device):
            normalizers[row, part] = (rows[part] @ vectors.t()).float().logsumexp(1)
    return normalizers


def local_normalizers(scores: Tensor, exits: Tensor) -> Tensor:
    """Return normalisers [...] over the next slot, from its logits [...,K] (minus infinity: no candidate) and that of EOS [...]."""
    return torch.cat((scores, exits[..., None]), -1).float().logsumexp(-1)
