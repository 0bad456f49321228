"""Counts over the graphs of a text (Huang et al. 2022: table 2, figures 3 and 15)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from models.dag.analysis import most_probable

if TYPE_CHECKING:
    from models.dag.analysis import View

LIKELY = 0.5
"""A vertex of a higher passing probability is likely in the output, a token of a higher probability is a confident one."""
VAGUE = 0.2
"""A vertex is vague that is passed with less probability and has no token of as much."""
EDGES, REACHED = 0.8, 0.2
"""Transitions out of a vertex are counted until they make up so much, where its passing probability is at least that."""
CELLS = 10
"""Of the joint distribution of passing and token probabilities, along each side."""

Counts = Counter[Any]
"""Numbers by name; `(passing, token)` names a cell of the joint distribution, a number a count of transitions."""


def counts_of(view: View) -> Counts:
    """What one sentence adds."""
    found: Counts = Counter(sentences=1)
    if int(view.path[0]) < 0:
        found["impossible"] = 1
    else:
        found += _alignment(view)
    return found + _vertices(view) + _out_degrees(view)


def _alignment(view: View) -> Counts:
    """Table 2 and figure 3: the ends, BOS and EOS, are apart."""
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
    """Figure 15 (a), of the vertices between both ends."""
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
    """Figure 15 (b): transitions to vertices that would write the same token are one."""
    kept, tokens = most_probable(view.transitions, EDGES), view.top_tokens.ids[:, 0]
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
