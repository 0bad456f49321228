"""The parts of an alignment that candidate tables need: forward links, tension and P(y | x)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fewstep.candidates import Ints
from kernels import AlignmentModel
from kernels.candidates import Sentences
from stages.artifacts import Links
from stages.errors import ArtifactError, DataError
from stages.shared.shards import read_shard

if TYPE_CHECKING:
    from fewstep.candidates import Floats


@dataclass(frozen=True)
class Aligner:
    """The fitted aligner of target pieces with source pieces."""

    tension: float
    model: AlignmentModel | None
    """Fitted model, which only the native engine keeps."""

    def row(self, piece: int) -> tuple[Ints, Floats]:
        """Return target pieces and their P(y | x) for a source piece; empty arrays for a piece that was not seen."""
        if self.model is None:
            return np.zeros(0, np.int64), np.zeros(0)
        targets, probabilities = self.model.row(piece)
        return np.asarray(targets, np.int64), probabilities


def forward_links(path: Path) -> Sentences:
    """Return the links of a shard: the source position of each target piece of each pair, or -1."""
    return sentences(read_shard(path)["forward"])


def aligner_of(links: Links) -> Aligner:
    """Return the aligner of the forward links. Raises DataError for links between words, ArtifactError for damaged files."""
    path = links.path / "align.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        unit = described["unit"]
        tension = float(described["forward"]["tension"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: expected JSON with unit and forward.tension, got: {error!r}; align the text again") from error
    if unit != "pieces":
        raise DataError(f"lattice: expected links between pieces, got links between {unit}; set alignment.unit to pieces")
    model = links.path / "forward.align"
    try:
        return Aligner(tension, AlignmentModel.load(model) if model.exists() else None)
    except (OSError, ValueError, RuntimeError) as error:
        raise ArtifactError(f"{model}: expected a fitted aligner, got: {error}; align the text again") from error


def sentences(column: Any) -> Sentences:
    """Return a list column of a shard without copying its values."""
    rows = column.combine_chunks()
    starts = rows.offsets.to_numpy().astype(np.int64)
    if len(starts) == 0:
        return Sentences(np.zeros(0, np.int32), np.zeros(1, np.int64))
    return Sentences(rows.values.to_numpy()[starts[0] : starts[-1]], starts - starts[0])
