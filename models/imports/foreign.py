"""A network of another toolkit by the names of fewstep, and its system directory."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.system.format import MERGES
from models.bundle.directory import write_system
from models.bundle.weights import save_weights

FAMILY = "stepwise"


@dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """An imported network with its vocabularies."""

    network: StepwiseConfig
    sizes: Sizes
    weights: dict[str, Tensor]
    """Weights by the names of fewstep, float32."""
    pieces: dict[str, bytes]
    """Serialised SentencePiece models by side, in the order of the network's ids."""
    unmapped: dict[str, int]
    """Pieces at the end of each model that have no row in the network, by side; empty if ids are those of the models."""
    search: StepwiseSearch
    """The default search."""
    origin: dict[str, Any]
    """Kind, name, files and licence of the original."""
    merges: bytes = b""
    """The merges of byte-level BPE, `merges.txt`; empty for SentencePiece models that segment text themselves."""
    source_prefix: tuple[int, ...] = field(default=())
    """Tokens in front of each source."""

    @property
    def vocabulary(self) -> dict[str, Any]:
        """The description of the vocabularies, as in `vocabulary.json`."""
        sizes = {"joint": self.sizes.joint, "source_size": self.sizes.source, "target_size": self.sizes.target}
        return sizes | ({"mapped": True} if self.unmapped else {})


def write_foreign(model: ForeignModel, directory: Path, *, name: str, source_language: str, target_language: str) -> None:
    """Write the system directory of an imported network. Raises OSError."""
    imported: dict[str, Any] = {"origin": model.origin}
    if model.unmapped:
        imported["unmapped_pieces"] = model.unmapped
    if model.source_prefix:
        imported["source_prefix"] = list(model.source_prefix)
    with tempfile.TemporaryDirectory(prefix="fewstep-import-") as scratch:
        parts = {side: Path(scratch) / f"{side}.spm" for side in model.pieces}
        for side, path in parts.items():
            path.write_bytes(model.pieces[side])
        merges = Path(scratch) / MERGES
        merges.write_bytes(model.merges)
        weights = Path(scratch) / "model.safetensors"
        save_weights(weights, model.weights, asdict(model.network))
        write_system(
            directory,
            family=FAMILY,
            network=model.network,
            sizes=model.sizes,
            weights=weights,
            source_vocabulary=parts["source"],
            target_vocabulary=parts["target"],
            name=name,
            source_language=source_language,
            target_language=target_language,
            merges=merges if model.merges else None,
            searches={model.search.label: model.search},
            imported=imported,
        )
