"""A Directed Acyclic Transformer over numpy arrays, one sentence at a time; see `fewstep.networks.dag_network`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fewstep.networks.dag_network import DagPath, DagRules
from kernels.reference.transformer import Array, Reference


class DagReference(Reference):
    """The network of `fewstep.DagNetwork`, which documents the arguments; float64."""

    def length(self, source: Sequence[int]) -> int:
        """Return the most probable length of the target."""
        return int((self.arrays["lengths"] @ self.encode(source).mean(0)).argmax())

    def states(self, source: Sequence[int], vertices: int, rules: DagRules) -> Array:
        """Return the states [L,D] of vertices."""
        own = self.arrays.get("vertex_inputs")
        scale = math.sqrt(self.shape.width)
        kinds = self.arrays["target_embedding"][[rules.bos, rules.mask, rules.eos]] * scale if own is None else own
        x: Array = kinds[[0, *[1] * (vertices - 2), 2]] + self.arrays["slot_codes"][:vertices]
        encoded = self.encode(source)
        for layer in range(self.shape.decoder_layers):
            start = f"decoder.layers.{layer}."
            x = self._residual(start + "attention", x, lambda y, start=start: self._self_attention(start, y, None))
            x = self._residual(start + "cross_attention", x, lambda y, start=start: self._cross_attention(start, y, encoded))
            x = self._residual(start + "feed_forward", x, lambda y, start=start: self._feed_forward(start, y))
        return self._last_norm("decoder", x)

    def transitions(self, states: Array) -> Array:
        """Return [L,L], log E(i -> j) = log sum_h gate_h(i) softmax_j(q_ih k_jh / sqrt(d)) for j > i."""
        size = len(states)
        heads = self.shape.heads
        width = self.shape.width
        links = states @ self.arrays["links"].T + self.arrays["link_codes"][:size]
        queries, keys, gates = np.split(links, [width, 2 * width], axis=1)
        later = np.arange(size) > np.arange(size)[:, None]
        weights = _softmax(gates)
        mixed = np.zeros((size, size))
        for head, (q, k) in enumerate(zip(np.split(queries, heads, 1), np.split(keys, heads, 1), strict=True)):
            scores = np.where(later, q @ k.T / math.sqrt(width // heads), -np.inf)
            mixed[:-1] += weights[:-1, head, None] * _softmax(scores[:-1])
        with np.errstate(divide="ignore"):
            found: Array = np.log(mixed)
        return found

    def token_log_probs(self, states: Array, rules: DagRules) -> Array:
        """Return [L,V], log-probabilities of the tokens that vertices may emit."""
        logits = states @ self.arrays["target_embedding"].T
        if self.shape.logits_bias:
            logits = logits + self.arrays["logits_bias"]
        found: Array = np.log(_softmax(logits))
        ends = found[0, rules.bos], found[-1, rules.eos]
        found[:, list(rules.banned)] = -np.inf
        found[[0, -1]] = -np.inf
        found[0, rules.bos], found[-1, rules.eos] = ends
        return found

    def follow(self, source: Sequence[int], vertices: int, *, token_weight: float, rules: DagRules) -> tuple[DagPath, float]:
        """Follow the best transition and token from vertex to vertex; also return the smallest gap on the path between the best and
        the second step or token."""
        states = self.states(source, vertices, rules)
        tokens = self.token_log_probs(states, rules)
        transitions = self.transitions(states)
        steps = transitions + token_weight * tokens.max(1) if token_weight else transitions
        path = [0]
        score = 0.0
        margin = math.inf
        while True:
            margin = min(margin, _gap(tokens[path[-1]]))
            score += float(tokens[path[-1]].max())
            if path[-1] == vertices - 1:
                return DagPath(tokens[path[1:-1]].argmax(1).tolist(), score), margin
            margin = min(margin, _gap(steps[path[-1]]))
            path.append(int(steps[path[-1]].argmax()))
            score += float(transitions[path[-2], path[-1]])


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(1, keepdims=True))
    found: Array = weights / weights.sum(1, keepdims=True)
    return found


def _gap(row: Array) -> float:
    second, best = np.sort(row)[-2:]
    return float(best - second) if np.isfinite(second) else math.inf
