"""What drafting brought to the hypotheses of a test set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.benchmark.timing import quantiles

if TYPE_CHECKING:
    import pyarrow as pa


def numbers_of(statistics: Mapping[str, Any]) -> list[tuple[str, float]]:
    """What a hypothesis tells of drafting (`models.aggressive.record.draft_statistics`) as named numbers: `proposed_1` ... and
    `accepted_1` ... by place in a block, as far as any was tried; nothing for a blank source."""
    if "drafted" not in statistics:
        return []
    found = [(name, float(statistics[name])) for name in ("drafted", "accepted", "fell_back")]
    for place, (times, right) in enumerate(zip(statistics["proposed_at"], statistics["accepted_at"], strict=True), 1):
        if times:
            found += [(f"proposed_{place}", float(times)), (f"accepted_{place}", float(right))]
    return found


def summarise(tables: Sequence[pa.Table]) -> dict[str, Any] | None:
    """Figures over all sentences that were decoded (not blank), for tables of `Hypotheses`; None where nothing drafts.

    tokens_per_pass: tokens without EOS over passes of the verifier (of the drafter where it writes alone), both summed over
    sentences (*Tok.* of Xia et al. 2022); passes: the mean of a sentence (*Iter.*); quantiles: of the tokens per pass of single
    sentences, lowest to highest; accepted: kept drafts over drafts; acceptance: of the drafts at each place of a block that all
    before were kept of, the share that was kept too; fell_back: share of sentences whose drafting did not pay.
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
            tokens, passes = tokens + len(row["ids"]), passes + row["steps"]
            rates.append(len(row["ids"]) / row["steps"])
            sums.update(dict(row["drafting"]))
    if not rates:
        return None
    places = range(1, 1 + sum(name.startswith("proposed_") for name in sums))
    return {
        "sentences": len(rates),
        "tokens_per_pass": tokens / passes,
        "passes": passes / len(rates),
        "quantiles": quantiles(rates),
        "accepted": sums["accepted"] / sums["drafted"] if sums["drafted"] else 0.0,
        "acceptance": [sums[f"accepted_{place}"] / sums[f"proposed_{place}"] for place in places],
        "fell_back": sums["fell_back"] / len(rates),
    }
