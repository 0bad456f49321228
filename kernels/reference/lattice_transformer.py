"""A sequence-to-lattice network over numpy arrays, row by row as an ordinary decoder would run it; float64.

The network is that of `fewstep.LatticeTransformer`, which documents the arguments: with X_p the candidates of slot p,

    row (p, y)      x = sqrt(D) E[y] + slot_codes[p]        (p, BOS) for p = 0, (p, y) for y in X_{p-1}
    decoder layer   x = R(x, self-attention of the row over itself), R(x, attention over the encoded source), R(x, feed-forward)
                    with R(x, f) = x + f(norm(x)), or norm(x + f(x)); with the norm before one more norm after the last layer
    logits          z = E x, over the tokens of outputs
    scores          log P(y) = z(y) - log sum_{u in U} exp z(u), U by the normaliser; selfnorm: z(y)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fewstep.networks.arrays import TransformerShape
from fewstep.networks.lattice_transformer import LatticeOptions, LatticeOutcome
from kernels.reference import lattice
from kernels.reference.transformer import Reference as Transformer

Array = npt.NDArray[np.floating[Any]]


class Reference:
    """The network for one sentence at a time. Candidates are lists of ids, one for each slot, with their log-probabilities by the
    counts."""

    def __init__(self, arrays: Mapping[str, Array], *, shape: TransformerShape) -> None:
        self.transformer = Transformer(arrays, shape=shape)
        self.shape = shape
        self.embedding: Array = self.transformer.arrays["target_embedding"]

    def encode(self, source: Sequence[int]) -> Array:
        """Return the states [S,D] of a source with EOS."""
        found: Array = self.transformer.encode(source)
        return found

    def logits(self, encoded: Array, tokens: Sequence[int], slot: int) -> Array:
        """Return the logits [rows,V] of rows that carry `tokens` at position `slot`."""
        network = self.transformer
        x: Array = self.embedding[list(tokens)] * math.sqrt(self.shape.width) + network.arrays["slot_codes"][slot]
        itself = np.eye(len(tokens), dtype=bool)
        for layer in range(self.shape.decoder_layers):
            start = f"decoder.layers.{layer}."
            x = network._residual(start + "attention", x, lambda y, start=start: network._self_attention(start, y, itself))
            x = network._residual(start + "cross_attention", x, lambda y, start=start: network._cross_attention(start, y, encoded))
            x = network._residual(start + "feed_forward", x, lambda y, start=start: network._feed_forward(start, y))
        found: Array = network._last_norm("decoder", x) @ self.embedding.T
        return found

    def scores(
        self,
        source: Sequence[int],
        candidates: Sequence[Sequence[int]],
        log_probs: Sequence[Sequence[float]],
        options: LatticeOptions,
        behind: Sequence[int] = (),
    ) -> tuple[Array, Array, Array]:
        """Return start [K], edges [N-1,K,K] and exits [N,K]; minus infinity where slots have fewer than K candidates.

        `behind` are the candidates of the slot behind the last one, which compete with EOS if the normaliser is `local`.
        """
        encoded = self.encode(source)
        slots = len(candidates)
        width = max(len(slot) for slot in candidates)
        start, edges, exits = (np.full(shape, -np.inf) for shape in ((width,), (slots - 1, width, width), (slots, width)))
        for slot in range(slots + 1):
            before = [options.bos] if slot == 0 else candidates[slot - 1]
            after = list(candidates[slot]) if slot < slots else []
            beside = after if slot < slots else list(behind)
            found = self._normalised(self.logits(encoded, before, slot), beside, candidates, options)
            if slot > 0:
                exits[slot - 1, : len(before)] = found[:, options.eos]
            if slot < slots:
                added = options.count_weight * np.asarray(log_probs[slot]) if options.count_weight else 0.0
                table = found[:, after] + added + options.token_bonus
                if slot == 0:
                    start[: len(after)] = table[0]
                else:
                    edges[slot - 1, : len(before), : len(after)] = table
        return start, edges, exits

    def decode(
        self,
        source: Sequence[int],
        candidates: Sequence[Sequence[int]],
        log_probs: Sequence[Sequence[float]],
        window: tuple[int, int],
        options: LatticeOptions,
        behind: Sequence[int] = (),
    ) -> LatticeOutcome:
        """Return the best path with a length within `window`."""
        if window[1] == 0:
            return LatticeOutcome([], 0.0)
        score, path = lattice.viterbi(*self.scores(source, candidates, log_probs, options, behind), *window)
        return LatticeOutcome([candidates[slot][k] for slot, k in enumerate(path)], score)

    @staticmethod
    def _normalised(logits: Array, beside: list[int], candidates: Sequence[Sequence[int]], options: LatticeOptions) -> Array:
        if options.normaliser == "selfnorm":
            return logits
        union = sorted({token for slot in candidates for token in slot} | {options.eos})
        over = {"full": list(range(logits.shape[1])), "union": union, "local": [options.eos, *beside]}[options.normaliser]
        kept = logits[:, over]
        top = kept.max(1, keepdims=True)
        found: Array = logits - top - np.log(np.exp(kept - top).sum(1, keepdims=True))
        return found
