"""Symmetrisation of the links of two directions. On the command line: `python -m kernels.symmetrize`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from fewstep_native import I32, I64, U32

Method = Literal["intersect", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]

METHODS: tuple[Method, ...] = get_args(Method)


def symmetrize(
    forward: Iterable[Sequence[tuple[int, int]]],
    reverse: Iterable[Sequence[tuple[int, int]]],
    method: Method = "grow-diag-final-and",
) -> list[list[tuple[int, int]]]:
    """Combine the links of both directions, pair by pair: (source position, target position) each, sorted in the result.

    The two final methods consider `forward` first. Raises ValueError for an unknown method or different numbers of pairs.
    """
    from fewstep.native import fewstep_native

    return [fewstep_native.symmetrise(list(one), list(other), method) for one, other in zip(forward, reverse, strict=True)]


def symmetrize_arrays(
    target_starts: I64, forward: I32, source_starts: I64, reverse: I32, method: Method, *, threads: int = 1
) -> tuple[I64, U32, U32]:
    """Combine the links of many pairs at once, for links where each explained word has at most one.

    `forward[target_starts[p] + j]` is the source position to which target word j of pair p is linked, `reverse[source_starts[p] +
    i]` the target position of source word i; -1 means no link. Returns the start of each pair's links (int64, pairs + 1), their
    source positions and their target positions (uint32).
    """
    from fewstep.native import fewstep_native

    return fewstep_native.symmetrise_all(target_starts, forward, source_starts, reverse, method, threads)
