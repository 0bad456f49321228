"""A Transformer over numpy arrays, one sentence at a time, without caches: every step starts from the beginning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fewstep.networks.arrays import TransformerShape
from fewstep.networks.transformer import SlotRules
from fewstep.search.beam import Beam, BeamOptions, Outcome

Array = npt.NDArray[np.floating[Any]]


class Reference:
    """The network and the searches of `fewstep.Transformer`, which documents the arguments; float64."""

    unranked_gap = math.inf
    """The smallest gap, in nats, of the last beam search between the last token that the ranking of a slot holds and the first that
    it does not. The margin of a search that is not exact (`selection`) does not cover such tokens."""

    def __init__(self, arrays: Mapping[str, Array], *, shape: TransformerShape) -> None:
        self.arrays = {name: values.astype(np.float64) for name, values in arrays.items()}
        self.shape = shape

    def encode(self, source: Sequence[int]) -> Array:
        """Return the states [S,D] of a source."""
        embedding: Array = self.arrays.get("source_embedding", self.arrays["target_embedding"])
        x: Array = embedding[list(source)] * self._scale + self.arrays["source_positions"][: len(source)]
        for layer in range(self.shape.encoder_layers):
            start = f"encoder.layers.{layer}."
            x = self._residual(start + "attention", x, lambda y, start=start: self._self_attention(start, y, None))
            x = self._residual(start + "feed_forward", x, lambda y, start=start: self._feed_forward(start, y))
        return self._last_norm("encoder", x)

    def log_probs(self, encoded: Array, flat: Sequence[int], rules: SlotRules, step_size: int) -> Array:
        """Return log p [z,V] in the slots of the step after the flat tokens (whole steps) `flat`."""
        slots = len(flat) + step_size
        x: Array = self.arrays["slot_codes"][:slots].copy()
        x[step_size:] += self.arrays["target_embedding"][list(flat)] * self._scale
        seen = np.array([[self._sees(rules, step_size, one, other) for other in range(slots)] for one in range(slots)])
        for layer in range(self.shape.decoder_layers):
            start = f"decoder.layers.{layer}."
            x = self._residual(start + "attention", x, lambda y, start=start: self._self_attention(start, y, seen))
            x = self._residual(start + "cross_attention", x, lambda y, start=start: self._cross_attention(start, y, encoded))
            x = self._residual(start + "feed_forward", x, lambda y, start=start: self._feed_forward(start, y))
        logits = self._last_norm("decoder", x)[-step_size:] @ self.arrays["target_embedding"].T
        if self.shape.logits_bias:
            logits = logits + self.arrays["logits_bias"]
        top = logits.max(1, keepdims=True)
        found: Array = logits - top - np.log(np.exp(logits - top).sum(1, keepdims=True))
        return found

    def greedy(self, source: Sequence[int], limit: int, *, options: BeamOptions, rules: SlotRules) -> Outcome:
        """Decode with the most probable token in each slot; slots up to the first EOS are scored, or all slots of a step
        (`per_direction`)."""
        encoded = self.encode(source)
        flat = list[int]()
        score = 0.0
        margin = math.inf
        steps = 0
        written: list[int] = []
        ended = False
        while not ended and len(flat) < limit:
            table = self.allowed(self.log_probs(encoded, flat, rules, options.step_size), flat, options, rules)
            steps += 1
            before = len(flat)
            for slot, row in enumerate(table):
                best, second = np.argsort(-row, kind="stable")[:2]
                flat.append(int(best))
                if before + slot >= limit or (ended and not options.per_direction):
                    continue
                score += float(row[best])
                margin = min(margin, float(row[best] - row[second]))
                if best == options.eos:
                    ended = True
                else:
                    written.append(int(best))
        tokens = len(written) + ended
        penalty = ((5 + tokens) / 6 if options.gnmt else tokens) ** options.length_penalty
        return Outcome([(score / penalty, written)], steps, margin)

    def beam_search(self, source: Sequence[int], limit: int, *, options: BeamOptions, rules: SlotRules) -> Outcome:
        """Rank the tokens of every slot by sorting; the search itself is `fewstep.Beam`."""
        encoded = self.encode(source)
        beam = Beam([limit], options)
        prefixes = [list[int]()]
        width = options.num_candidates
        self.unranked_gap = math.inf
        while prefixes:
            tables = [self.log_probs(encoded, prefix, rules, options.step_size) for prefix in prefixes]
            pairs = zip(tables, prefixes, strict=True)
            tables = [self.allowed(table, prefix, options, rules) for table, prefix in pairs]
            stacked = np.stack(tables)
            eos = stacked[..., options.eos].copy()
            if options.separate_eos:
                stacked[..., options.eos] = -np.inf
            order = np.argsort(-stacked, axis=-1, kind="stable")
            ranked = np.take_along_axis(stacked, order, -1)
            if options.selection != "exact":
                self.unranked_gap = min(self.unranked_gap, _gap(ranked, width))
            ids = np.ascontiguousarray(order[..., :width])
            advance = beam.advance(ranked[..., :width].astype(np.float32), ids, eos.astype(np.float32))
            continued = zip(advance.rows.tolist(), advance.tokens.tolist(), strict=True)
            prefixes = [[*prefixes[row], *tokens] for row, tokens in continued]
        return beam.outcomes()[0]

    @staticmethod
    def allowed(table: Array, flat: Sequence[int], options: BeamOptions, rules: SlotRules) -> Array:
        """Return a table [z,V] of the step behind the tokens `flat` without banned tokens, without EOS in the first slots of all,
        and without tokens that would repeat an n-gram of their direction."""
        table[:, list(rules.banned)] = -np.inf
        table[: max(0, rules.min_tokens - len(flat)), options.eos] = -np.inf
        n = rules.no_repeat_ngram
        for slot, row in enumerate(table) if n else ():
            own = tuple(flat[(len(flat) + slot) % rules.directions :: rules.directions])
            ngrams = {own[start : start + n] for start in range(len(own) - n + 1)}
            row[[token for token in range(len(row)) if (*own, token)[-n:] in ngrams and len(own) >= n]] = -np.inf
        return table

    @staticmethod
    def _sees(rules: SlotRules, step_size: int, one: int, other: int) -> bool:
        if rules.mask == "causal":
            return other <= one
        return other // step_size <= one // step_size and (rules.mask == "block" or (one - other) % rules.directions == 0)

    def _map(self, name: str, x: Array) -> Array:
        """Return x W^T + b."""
        found: Array = x @ self.arrays[name + ".weight"].T + self.arrays[name + ".bias"]
        return found

    def _norm(self, name: str, x: Array) -> Array:
        """Return (x - mean) / sqrt(variance + 1e-5) scale + shift."""
        normed = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        found: Array = normed * self.arrays[name + ".weight"] + self.arrays[name + ".bias"]
        return found

    def _last_norm(self, stack: str, x: Array) -> Array:
        return self._norm(stack + ".norm", x) if self.shape.norm == "pre" else x

    def _residual(self, name: str, x: Array, block: Any) -> Array:
        """Return x + block(norm(x)), or norm(x + block(x))."""
        norm = name + "_residual.norm"
        added: Array = block(self._norm(norm, x) if self.shape.norm == "pre" else x) + x
        return added if self.shape.norm == "pre" else self._norm(norm, added)

    def _feed_forward(self, start: str, x: Array) -> Array:
        inner = self._map(start + "feed_forward.widen", x)
        return self._map(start + "feed_forward.narrow", ACTIVATIONS[self.shape.activation](inner))

    @property
    def _scale(self) -> float:
        """The factor of embeddings."""
        return math.sqrt(self.shape.width) if self.shape.scale_embeddings else 1.0

    def _self_attention(self, start: str, x: Array, seen: npt.NDArray[np.bool_] | None) -> Array:
        queries, keys, values = np.split(self._map(start + "attention.projection", x), 3, axis=1)
        return self._map(start + "attention.output", self._attend(queries, keys, values, seen))

    def _cross_attention(self, start: str, x: Array, encoded: Array) -> Array:
        keys, values = np.split(self._map(start + "cross_attention.projection", encoded), 2, axis=1)
        queries = self._map(start + "cross_attention.queries", x)
        return self._map(start + "cross_attention.output", self._attend(queries, keys, values, None))

    def _attend(self, queries: Array, keys: Array, values: Array, seen: npt.NDArray[np.bool_] | None) -> Array:
        """Return softmax(Q K^T / sqrt(d)) V for each head, concatenated."""
        heads = []
        for q, k, v in zip(*(np.split(x, self.shape.heads, axis=1) for x in (queries, keys, values)), strict=True):
            scores = q @ k.T / math.sqrt(q.shape[1])
            scores = scores if seen is None else np.where(seen, scores, -np.inf)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            heads.append(weights / weights.sum(1, keepdims=True) @ v)
        return np.concatenate(heads, axis=1)


class ReferenceEnsemble(Reference):
    """An ensemble: log p(v) = log 1/N sum_n p_n(v)."""

    def __init__(self, members: Sequence[Reference]) -> None:
        self.members = members

    def encode(self, source: Sequence[int]) -> Array:
        """Return the states [N,S,D] of a source."""
        return np.stack([member.encode(source) for member in self.members])

    def log_probs(self, encoded: Array, flat: Sequence[int], rules: SlotRules, step_size: int) -> Array:
        """Return log-probabilities [z,V]."""
        pairs = zip(self.members, encoded, strict=True)
        found: Array = np.log(np.mean([np.exp(member.log_probs(its, flat, rules, step_size)) for member, its in pairs], axis=0))
        return found


def _gap(ranked: Array, width: int) -> float:
    """Return the smallest difference between the last of the first `width` of a row and its next; infinity if none is finite."""
    if width >= ranked.shape[-1]:
        return math.inf
    pair = ranked[..., width - 1 : width + 1].reshape(-1, 2)
    pair = pair[np.isfinite(pair).all(1)]
    return float((pair[:, 0] - pair[:, 1]).min(initial=math.inf))


def _gelu(x: Array) -> Array:
    """Return x P(Z < x) for a standard normal Z."""
    found: Array = x * 0.5 * (1.0 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2.0)))
    return found


def _relu(x: Array) -> Array:
    """Return max(0, x)."""
    return np.maximum(x, 0.0)


def _swish(x: Array) -> Array:
    """Return x / (1 + e^-x)."""
    found: Array = x / (1.0 + np.exp(-x))
    return found


ACTIVATIONS = {"relu": _relu, "gelu": _gelu, "swish": _swish}
