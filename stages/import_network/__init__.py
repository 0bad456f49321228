"""Make a system of a network that another program trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.artifacts import ExternalFile, System
from stages.stage import Implementation, Stage

FILES = (
    "config.json", "generation_config.json", "model.safetensors", "pytorch_model.bin", "source.spm", "target.spm", "vocab.json",
    "target_vocab.json", "merges.txt", "README.md",
)  # fmt: skip
"""Files of a directory that are read, as far as they are there."""


@dataclass(frozen=True)
class ImportInputs:
    files: dict[str, ExternalFile]
    """Files of a directory of Hugging Face's format by name; those of a network of fairseq by their part: `checkpoint`,
    `source_pieces` and the other keys of the teacher."""


@dataclass(frozen=True, kw_only=True)
class ImportConfig:
    """The kind of a network and the languages that it translates."""

    kind: Literal["marian", "bart", "fairseq"]
    """Format of the files."""
    name: str
    """Name of the directory, or of the checkpoint."""
    source_language: str
    """Language code of sources."""
    target_language: str
    """Language code of outputs."""
    target_token: str = ""
    """Token of the target language in front of sources."""


STAGE: Stage[ImportInputs, ImportConfig, System] = Stage(
    name="import_network", version=2, run=Implementation(__name__), output=System, product=True
)
