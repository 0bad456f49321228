"""The account of a training text: how many pairs were read, kept, and dropped for which reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fewstep.documents.document import SKIP_REASONS

REASONS = ("empty", "length", "word", "ratio", "letters", "identical", "overlap", "duplicate")
"""Reasons to drop a pair, after those why a unit of a file is not a pair (`fewstep.documents.document.SKIP_REASONS`). A pair is
counted under the first that applies."""
OPTIONAL_REASONS = ("language", "numbers", "urls", "command", "similar")
"""Further reasons, of filters that are off by default: another language, other numbers or URLs, a program, and similarity to an
earlier pair. They come last, and
are in the ledger only if they were asked for."""

SAMPLES = 5
"""Dropped pairs of each reason that the ledger holds."""
SAMPLE_CHARACTERS = 300
"""Characters of each side of these pairs."""

Mask = npt.NDArray[np.bool_]


@dataclass
class Ledger:
    """Numbers of pairs that were read, kept, and dropped by reason, in a text or a part of it."""

    pairs_in: int = 0
    pairs_out: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The first `SAMPLES` dropped pairs of each reason, with their position in the text counted from 1. In the ledger of a text
    they also have the number of their file among the ledger's `files`, and their line in it, from 1."""

    def enter(self, table: pa.Table, masks: dict[str, Mask], start: int) -> Mask:
        """Count the pairs of a table and return which are kept [N]. A pair is dropped by the first mask that is true for it.

        `start` is the number of pairs of the text before the table.
        """
        kept = np.ones(table.num_rows, bool)
        for reason, mask in masks.items():
            rows = np.flatnonzero(mask & kept)
            self.drop(reason, len(rows))
            wanted = rows[: SAMPLES - len(self.samples.get(reason, []))]
            for row, pair in zip(wanted.tolist(), table.select(["source", "target"]).take(wanted).to_pylist(), strict=True):
                self.samples.setdefault(reason, []).append(sample(start + row, **pair))
            kept &= ~mask
        self.pairs_in += table.num_rows
        self.pairs_out += int(kept.sum())
        return kept

    def drop(self, reason: str, pairs: int) -> None:
        """Count pairs as dropped."""
        self.dropped[reason] = self.dropped.get(reason, 0) + pairs

    def add(self, part: Ledger) -> None:
        """Add the ledger of a part of the text. Parts may come in any order."""
        self.pairs_in += part.pairs_in
        self.pairs_out += part.pairs_out
        for reason, pairs in part.dropped.items():
            self.drop(reason, pairs)
        for reason, found in part.samples.items():
            both = sorted([*self.samples.get(reason, []), *found], key=lambda one: int(one["pair"]))
            self.samples[reason] = both[:SAMPLES]

    def to_json(self) -> dict[str, Any]:
        reasons = [reason for reason in (*SKIP_REASONS, *REASONS, *OPTIONAL_REASONS) if reason in self.dropped]
        dropped = {reason: self.dropped[reason] for reason in reasons}
        return {"pairs_in": self.pairs_in, "pairs_out": self.pairs_out, "dropped": dropped, "samples": self.samples}


def sample(row: int, source: str, target: str) -> dict[str, Any]:
    """Return the entry of a dropped pair, which has `row` pairs of the text before it."""
    return {"pair": row + 1, "source": source[:SAMPLE_CHARACTERS], "target": target[:SAMPLE_CHARACTERS]}
