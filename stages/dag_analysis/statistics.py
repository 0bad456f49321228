"""Statistics of the DAGs of a text (Huang et al. 2022: table 2, figures 3 and 15)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from models.dag.analysis import most_probable

if TYPE_CHECKING:
    from models.dag.analysis import View

LIKELY = 0.5
"""Probability above which a vertex is likely (passing probability) or confident (probability of its best token)."""
VAGUE = 0.2
"""Probability below which both must be for a vertex to be vague."""
EDGES = 0.8
"""Probability mass of the transitions that are counted for out-degrees."""
REACHED = 0.2
"""Smallest passing probability of a vertex whose out-degree is counted."""
CELLS = 10
"""Number of bins of the joint distribution of passing and token probabilities, for each of them."""

Counts = Counter[Any]
"""Numbers by name. A pair (passing, token) is a cell of the joint distribution, an integer is an out-degree."""


def counts_of(view: View) -> Counts:
    """Return the counts of one sentence."""
    found: Counts = Counter(sentences=1)
    if int(view.path[0]) < 0:
        found["impossible"] = 1
    else:
        found += _alignment(view)
    return found + _vertices(view) + _out_degrees(view)


def _alignment(view: View) -> Counts:
    """Counts for table 2 and figure 3; BOS and EOS are counted separately."""
    right = (view.first[view.path] == view.target).tolist()
    posteriors = view.posteriors[1:-1]
    entropies = -(posteriors * posteriors.clamp(min=1e-300).log()).sum(1)
    return Counter(
        {
            "aligned": 1,
            "tokens": len(right) - 2,
            "correct": sum(right[1:-1]),
            "correct_ends": right[0] + right[-1],
            "spread": float(entropies.exp().sum()),
        }
    )


def _vertices(view: View) -> Counts:
    """Counts for figure 15 (a), over the inner vertices."""
    found: Counts = Counter()
    pairs = zip(view.passing[1:-1].tolist(), view.top_tokens.scores[1:-1, 0].tolist(), strict=True)
    for passing, token in pairs:
        found["vertices"] += 1
        found["likely"] += passing > LIKELY
        found["confident"] += passing <= LIKELY < token
        found["vague"] += passing < VAGUE and token < VAGUE
        found[_cell(passing), _cell(token)] += 1
    return found


def _cell(probability: float) -> int:
    return min(int(probability * CELLS), CELLS - 1)


def _out_degrees(view: View) -> Counts:
    """Counts for figure 15 (b): out-degrees, in which transitions to vertices with the same best token count once."""
    kept = most_probable(view.transitions, EDGES)
    tokens = view.top_tokens.ids[:, 0]
    reached = (view.passing[:-1] >= REACHED).nonzero()[:, 0].tolist()
    return Counter(len(set(tokens[kept[vertex]].tolist())) for vertex in reached)


def summary(found: Counts) -> dict[str, Any]:
    """Return the part of `dag_analysis.json` on one network.

    Counts; `spread`, the mean over tokens of the number of vertices that a token is spread over given the target (exp of the
    entropy of its posterior); `joint`, rows by passing and columns by token probability, both from 0 to 1; and the number of
    vertices by their number of transitions (`out_degrees`).
    """
    names = ("sentences", "impossible", "aligned", "tokens", "correct", "correct_ends", "vertices", "likely", "confident", "vague")
    degrees = sorted(key for key in found if isinstance(key, int))
    return {
        **{name: found[name] for name in names},
        "spread": round(found["spread"] / found["tokens"], 6) if found["tokens"] else None,
        "joint": [[found[row, column] for column in range(CELLS)] for row in range(CELLS)],
        "out_degrees": {str(degree): found[degree] for degree in degrees},
    }
