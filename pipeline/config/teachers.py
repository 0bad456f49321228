"""Teachers in a config that this project does not train: imported networks and programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fewstep.config.bounds import Ge, Gt, MinLen


@dataclass(frozen=True, kw_only=True)
class MarianTeacher:
    """A Marian network in the format of Hugging Face's transformers, such as those of opus-mt."""

    marian: Path
    """Directory with `config.json`, `model.safetensors` (or `pytorch_model.bin`), `source.spm`, `target.spm` and `vocab.json`. The
    content of the files enters fingerprints, their path does not."""


@dataclass(frozen=True, kw_only=True)
class CommandTeacher:
    """A program that reads source lines and writes one translation for each."""

    command: Annotated[tuple[str, ...], MinLen(1)]
    """Program and arguments. There is no shell, and nothing is expanded."""
    version: Annotated[str, MinLen(1)]
    """Version of the program and of its models, in any words. It enters the fingerprint."""
    files: tuple[Path, ...] = ()
    """Files of the program. They enter the fingerprint by content, and are linked into its working directory by name."""
    environment: tuple[str, ...] = ()
    """Names of further environment variables that the program sees. Their values are not recorded."""
    shards_per_process: Annotated[int, Ge(1)] = 16
    """Shards of the text that one process translates."""
    timeout_seconds: Annotated[float, Gt(0)] = 1800.0
    """Seconds without a line after which the program is killed and started again."""


@dataclass(frozen=True, kw_only=True)
class TeacherVocabulary:
    """The vocabulary of an imported teacher."""

    use: Literal["teacher"]
    """Use the vocabulary of the teacher, so that systems can share its weights, and so that it can verify drafts."""
