"""Translate the training source with a program of the user or a model of CTranslate2: distillation from a teacher outside this
project."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from fewstep.config.bounds import Ge
from stages.artifacts import ExternalFile, Text
from stages.stage import OPERATIONAL, Implementation, Stage


@dataclass(frozen=True)
class ExternalInputs:
    text: Text
    files: tuple[ExternalFile, ...]
    """Files of the program, which are linked into its working directory."""
    model: dict[str, ExternalFile] = field(default_factory=dict)
    """Files of a directory of CTranslate2 by name, with `source_pieces` and `target_pieces`; empty for a program."""


@dataclass(frozen=True, kw_only=True)
class CTranslate2Options:
    """The search of a model of CTranslate2, and the pieces around its sources."""

    beam_size: Annotated[int, Ge(1)] = 5
    """Number of hypotheses kept alive for each sentence; 1 is greedy search."""
    length_penalty: Annotated[float, Ge(0)] = 1.0
    """Exponent of the number of tokens by which scores are divided."""
    max_tokens: Annotated[int, Ge(1)] = 256
    """Longest output in tokens."""
    precision: Literal["default", "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16"] = "default"
    """Arithmetic of products with weights; `default` is that of the file."""
    source_prefix: tuple[str, ...] = ()
    """Pieces in front of each source, such as a token of the target language (`>>deu<<`)."""
    source_suffix: tuple[str, ...] | None = None
    """Pieces behind each source. Empty: the end token, where the model needs it and CTranslate2 does not add it, as in models that
    were converted from transformers."""
    target_prefix: tuple[str, ...] = ()
    """Pieces that every output begins with, and that are cut off, such as a language token of NLLB."""


@dataclass(frozen=True, kw_only=True)
class ExternalConfig:
    """A program that reads source lines and writes one translation for each, or the options of a model of CTranslate2."""

    command: tuple[str, ...] = ()
    """Program and arguments; empty for a model of CTranslate2."""
    version: str = ""
    """Version of the program and its models."""
    ctranslate2: CTranslate2Options | None = None
    """Options of the model; None for a program."""
    environment: tuple[str, ...] = ()
    """Names of environment variables that the program sees."""
    shards_per_process: int = field(default=16, metadata=OPERATIONAL)
    """Shards that one process translates."""
    timeout_seconds: float = field(default=1800.0, metadata=OPERATIONAL)
    """Seconds without a line after which the process is killed."""

    @property
    def key(self) -> str:
        """Return the key of the config that describes the translator."""
        return "teacher.command" if self.ctranslate2 is None else "teacher.ctranslate2"


STAGE: Stage[ExternalInputs, ExternalConfig, Text] = Stage(
    name="external", version=2, run=Implementation(__name__), output=Text, distributes=True
)
