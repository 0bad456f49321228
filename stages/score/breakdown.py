"""BLEU taken apart: by the length of references, and of samples against their diversity."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from stages.score.metrics import Comparison, score


def by_length(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], lengths: Sequence[int], bins: Sequence[int], how: Comparison
) -> dict[str, Any]:
    """BLEU of the sentences whose first reference has up to `bins[0]` words, above that up to `bins[1]`, and so on; the last bin
    has no end. `lengths` are the words of first references."""
    inside: list[list[int]] = [[] for _ in range(len(bins) + 1)]
    for row, length in enumerate(lengths):
        inside[bisect_left(bins, length)].append(row)
    found: list[dict[str, Any]] = []
    for rows, longer_than, up_to in zip(inside, (0, *bins), (*bins, None), strict=True):
        bleu = score("bleu", [hypotheses[row] for row in rows], [references[row] for row in rows], how)["score"] if rows else None
        found.append({"longer_than": longer_than, "up_to": up_to, "sentences": len(rows), "bleu": bleu})
    return {"bins": found}


def diversity(samples: Sequence[Sequence[str]], references: Sequence[Sequence[str]], how: Comparison) -> dict[str, Any]:
    """Quality and diversity of the samples of each sentence (Shen et al. 2019).

    `bleu`: of one sample a sentence against all references, the mean over ranks. `pairwise_bleu`: each sample against each other
    one of its sentence as the only reference, over all such pairs of all sentences; the lower, the more diverse. Sentences with
    fewer samples than the most, such as blank ones, are left out and counted.
    """
    count = max(map(len, samples), default=0)
    full = [row for row, texts in enumerate(samples) if len(texts) == count]
    known = [references[row] for row in full]
    ranks = [score("bleu", [samples[row][rank] for row in full], known, how)["score"] for rank in range(count)]
    pairs = [(one, other) for one in range(count) for other in range(count) if one != other]
    written = [samples[row][one] for row in full for one, _ in pairs]
    others = [[samples[row][other]] for row in full for _, other in pairs]
    return {
        "samples": count,
        "sentences": len(full),
        "left_out": len(samples) - len(full),
        "bleu": round(sum(ranks) / count, 4),
        "bleu_by_rank": ranks,
        "pairwise_bleu": score("bleu", written, others, how)["score"] if written else None,
    }
