"""The verdict of a report: which entry to take, by a rule that weighs quality, speed and size."""

from __future__ import annotations

from dataclasses import dataclass

from stages.report.findings.results import NAMES, Findings, Row
from stages.shared.environment import is_loaded

MAX_LOSS = 1.0
"""Points of the task's metric below the best entry that speed is worth."""
EQUALLY_FAST = 1.05
"""Ratio of median latencies up to which the smaller system is taken: noise is as large."""
MIB = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """The entry to take on one test set."""

    test: str
    taken: Row
    best: Row
    """The entry with the best score."""


def verdict_of(findings: Findings) -> Verdict | None:
    """Return the verdict on the timed test set, else on the first one; None unless at least two entries have scores.

    Of the entries whose score is within `MAX_LOSS` of the best, those within `EQUALLY_FAST` of the fastest remain, and of these the
    one in the smallest system, then the one with the best score. Without timings it is the best entry.
    """
    test = next(iter(findings.benchmarks), next(iter(findings.tests)))
    metric = findings.task.metric
    scores = {row.entry: score for row in findings.of(test) if (score := row.score(metric)) is not None}
    rows = [row for row in findings.of(test) if row.entry in scores]
    if len(rows) < 2:
        return None
    best = max(rows, key=lambda row: scores[row.entry])
    close = [row for row in rows if row.timing and scores[row.entry] >= scores[best.entry] - MAX_LOSS]
    if not close:
        return Verdict(test, best, best)
    fastest = min(map(_latency, close))
    fast = [row for row in close if _latency(row) <= EQUALLY_FAST * fastest]
    return Verdict(test, min(fast, key=lambda row: (_size(row) or 0, -scores[row.entry])), best)


def verdict_text(findings: Findings) -> str | None:
    """Return the verdict with its reason and its rule; None without a verdict."""
    found = verdict_of(findings)
    if found is None:
        return None
    name = NAMES[findings.task.metric]
    metric = findings.task.metric
    taken, best = found.taken, found.best
    lost = (best.score(metric) or 0.0) - (taken.score(metric) or 0.0)
    facts = [f"{taken.score(metric):.1f} {name} on {found.test}"]
    if taken is not best:
        facts[0] += f", {lost:.1f} below the best ({best.entry})"
    if not taken.timing:
        return f"Take {taken.entry}, because it has the best score: {facts[0]}. No speed was measured for the close ones."
    facts.append(f"{_latency(taken):.2f} ms a {findings.task.unit}")
    if taken is not best and best.timing:
        facts[-1] += f", {_latency(best) / _latency(taken):.1f} times as fast"
    if (size := _size(taken)) is not None:
        facts.append(f"{size / MIB:.1f} MiB on disk")
    if memory := taken.timing.get("memory_mib"):
        facts.append(f"{memory['peak']:,.0f} MiB of memory")
    loaded = is_loaded(findings.benchmarks[found.test]["environment"])
    rule = (
        f"The rule: of the entries within {MAX_LOSS:g} {name} of the best, the fastest by median latency; among those at most "
        f"{EQUALLY_FAST - 1:.0%} slower, the smallest."
    )
    warning = " The machine was under load: measure again before you rely on it." if loaded else ""
    return f"Take {taken.entry}, because: {'; '.join(facts)}. {rule}{warning}"


def _latency(row: Row) -> float:
    assert row.timing is not None
    return float(row.timing["latency_ms"]["median"])


def _size(row: Row) -> int | None:
    """Return the bytes of the files of an entry's system; None if the benchmark did not record them."""
    size = (row.timing or {}).get("system_bytes")
    return None if size is None else int(size)
