"""The search of the baseline's system that an entry of the benchmark is compared with like for like."""

from __future__ import annotations

from collections.abc import Mapping

from fewstep.config.search import SearchConfig


def matched_baseline(search: SearchConfig, baselines: Mapping[str, SearchConfig]) -> str | None:
    """Return the name of the first baseline with the same workload as `search`; None if there is no such baseline.

    Engine, precision and shortlist must be the same; both must have a beam, or samples, or neither. Within one family beams must
    also be equally wide.
    """
    same = (name for name, other in baselines.items() if other.workload == search.workload and search.equally_wide(other))
    return next(same, None)
