"""Means and standard deviations over systems that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Protocol

from stages.shared.report_parts import Table


class Row(Protocol):
    """A system with one search on one test set (`stages.report.findings.results.Row`)."""

    @property
    def system(self) -> str: ...

    @property
    def search(self) -> str: ...

    @property
    def test(self) -> str: ...

    @property
    def metrics(self) -> Mapping[str, Mapping[str, Any]]: ...


def over_seeds(rows: Sequence[Row], seeds: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return the statistics of each test set, system with several seeds and search: for each metric the values by seed, their mean,
    and their standard deviation with n - 1 in its denominator.
    """
    found = {(row.test, row.system, row.search): row for row in rows}
    return [
        _statistics(row, [found[row.test, name, row.search] for name in seeds[row.system]]) for row in rows if row.system in seeds
    ]


def _statistics(first: Row, members: Sequence[Row]) -> dict[str, Any]:
    metrics = {}
    for metric in first.metrics:
        values = [float(row.metrics[metric]["score"]) for row in members if metric in row.metrics]
        if len(values) == len(members):
            metrics[metric] = {"values": values, "mean": round(fmean(values), 4), "deviation": round(stdev(values), 4)}
    return {"system": first.system, "search": first.search, "test": first.test, "seeds": len(members), "metrics": metrics}


def seed_tables(found: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Iterator[Table]:
    """Yield a table of mean and standard deviation for each test set; `names` are the headings of metrics."""
    for test in dict.fromkeys(one["test"] for one in found):
        entries = [one for one in found if one["test"] == test]
        metrics = [metric for metric in names if any(metric in one["metrics"] for one in entries)]
        yield Table(
            title=f"Seeds on {test}",
            caption="Mean ± standard deviation (n - 1 in its denominator) over trainings that differ in their seed alone. All "
            "systems with distilled data learn from the translations of one teacher.",
            columns=["entry", "seeds", *(names[metric] for metric in metrics)],
            rows=[
                [f"{one['system']}/{one['search']}", str(one["seeds"]), *(_shown(one["metrics"].get(metric)) for metric in metrics)]
                for one in entries
            ],
        )


def _shown(values: Mapping[str, Any] | None) -> str:
    return "" if values is None else f"{values['mean']:.2f} ± {values['deviation']:.2f}"
