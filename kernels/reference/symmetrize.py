"""Symmetrisation in plain Python sets."""

from __future__ import annotations

from collections.abc import Iterable

Link = tuple[int, int]


def symmetrize(forward: Iterable[Link], reverse: Iterable[Link], method: str) -> list[Link]:
    """Return one pair's links of both directions, combined by a method of Koehn, Och and Marcu (2003)."""
    a, b = set(forward), set(reverse)
    if method == "union":
        return sorted(a | b)
    found = a & b
    if method == "intersect":
        return sorted(found)
    grew = True
    while grew:
        grew = False
        for link in sorted((a | b) - found):
            if _free(link, found) and _touches(link, found):
                found.add(link)
                grew = True
    if method == "grow-diag":
        return sorted(found)
    for direction in (a, b):
        for link in sorted(direction):
            if _free(link, found) if method == "grow-diag-final" else _both_free(link, found):
                found.add(link)
    return sorted(found)


def _free(link: Link, found: set[Link]) -> bool:
    """Return whether one of the link's words has no link yet."""
    return all(link[0] != i for i, _ in found) or all(link[1] != j for _, j in found)


def _both_free(link: Link, found: set[Link]) -> bool:
    return all(link[0] != i and link[1] != j for i, j in found)


def _touches(link: Link, found: set[Link]) -> bool:
    return any(max(abs(link[0] - i), abs(link[1] - j)) == 1 for i, j in found)
