"""The slow reference of `kernels.candidates`: the counts are in dictionaries and every sum is written out.

    P(y | x, offset) = (#(x, offset, y) + b #(x, y) / #(x)) / (#(x, offset) + b)      with the backoff b
    P(a | S, t)      = #(S, t, a) / #(S, t)
    L(S)             = round(slope * S + intercept + 1)
    P(y | x, t)      = sum over s of P(y | x_s, s - t) P(s | S, t)

The first line keeps the `top` most frequent y of #(x, offset, y) and of #(x, y) that are not reserved pieces. L rounds halves to
even, and its line minimises sum (slope S + intercept - T)^2.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Pair = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Source pieces, target pieces, and for each of these the source position that it is linked to, or -1."""

NEAREST = 3


@dataclass
class ReferenceTables:
    """All counts of a corpus."""

    max_offset: int = 127
    max_length: int = 256
    top: int = 40
    reserved: int = 7
    tension: float = 4.0
    backoff: float = 0.0
    lexical: dict[tuple[int, int], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """The counts #(x, offset, y) by (x, offset) and y."""
    positions: dict[tuple[int, int], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """The counts #(S, t, a) by (S, t) and a."""
    lengths: list[tuple[int, int]] = field(default_factory=list)
    """The lengths (S, T) of every counted pair."""
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, pairs: Iterable[Pair]) -> None:
        for source, target, links in pairs:
            if not source or not target:
                self.counts["empty"] += 1
            elif max(len(source), len(target)) > self.max_length:
                self.counts["too_long"] += 1
            else:
                self.counts["pairs"] += 1
                self.lengths.append((len(source), len(target)))
                self._add_links(source, target, links)

    def _add_links(self, source: Sequence[int], target: Sequence[int], links: Sequence[int]) -> None:
        for t, (y, a) in enumerate(zip(target, links, strict=True)):
            if a < 0:
                self.counts["unlinked"] += 1
            elif abs(a - t) > self.max_offset:
                self.counts["dropped"] += 1
            else:
                self.counts["linked"] += 1
                self.lexical[source[a], a - t][y] += 1
                self.positions[len(source), t][a] += 1

    def row(self, x: int, offset: int) -> tuple[list[tuple[int, int]], int]:
        """Return the kept entries (y, count), best first, and the total of the whole row."""
        return self._cut(self.lexical.get((x, offset), Counter()))

    def lexical_row(self, x: int) -> tuple[list[tuple[int, int]], int]:
        """Return the entries and total over all offsets."""
        return self._cut(sum((counts for (piece, _), counts in self.lexical.items() if piece == x), Counter()))

    def _cut(self, counts: Counter[int]) -> tuple[list[tuple[int, int]], int]:
        ranked = sorted((-count, y) for y, count in counts.items() if y >= self.reserved)
        return [(y, -count) for count, y in ranked[: self.top]], counts.total()

    def line(self) -> tuple[float, float]:
        """Return slope and intercept, by the normal equations in integers."""
        n = len(self.lengths)
        x = sum(s for s, _ in self.lengths)
        y = sum(t for _, t in self.lengths)
        xx, xy = sum(s * s for s, _ in self.lengths), sum(s * t for s, t in self.lengths)
        if n == 0:
            return 1.0, 0.0
        if (determinant := n * xx - x * x) == 0:
            return y / x, 0.0
        return float(n * xy - x * y) / float(determinant), float(y * xx - x * xy) / float(determinant)

    def length(self, source_length: int) -> int:
        slope, intercept = self.line()
        return round(slope * source_length + intercept + 1)

    def length_range(self, source_length: int, window: int) -> tuple[int, int]:
        if source_length == 0:
            return 0, 0
        predicted = self.length(source_length)
        least = max(2, predicted - window)
        return least - 1, max(least, predicted + window) - 1

    def prior(self, source_length: int, slot: int) -> dict[int, float]:
        """Return P(s | S, t) for the positions s < S with counts."""
        for distance in range(NEAREST + 1):
            for length in (source_length - distance, source_length + distance):
                cell = self.positions.get((length, slot), Counter())
                if any(a < source_length for a in cell):
                    return {a: cell[a] / cell.total() for a in sorted(cell) if a < source_length}
        return self.diagonal(source_length, slot)

    def diagonal(self, source_length: int, slot: int) -> dict[int, float]:
        """Return exp(-tension |(s + 1) / S - (t + 1) / W|), W the predicted tokens, over the positions within reach, normalised."""
        tokens = max(1, self.length(source_length) - 1)
        reach = [s for s in range(source_length) if abs(s - slot) <= self.max_offset]
        distances = {s: abs((s + 1) / source_length - (slot + 1) / tokens) for s in reach}
        nearest = min(distances.values(), default=0.0)
        weights = {s: math.exp(-self.tension * (distance - nearest)) for s, distance in distances.items()}
        total = 0.0
        for weight in weights.values():  # one after the other: sum() may round differently
            total += weight
        return {s: weight / total for s, weight in weights.items()}

    def marginal(self, source: Sequence[int], slot: int, min_prior: float = 0.0) -> dict[int, float]:
        """Return P(y | x, t) for every y with counts."""
        sums: dict[int, float] = {}
        for s, weight in self.prior(len(source), slot).items():
            if weight < min_prior:
                continue
            for (entries, total), share in self._rows(source[s], s - slot):
                for y, count in entries:
                    if (added := count / total * (weight * share)) > 0:
                        sums[y] = sums.get(y, 0.0) + added
        return sums

    def _rows(self, x: int, offset: int) -> list[tuple[tuple[list[tuple[int, int]], int], float]]:
        """Return the rows of which P(y | x, offset) consists, and the weight of each."""
        row = self.row(x, offset)
        if not self.backoff:
            return [(row, 1.0)]
        share = row[1] / (row[1] + self.backoff)
        return [(row, share), (self.lexical_row(x), 1.0 - share)]

    def candidates(self, source: Sequence[int], slot: int, count: int, min_prior: float = 0.0) -> list[tuple[int, float]]:
        """Return the best (piece, natural logarithm of its probability), at most `count`."""
        sums = self.marginal(source, slot, min_prior)
        best = sorted(sums, key=lambda y: (-sums[y], y))[:count]
        return [(y, min(0.0, math.log(sums[y]))) for y in best]
