"""Statistics of drafting over the hypotheses of a test set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from stages.shared.statistics import quantiles


def numbers_of(statistics: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the drafting statistics of a hypothesis (`fewstep.families.aggressive.record.draft_statistics`) as named numbers.

    `proposed_1`, ... and `accepted_1`, ... are counts by position in a block, for positions with proposals. A blank source has no
    statistics.
    """
    if "drafted" not in statistics:
        return []
    found = [(name, float(statistics[name])) for name in ("drafted", "accepted", "fell_back")]
    for position, (proposed, accepted) in enumerate(zip(statistics["proposed_at"], statistics["accepted_at"], strict=True), 1):
        if proposed:
            found += [(f"proposed_{position}", float(proposed)), (f"accepted_{position}", float(accepted))]
    return found


def summarise(tables: Iterable[pa.Table]) -> dict[str, Any] | None:
    """Return statistics over all decoded sentences in tables of `Hypotheses`; None if the system does not draft.

    - tokens_per_pass: tokens without EOS divided by passes of the verifier (of the drafter if it decodes alone), both summed over
      sentences (*Tok.* of Xia et al. 2022)
    - passes: mean number of passes of a sentence (*Iter.*)
    - quantiles: quantiles of the tokens per pass of single sentences, from lowest to highest
    - accepted: accepted drafted tokens divided by drafted tokens
    - acceptance: fraction of accepted tokens at each position of a block, given that all earlier positions were accepted
    - fell_back: fraction of sentences that stopped drafting.
    """
    sums: Counter[str] = Counter()
    rates: list[float] = []
    tokens = passes = 0
    for table in tables:
        if "drafting" not in table.column_names:
            continue
        for row in table.select(["rank", "ids", "steps", "drafting"]).to_pylist():
            if row["rank"] or not row["steps"]:
                continue
            tokens += len(row["ids"])
            passes += row["steps"]
            rates.append(len(row["ids"]) / row["steps"])
            sums.update(dict(row["drafting"]))
    if not rates:
        return None
    positions = range(1, 1 + sum(name.startswith("proposed_") for name in sums))
    return {
        "sentences": len(rates), "tokens_per_pass": tokens / passes, "passes": passes / len(rates),
        "quantiles": quantiles(rates), "accepted": sums["accepted"] / sums["drafted"] if sums["drafted"] else 0.0,
        "acceptance": [sums[f"accepted_{position}"] / sums[f"proposed_{position}"] for position in positions],
        "fell_back": sums["fell_back"] / len(rates),
    }  # fmt: skip
