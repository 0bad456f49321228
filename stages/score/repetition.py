"""Repetition: the share of tokens that equal the one before them, a sign of outputs that mix several translations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fewstep.mapped_pieces import pieces_of
from fewstep.system.description import read_description
from fewstep.system.format import BundleError
from fewstep.system.networks import sizes_of
from fewstep.system.system import encode_lines
from stages.artifacts import Hypotheses, System
from stages.errors import ArtifactError
from stages.shared.shards import read_shards


def repeated(rows: Sequence[Sequence[Any]]) -> dict[str, int]:
    """Return the numbers of tokens or words that equal the one before them in their row, and of all (Xia et al. 2022, table 9)."""
    pairs = (one == other for row in rows for one, other in pairwise(row))
    return {"repeated": sum(pairs), "total": sum(map(len, rows))}


def best_tokens(hypotheses: Hypotheses) -> list[list[int]]:
    """Return the tokens of the best hypothesis of each sentence, without EOS, in the order of the shards."""
    tokens: list[list[int]] = []
    for table in read_shards(hypotheses.path):
        rows = table.select(["rank", "ids"]).to_pydict()
        tokens += [ids for rank, ids in zip(rows["rank"], rows["ids"], strict=True) if not rank]
    return tokens


def tokens_of(system: System, texts: Sequence[str]) -> list[list[int]]:
    """Return the tokens of target texts in the vocabulary of a system. Raises ArtifactError for a damaged system."""
    try:
        description = read_description(system.path, verify=False)
        pieces = pieces_of(system.path, description, "target", sizes_of(system.path, description).target)
    except BundleError as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error
    return encode_lines(pieces, texts)
