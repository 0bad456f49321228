"""Write text as token shards."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Text, Tokens, Vocabulary
from stages.stage import Stage, Work


@dataclass(frozen=True)
class EncodeInputs:
    text: Text
    vocabulary: Vocabulary


@dataclass(frozen=True, kw_only=True)
class EncodeConfig:
    """Nothing to choose: the vocabulary says it all."""


def run(inputs: EncodeInputs, config: EncodeConfig, work: Work) -> None: ...


STAGE = Stage(name="encode", version=1, run=run, output=Tokens, distributes=True)
