"""The search of the baseline's system that an entry of the benchmark is compared with like for like."""

from __future__ import annotations

from collections.abc import Mapping

from models.config.search import SearchConfig


def peer(search: SearchConfig, baselines: Mapping[str, SearchConfig]) -> str | None:
    """Return the first of the baseline system's searches with the workload of `search`, which is as wide if both are of one family:
    the same engine, precision and shortlist, and a beam or samples if `search` has them. None if no search has.
    """
    same = (name for name, other in baselines.items() if other.workload == search.workload and search.equally_wide(other))
    return next(same, None)
