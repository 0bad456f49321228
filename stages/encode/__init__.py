"""Write text as token shards."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Text, Tokens, Vocabulary
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class EncodeInputs:
    text: Text
    vocabulary: Vocabulary


@dataclass(frozen=True, kw_only=True)
class EncodeConfig:
    """How text becomes tokens, besides what the vocabulary says."""

    max_source_tokens: int | None = None
    """Longer sources are cut to their first so many tokens; None cuts none."""


STAGE: Stage[EncodeInputs, EncodeConfig, Tokens] = Stage(
    name="encode", version=1, run=Implementation(__name__), output=Tokens, distributes=True
)
